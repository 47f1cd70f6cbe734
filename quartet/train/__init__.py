"""Trainer: claims batches, assigns credit, takes optimizer steps, publishes policies. `trainer.py` has the loop."""
