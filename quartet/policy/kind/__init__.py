"""Kinds of models: one file each. `quartet.policy.kind.find` says which one a policy's folder holds."""
