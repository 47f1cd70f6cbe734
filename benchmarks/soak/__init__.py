"""Soak test of the environment cluster: many MiniWoB++ episodes, with a page, the browser or the host killed again and
again."""
