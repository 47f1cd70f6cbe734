"""Runtimes: start the modules of a run and keep them alive, or run all of them in one process."""
