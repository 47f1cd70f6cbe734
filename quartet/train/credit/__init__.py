"""Credit: the advantage of each sampled token of a batch. One part per file."""
