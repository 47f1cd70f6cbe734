"""Kinds of models, one file each. `quartet.policy.kind.find` determines the kind of the policy in a folder."""
