"""Runs on the environment `worlds`: the initial policy, and one run."""
