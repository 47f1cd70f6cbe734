"""Trainer: claims batches, computes advantages, steps, publishes policies. `trainer.py` holds the loop."""
