"""Names of the forward passes that a credit method or a loss term may need, and which ones this trainer cannot run."""

from collections.abc import Set

from quartet.errors import ConfigError, nearest

PASSES = {
    "entropies": "the entropy of the distribution that each token was drawn from, at temperature 1",
    "reference": "log-probs under the policy that the run started from",
    "teacher": "log-probs under a teacher's policy",
    "values": "a value head's estimate of the return",
}
"""Name of each pass -> its result for each trained token."""
_MISSING = {
    "values": "the trained model has no value head",
}
"""Name of each pass that cannot be run -> the reason."""


def require_passes(part: str, needs: Set[str]) -> None:
    """Raise `ConfigError` if `part` needs an unknown or unavailable pass."""
    for name in sorted(needs):
        if name not in PASSES:
            raise ConfigError(f"{part} needs the unknown pass {name!r}", nearest(name, PASSES))
        if reason := _MISSING.get(name):
            raise ConfigError(f"{part} needs {PASSES[name]} (pass {name!r}), but {reason}", "choose another part")
