"""Five small text worlds, one per file, like the five kinds of environment of AgentGym-RL (arXiv 2509.08755)."""
