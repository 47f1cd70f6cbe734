"""Forward passes that a credit or a loss term may need, by name, and which of them this trainer can make."""

from collections.abc import Set

from quartet.errors import ConfigError, nearest

PASSES = {
    "entropies": "the entropy of the distribution that each token was drawn from, at temperature 1",
    "reference": "log-probs under the policy that the run started from",
    "teacher": "log-probs under a teacher's policy",
    "values": "a value head's estimate of the return",
}
"""What each pass finds for every trained token."""
_MISSING = {
    "teacher": "a run has no teacher's policy",
    "values": "the trained model has no value head",
}
"""Why a pass cannot be made."""


def require_passes(part: str, needs: Set[str]) -> None:
    """Raise `ConfigError` when `part` needs a pass that does not exist or that cannot be made."""
    for name in sorted(needs):
        if name not in PASSES:
            raise ConfigError(f"{part} needs the unknown pass {name!r}", nearest(name, PASSES))
        if reason := _MISSING.get(name):
            raise ConfigError(f"{part} needs {PASSES[name]} (pass {name!r}), and {reason}", "choose another part")
