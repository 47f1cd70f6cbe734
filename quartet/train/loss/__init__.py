"""Policy losses over flat response tokens: one part per file."""
