"""Version, lag and success of each policy of a run."""

from msgspec import Struct

from quartet.ledger import Ledger
from quartet.report.overview import read_overview
from quartet.report.recent import recent_success
from quartet.report.staleness import recent_lag

RECENT_ROLLOUTS = 100
RECENT_TRAIN_STEPS = 8


class PolicyStanding(Struct, frozen=True, kw_only=True):
    """One policy of a run, trained or frozen."""

    name: str
    trained: bool
    version: int
    """Newest version."""
    served_version: int | None
    """Oldest version that an engine samples from; None if no engine has reported one."""
    train_step: int
    mean_lag: float | None
    """Mean lag in train steps over the newest 8 train steps of the policy; None before its first train step."""
    success_recent: float | None
    """Success rate of the policy's newest countable training rollouts (100 at most); None before the first rollout, and
    for a frozen policy."""


def standings(ledger: Ledger) -> list[PolicyStanding]:
    """Return every policy of a run, the trained ones first."""
    return [_standing(ledger.of(policy)) for policy in (*ledger.trained, *ledger.frozen)]


def _standing(ledger: Ledger) -> PolicyStanding:
    newest, trained = ledger.policies.latest(), ledger.policy in ledger.trained
    return PolicyStanding(
        name=ledger.policy,
        trained=trained,
        version=newest.version,
        served_version=min(read_overview(ledger).served_versions.values(), default=None),
        train_step=newest.train_step,
        mean_lag=recent_lag(ledger, RECENT_TRAIN_STEPS),
        # For a frozen policy the ledger would return the success rate of the whole run.
        success_recent=recent_success(ledger, RECENT_ROLLOUTS) if trained else None,
    )
