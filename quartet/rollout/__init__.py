"""Rollout service: the worker that runs rollouts, agent loops, branchers, and the model client."""
