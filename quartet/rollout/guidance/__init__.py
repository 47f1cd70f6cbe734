"""Guidance: one part per file. A guidance is the advice that the prompts of guided rollouts contain."""
