"""Text and numbers to batches; knows no model."""
