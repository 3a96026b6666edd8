"""The machine a process runs on: its cores, and the threads that use them."""
