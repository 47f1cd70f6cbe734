"""A trainer of several processes, which share its weights by FSDP2, computes what one process computes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from sharded_steps import (
    ALL_CASES,
    CASES,
    PICTURE_CASES,
    SAVED_CASES,
    learner_of,
    lose_the_ledger,
    main,
    resume,
    train,
    whole_state,
)
from tiny_batches import make_batch, make_call, make_trajectory, pack

from quartet.config import Runtime
from quartet.errors import CheckpointError, QuartetError
from quartet.train.checkpoint.files import load_checkpoint
from quartet.train.packing.rows import in_chunks, own_chunks, share_prompts
from quartet.train.ranks.base import Ranks
from quartet.train.ranks.fsdp import exchange_timeouts, is_of_a_connection, is_shared
from tests.warm_process import run_warm

SIZES = [pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.campaign)]


@pytest.fixture(scope="session")
def trained(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[[int], Path]:
    """Return the folder of what so many gloo processes computed: `(processes)`."""
    return lambda size: made_once(f"ranks-{size}", lambda folder: run_ranks(folder, main, size, folder))


def run_ranks(folder: Path, function: Callable[..., None], *arguments: object) -> None:
    folder.mkdir(exist_ok=True)
    assert run_warm(folder / "log", function, *arguments) == 0, (folder / "log").read_text()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_several_processes_give_the_losses_and_weights_of_one(
    trained: Callable[[int], Path], name: str, size: int
) -> None:
    """Metrics, old log-probs, weights and moments after two train steps; all ranks know the same.

    Adam divides a gradient by its own size: rounding in the sum of a gradient near zero moves a weight by some per cent
    of the learning rate (1e-3), while the gradient's moments agree to 1e-5.
    """
    _, alone = train(CASES[name], Ranks())
    for rank in range(size):
        found = load_file(trained(size) / f"{name}.{rank}.safetensors")
        shards = found.pop("rows of the shards").tolist()
        assert (0 in shards) == (size == 4 and rank == 3), "shards are uneven, and with 4 ranks some are empty"
        require_equal(found, alone)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PICTURE_CASES)
def test_rows_with_and_without_pictures_are_trained_by_several_processes(
    trained: Callable[[int], Path], name: str, size: int
) -> None:
    """Also if a rank, or a whole minibatch, has no picture, so that the vision tower has no gradient there."""
    learner, alone = train(PICTURE_CASES[name], Ranks())
    tower = [key for key in alone if "visual" in key]
    assert any(key.endswith("/exp_avg") and alone[key].abs().max() > 0 for key in tower) != (name == "a_frozen_tower")
    for rank in range(size):
        found = load_file(trained(size) / f"{name}.{rank}.safetensors")
        assert found.pop("rows of the shards").numel() == sum(
            "visual" not in key for key, _ in learner.model.named_parameters()
        ), "the decoder is sharded, and the tower is whole"
        require_equal(found, alone)


def require_equal(found: dict[str, torch.Tensor], alone: dict[str, torch.Tensor]) -> None:
    assert found.keys() == alone.keys()
    for key in alone.keys() - {"computed_tokens 1", "computed_tokens 2"}:  # they count padding
        atol = 5e-5 if f"{key}/exp_avg" in alone else 1e-5
        torch.testing.assert_close(found[key], alone[key], atol=atol, rtol=1e-5, equal_nan=True, msg=key)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SAVED_CASES)
def test_one_process_resumes_from_the_shards_of_several(trained: Callable[[int], Path], name: str, size: int) -> None:
    """The shards were written by a thread of each rank, while the ranks trained on."""
    saved = load_file(trained(size) / f"{name}.state.0.safetensors")
    files = {file.name for file in (trained(size) / f"{name}.checkpoint").glob("*.safetensors")}
    assert {f"shard-{rank:05d}-model-00001-of-00001.safetensors" for rank in range(1, size)} <= files
    learner = learner_of(ALL_CASES[name], Ranks(), seed=5)
    assert load_checkpoint(trained(size) / f"{name}.checkpoint", learner) == 2
    assert equal(whole_state(learner), saved)


@pytest.mark.parametrize(("saved", "resumed"), [(2, 4), (4, 2)])
@pytest.mark.campaign
def test_several_processes_resume_from_the_shards_of_another_number(
    trained: Callable[[int], Path], saved: int, resumed: int
) -> None:
    folder = trained(saved)
    run_ranks(folder, resume, resumed, folder, saved)
    for name in SAVED_CASES:
        state = load_file(folder / f"{name}.state.0.safetensors")
        for rank in range(resumed):
            assert equal(load_file(folder / f"{name}.{saved}_to_{resumed}.{rank}.safetensors"), state)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_damaged_shard_is_refused_by_name(trained: Callable[[int], Path], tmp_path: Path, damage: str) -> None:
    name = SAVED_CASES[0]
    shutil.copytree(trained(2) / f"{name}.checkpoint", tmp_path / "checkpoint")
    shard = tmp_path / "checkpoint" / "shard-00002-model-00001-of-00001.safetensors"
    content = shard.read_bytes()
    shard.unlink()
    if damage == "flipped":
        shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=shard.name):
        load_checkpoint(shard.parent, learner_of(CASES[name], Ranks()))


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.slow
def test_an_error_of_the_ledger_in_another_rank_is_not_the_batch_s(tmp_path: Path) -> None:
    run_ranks(tmp_path / "ranks", lose_the_ledger, 2)


class OneOf(Ranks):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_rows_are_dealt_evenly_and_every_rank_makes_equally_many_passes(size: int, packed: bool) -> None:
    lengths = [60, 50, 20, 20, 20, 5, 5]
    members = [make_trajectory([make_call(range(9 * i, 9 * i + n - 1), [1])], float(i)) for i, n in enumerate(lengths)]
    branches = pack(make_batch([members])).branches
    rows = share_prompts(branches, [0.5] * len(branches), share=packed, max_tokens_per_microbatch=60)
    chunks = [own_chunks(rows, OneOf(rank, size), 60, packed=packed) for rank in range(size)]
    assert len({len(own) for own in chunks}) == 1
    dealt = [[row for chunk in own for row in chunk if row.weights != [0.0]] for own in chunks]
    assert sorted(id(row.branches[0]) for own in dealt for row in own) == sorted(id(row.branches[0]) for row in rows)
    empty = [row for own in chunks for chunk in own for row in chunk if row.weights == [0.0]]
    assert not any(branch.num_trained_tokens for row in empty for branch in row.branches)
    assert empty or size < 9
    tokens = [sum(row.num_tokens for row in own) for own in dealt]
    assert max(tokens) - min(tokens) <= max(lengths)
    if size == 1:
        assert chunks[0] == list(in_chunks(rows, 60, packed=packed))


class Told(OneOf):
    """The first of two ranks, which hears `others` from the second in each exchange."""

    def __init__(self, others: bytes) -> None:
        super().__init__(0, 2)
        self.others = others

    def gather(self, data: bytes) -> list[bytes]:
        return [data, self.others]


def test_an_error_of_another_rank_in_a_block_that_should_be_alike_is_raised_here_too() -> None:
    with pytest.raises(QuartetError, match=r"rank 1 .* failed: ValueError: odd"), Told(b"ValueError: odd").alike():
        pass


@pytest.mark.parametrize(("ranks", "shared"), [(Ranks(), False), (Told(b""), False), (Told(b"ValueError: x"), True)])
def test_ranks_go_on_only_after_an_error_that_all_of_them_raised(ranks: Ranks, shared: bool) -> None:
    with pytest.raises(ValueError, match="mine") as found, ranks.alike():
        raise ValueError("mine")
    assert is_shared(found.value) is shared


@pytest.mark.parametrize("heartbeat_seconds", [60.0, 600.0])
def test_the_first_rank_reports_a_silent_one_in_time_and_the_others_outlast_its_wait_for_the_ledger(
    heartbeat_seconds: float,
) -> None:
    runtime = Runtime(heartbeat_timeout_seconds=heartbeat_seconds, ledger_timeout_seconds=60.0)
    timeouts = exchange_timeouts(runtime)
    assert timeouts.first < heartbeat_seconds
    assert timeouts.others > 60.0 and timeouts.others >= timeouts.first


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"), True),
        (RuntimeError("[../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 30000ms for recv"), True),
        (dist.DistNetworkError("the client socket has failed to connect"), True),
        (
            RuntimeError("[enforce fail at gloo/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4"),
            False,
        ),
        (RuntimeError("shape '[2, 3]' is invalid for input of size 5"), False),
        (IndexError("connection"), False),
    ],
)
def test_only_a_closed_connection_or_a_timeout_is_a_lost_rank(error: Exception, lost: bool) -> None:
    assert is_of_a_connection(error) is lost


def test_results_of_one_process_are_merged_without_a_change() -> None:
    columns = {0: torch.rand(3).numpy(), 4: torch.rand(0).numpy()}
    merged = Ranks().merged(columns)
    assert {key: column.tolist() for key, column in merged.items()} == {
        key: column.tolist() for key, column in columns.items()
    }
    assert Ranks().numbers({"a": 1.5, "b": float("inf")}) == [{"a": 1.5, "b": float("inf")}]
