"""End of training after a number of train steps or rollouts, at a target success, or after a time. A train step in
progress is finished first."""

import re
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType

from quartet.config import Train
from quartet.ledger import Ledger
from quartet.types import GroupState

AMOUNTS: dict[str, Callable[[Ledger], float]] = {
    "max_train_steps": lambda ledger: ledger.batches.least_train_step(),
    "target_success": lambda ledger: ledger.policies.highest_success() or 0.0,
    "max_seconds": lambda ledger: float(ledger.value("training_seconds", 0.0)),
    "max_rollouts": lambda ledger: ledger.rollouts.queued_for_training(),
}
"""Settings that limit training, each with the amount of training so far in its unit. `max_rollouts` is the last, since
training continues for a while after it is reached."""


def reached_limit(train: Train, ledger: Ledger) -> str | None:
    """Return the limit that ends training, for example `train.max_train_steps = 10`, or None."""
    limits = {name: getattr(train, name) for name in AMOUNTS}
    reached = (
        f"train.{name} = {_shown(limit)}"
        for name, limit in limits.items()
        if limit is not None and AMOUNTS[name](ledger) >= limit
    )
    return next(reached, None)


def training_so_far(ledger: Ledger) -> dict[str, float]:
    """Return the amount of training so far for each limit of `AMOUNTS`."""
    return {name: amount(ledger) for name, amount in AMOUNTS.items()}


def higher_limit(reason: str, amounts: Mapping[str, float]) -> str:
    """Return the option that raises the limit named in the stop reason `reason`; empty if no limit ended the run.

    `amounts` comes from `training_so_far`. The option doubles the limit, or its amount of training so far if that is
    larger. Of a target success it halves the distance to 1; if the success is 1, the option removes the target.
    """
    found = re.match(rf"train\.({'|'.join(AMOUNTS)}) = (\S+)", reason)
    if found is None:
        return ""
    name, limit = found[1], max(float(found[2]), amounts.get(found[1], 0.0))
    if name == "target_success":
        return f"--set train.{name}={_shown((1 + limit) / 2) if limit < 1 else 'null'}"
    return f"--set train.{name}={_shown(2 * limit if name == 'max_seconds' else int(2 * limit))}"


def resume_command(run: str, reason: str = "", amounts: Mapping[str, float] = MappingProxyType({})) -> str:
    """Return the command that resumes the run in folder `run`; if a limit ended the run, it raises that limit."""
    again = f"quartet train {shlex.quote(f'{run}/config.toml')} --run-dir {shlex.quote(run)} --resume"
    return f"{again} {higher_limit(reason, amounts)}".rstrip()


class StopRule:
    """Rule that ends training through the ledger: it first stops further claims of batches, then requests the stop."""

    def __init__(self, train: Train, ledger: Ledger) -> None:
        self._train, self._ledger = train, ledger
        # The ledger rejects claims after the last step, so that the trainer cannot exceed the limit between two ticks.
        ledger.batches.limit_train_steps(train.max_train_steps)

    def ending(self, train_step: int) -> bool:
        """Return whether training is over or ending. `train_step` is the last committed one."""
        if self._ledger.stop_reason() is not None:
            return True
        limit = reached_limit(self._train, self._ledger)
        if limit is None or (limit.startswith("train.max_rollouts") and self._may_fill_a_batch()):
            return False
        if train_step >= self._train.max_train_steps or self._ledger.batches.stop_claims():
            self._ledger.request_stop(f"{limit} reached")
        return True

    def _may_fill_a_batch(self) -> bool:
        """Return whether a policy may train on groups that have started: some are unfinished, or they fill a batch."""
        training = [one for one in self._ledger.each() if one.batches.train_step() < self._train.max_train_steps]
        sizes = [one.statistics.groups_by_state() for one in training]
        unfinished = any(one[state] for one in sizes for state in (GroupState.OPEN, GroupState.CLOSED))
        return unfinished or any(one[GroupState.TRAINABLE] >= self._train.groups_per_batch for one in sizes)


def _shown(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:g}"
