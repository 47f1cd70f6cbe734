"""Recorded successes as an environment: the recordings, and the session that follows one of them."""
