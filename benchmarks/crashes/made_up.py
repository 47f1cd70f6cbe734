"""Artificial trajectories for runs whose processes are killed."""

from quartet.types import MAIN, Call, FinishReason, Sampling, Status, Task, TokenColumns, Trajectory

TASK = Task(env="bandit", family="fixed", seed=0)


def made_up(token: int, *, reward: float, version: int = 0, policy: str = MAIN) -> Trajectory:
    """Return a trajectory of one call whose response begins with `token`."""
    call = Call(
        policy=policy,
        prompt_ids=[1, 2, 3],
        response=TokenColumns(
            token_ids=[token % 500, 7, 8],
            logprobs=[-2.0, -1.0, -0.5],
            versions=[version] * 3,
        ),
        sampling=Sampling(),
        finish_reason=FinishReason.STOP,
    )
    return Trajectory(
        task=TASK,
        status=Status.COMPLETED,
        calls=[call],
        turns=[],
        rewards={"task": reward},
        success=reward > 0,
        policy=policy,
    )
