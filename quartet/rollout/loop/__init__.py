"""Agent loops: one part per file. A loop turns observations into prompts and responses into actions."""
