"""Engines whose model lives on a server that somebody else wrote, reached over HTTP."""
