"""Gymnasium environments as text: sessions, names of actions, and descriptions of observations."""
