"""Trainer: claims batches, assigns credit, steps, publishes policies. `trainer.py` holds the loop."""
