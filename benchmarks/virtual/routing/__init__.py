"""Routing policies of the simulator, one file each: which engine answers a request."""
