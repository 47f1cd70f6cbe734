"""Critics, one per file: the estimate of the return before each token."""
