"""Advantages: one part per file. From the rewards of a group to one number per trajectory."""
