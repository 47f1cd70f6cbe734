"""Branchers: one part per file. A brancher decides where children leave a running rollout."""
