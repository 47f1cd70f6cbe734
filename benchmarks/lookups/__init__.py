"""Runs on the environment `lookups`: the initial policy, its answers, and one run by reinforcement or imitation."""
