"""Branchers: one part per file. A brancher decides where children fork from a running rollout."""
