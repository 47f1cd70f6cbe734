"""Runtimes: start the modules of a run and keep them running, or run all modules in one process."""
