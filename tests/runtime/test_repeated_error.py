"""When a run ends because its rollouts all fail with the same error, and when not."""

from pathlib import Path

import pytest

from quartet.errors import RepeatedErrorError, SetupError
from quartet.ledger import Ledger
from quartet.runtime.repeated_error import raise_if_repeated
from quartet.types import Status
from tests.ledger.samples import finish, plan, recipe


@pytest.fixture
def ledger(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "run")
    ledger.policies.register_initial("policy")
    yield ledger
    ledger.close()


def fail(ledger: Ledger, rollouts: int, status: Status = Status.ERROR_ENV) -> None:
    ledger.groups.admit(plan(rollouts=rollouts))
    for lease in ledger.rollouts.claim("worker", rollouts, 60):
        finish(ledger, lease, status=status, max_attempts=1)


def test_the_setting_bounds_the_rollouts_in_a_row(ledger: Ledger) -> None:
    few = recipe(rollout={"max_identical_errors": 9})  # of four sessions
    fail(ledger, 8)
    raise_if_repeated(few, ledger)
    fail(ledger, 1)
    with pytest.raises(
        RepeatedErrorError, match="9 rollouts in a row ended as error_env with the same error: host gone"
    ):
        raise_if_repeated(few, ledger)
    assert str(ledger.stop_reason()).startswith("9 rollouts in a row")


def test_one_death_of_the_environment_ends_all_sessions_and_not_the_run(ledger: Ledger) -> None:
    """A host or a browser that dies ends every session with the same words."""
    many = recipe(env={"sessions": 32}, rollout={"max_identical_errors": 20})
    fail(ledger, 63)
    raise_if_repeated(many, ledger)
    assert ledger.stop_reason() is None
    fail(ledger, 1)
    with pytest.raises(RepeatedErrorError, match="64 rollouts in a row"):
        raise_if_repeated(many, ledger)


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.TRUNCATED_TURNS])
def test_a_rollout_that_is_trained_on_ends_the_row_and_an_engine_s_failure_does_not(
    ledger: Ledger, status: Status
) -> None:
    few = recipe(rollout={"max_identical_errors": 8})
    fail(ledger, 7)
    fail(ledger, 3, Status.ERROR_ENGINE)
    fail(ledger, 1, status)
    fail(ledger, 7)
    raise_if_repeated(few, ledger)
    fail(ledger, 3, Status.ERROR_ENGINE)
    fail(ledger, 1)
    with pytest.raises(RepeatedErrorError, match="8 rollouts in a row"):
        raise_if_repeated(few, ledger)


def test_a_full_disk_is_named_instead_of_the_errors_that_it_causes(ledger: Ledger) -> None:
    full = recipe(rollout={"max_identical_errors": 8}, disk={"min_free_megabytes": 10**9})
    fail(ledger, 8)
    with pytest.raises(SetupError, match=r"only .* MB are free"):
        raise_if_repeated(full, ledger)
    assert ledger.stop_reason() is None, "the run can be resumed"
