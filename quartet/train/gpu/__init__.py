"""Attention, scores of tokens and compiled layers of the trainer on a GPU."""
