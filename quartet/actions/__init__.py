"""Actions of a policy as text: the grammar, the keys, and the outcome of an action."""
