"""Loss terms: one part per file. The loss is their weighted sum."""
