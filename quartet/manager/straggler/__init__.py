"""Straggler rules for rollouts that take much longer than others: one part per file."""
