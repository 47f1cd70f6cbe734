"""Recipe `miniwob_guided`: groups of failures are tried again with the advice of scripted experts."""
