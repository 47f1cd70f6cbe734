"""Access to the HTTP servers of a run: its token, rules for requests, and a server on this machine."""
