"""Task samplers: one part per file."""
