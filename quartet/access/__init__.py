"""Access to the HTTP servers of a run: the run's token, the rules for requests, the listener on this machine."""
