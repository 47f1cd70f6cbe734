"""Recalls on a real worker and ledger: who is not wanted stops in mid-response, and goes on from there later."""

import asyncio

import pytest
from msgspec.structs import replace
from scripted_engine import ScriptedEngine
from worker_bench import TOKENIZER, Bench

from quartet.ledger.schema import trajectories
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals, status_counts
from quartet.types import FinishReason, Purpose
from tests.waiting import until

WHOLE = TOKENIZER("click left [1]", add_special_tokens=False)["input_ids"] + [TOKENIZER.eos_token_id]
APRIL = {
    "admission": {"schedule": "batch_synchronous"},
    "straggler": {"name": "april"},
    "train": {"groups_per_batch": 1},
    "control": {"rollouts_per_group": 2},
}


class SlowEngine(ScriptedEngine):
    """Where the script says `slow`, it samples two tokens and then nothing until it is told to stop."""

    version_served = 0

    def __init__(self, tokenizer, script) -> None:
        super().__init__(tokenizer, script)
        self.slow: dict[str, asyncio.Event] = {}

    async def generate(self, request):
        self.requests.append(request)
        known = max(k for k in range(len(WHOLE)) if request.prompt_ids[len(request.prompt_ids) - k :] == WHOLE[:k])
        rest = self.result("click left [1]", version=self.version_served)
        if self.script(request, len(self.requests) - 1) != "slow":
            return rest[known : len(WHOLE)]
        self.slow[request.request_id] = asyncio.Event()
        await self.slow[request.request_id].wait()
        return replace(rest[known : known + 2], finish_reason=FinishReason.ABORT)

    async def abort(self, request_id):
        self.slow.pop(request_id, asyncio.Event()).set()


class Script:
    """`slow` where the test says so: by the request's place in its rollout's conversation."""

    def __init__(self, *calls: str) -> None:
        self.calls = set(calls)

    def __call__(self, request, index):
        return "slow" if request.request_id.split("/", 1)[1] in self.calls else ""


def fill_a_batch(bench: Bench) -> None:
    """What the data manager does when the other group has ended."""
    (group_id,) = bench.ledger.groups.closable(1e9)
    bench.ledger.groups.close(group_id)
    members = [member.rollout_id for member in bench.ledger.groups.load(group_id).members]
    bench.ledger.groups.make_trainable(group_id, members, 1)


def train(bench: Bench) -> None:
    batch = bench.ledger.batches.claim("t", 1, 2, "mask", 60)
    assert batch is not None
    bench.ledger.batches.commit(batch, "p", {})


def served(bench: Bench, version: int) -> None:
    bench.engine.version_served = version
    bench.ledger.policies.mark_settled(version, serving=version)


def attempts(bench: Bench) -> dict[str, int]:
    return run_totals(bench.ledger).attempts


async def test_an_unfinished_rollout_rests_while_a_batch_is_trained_and_goes_on_in_mid_response(tmp_path):
    """Rollout 2 takes three turns and is cut in the second one."""
    bench = Bench(tmp_path, Script("2.1/1"), engine=SlowEngine, sections=APRIL)
    served(bench, 0)
    bench.admit()
    group_id = bench.admit(turns=3)
    async with bench.running():
        await until(lambda: attempts(bench) == {"final": 1} and bench.engine.slow)
        fill_a_batch(bench)
        await until(lambda: attempts(bench) == {"final": 1, "partial": 1})
        await until(lambda: bench.waits_for() == ("waiting", "the next policy"))
        assert bench.ledger.statistics.queue_sizes().rollouts == {"queued": 1, "leased": 0}
        train(bench)
        await asyncio.sleep(0.05)
        assert bench.ledger.statistics.queue_sizes().rollouts["queued"] == 1, "the engine does not serve it yet"
        served(bench, 1)
        await until(lambda: attempts(bench) == {"final": 2, "partial": 1})
    (member,) = bench.ledger.groups.load(group_id).members
    calls = member.trajectory.calls
    assert [call.response_ids for call in calls] == [WHOLE] * 3
    old = len(WHOLE)
    assert [call.response.versions for call in calls] == [[0] * old, [0] * 2 + [1] * (old - 2), [1] * old]
    assert (member.trajectory.reward, len(member.trajectory.turns)) == (1.0, 3)
    asked = [request.request_id.split("/", 1)[1] for request in bench.engine.requests]
    assert sorted(asked) == ["1.1/0", "2.1/0", "2.1/1", "2.2/1", "2.2/2"], "the first turn was not sampled again"
    assert check_ledger(bench.ledger, max_lag=2).findings == []


async def test_a_rollout_that_is_recalled_too_often_is_evicted(tmp_path):
    straggler = {"straggler": {"name": "april", "max_recycles": 0}}
    bench = Bench(tmp_path, Script("2.1/0"), engine=SlowEngine, sections=APRIL | straggler)
    served(bench, 0)
    bench.admit()
    bench.admit()
    async with bench.running():
        await until(lambda: attempts(bench) == {"final": 1} and bench.engine.slow)
        fill_a_batch(bench)
        await until(lambda: attempts(bench) == {"final": 1, "evicted": 1})
    assert status_counts(bench.ledger) == {"cancelled": 1, "completed": 1}


async def test_an_evaluation_goes_on_while_training_rests(tmp_path):
    bench = Bench(tmp_path, Script("1.1/0"), engine=SlowEngine, sections=APRIL)
    served(bench, 0)
    bench.admit(purpose=Purpose.EVAL)
    bench.admit()
    async with bench.running():
        await until(lambda: attempts(bench) == {"final": 1} and bench.engine.slow)
        fill_a_batch(bench)
        bench.admit(purpose=Purpose.EVAL)
        await until(lambda: status_counts(bench.ledger) == {"completed": 2})
        assert [name.partition("/")[2] for name in bench.engine.slow] == ["1.1/0"]


async def test_rollouts_of_a_closed_group_release_their_sessions(tmp_path):
    """Three sessions, two of them with rollouts that nobody waits for any more."""
    bench = Bench(tmp_path, Script("2.1/0", "3.1/0"), engine=SlowEngine)
    group_id = bench.admit(rollouts=3, enough=1)
    async with bench.running():
        await until(lambda: attempts(bench) == {"final": 1} and len(bench.engine.slow) == 2)
        assert bench.ledger.groups.closable(1e9) == [group_id]
        bench.ledger.groups.close(group_id)
        await until(lambda: attempts(bench) == {"final": 1, "late": 2})
        bench.admit(rollouts=3)
        await until(lambda: attempts(bench).get("final") == 4)
    with bench.ledger.read() as connection:
        late = connection.execute(trajectories.select().where(trajectories.c.kind == "late")).all()
    assert [(row.status, row.response_tokens, row.counted) for row in late] == [("cancelled", 2, False)] * 2


@pytest.mark.parametrize("rule", ["none", "redundancy", "early_stop"])
async def test_only_april_pauses_rollouts_while_a_batch_is_full(tmp_path, rule):
    sections = APRIL | {"straggler": {"name": rule}}
    bench = Bench(tmp_path, Script(), engine=SlowEngine, sections=sections)
    bench.admit()
    async with bench.running():
        await until(lambda: attempts(bench) == {"final": 1})
        fill_a_batch(bench)
        bench.admit()
        await until(lambda: attempts(bench) == {"final": 2})
