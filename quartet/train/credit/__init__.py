"""Credit: one part per file. What each sampled token of a batch is worth."""
