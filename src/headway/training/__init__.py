"""Training: the loop, its optimiser and schedule, checkpoints that survive anything, and the journal."""
