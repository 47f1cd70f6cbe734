"""Straggler rules: one part per file. What happens to rollouts that take much longer than the others."""
