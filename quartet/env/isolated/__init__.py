"""Sessions in child processes of their own, with a memory limit."""
