"""Actions of a policy as text: the grammar, the keys, and what came of an action."""
