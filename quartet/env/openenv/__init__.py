"""Servers of OpenEnv as an environment: the connection, and its sessions."""
