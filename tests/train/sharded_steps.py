"""Train steps of several gloo processes, which are forks of the process that calls `main` or `resume`."""

import copy
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors.torch import save_file
from seeing import Seeing, mixed_groups
from tiny_batches import make_batch, make_call, make_trajectory
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from quartet.config import Recipe
from quartet.errors import LedgerError, QuartetError
from quartet.free_port import free_port
from quartet.policy.frozen_tower import freeze_tower
from quartet.policy.lora import add_adapter
from quartet.policy.make_vision import make_vision_policy
from quartet.recipe.file import parse_recipe
from quartet.train.assign import credits_of
from quartet.train.checkpoint.files import (
    RANDOM_STATE,
    load_checkpoint,
    state_tensors,
    take_snapshot,
    write_checkpoint,
)
from quartet.train.packing.sight import Sight
from quartet.train.ranks.base import RankLostError, Ranks, whole
from quartet.train.ranks.fsdp import ShardingRanks, Timeouts
from quartet.train.ranks.orders import GatherWeights, Train
from quartet.train.step import Learner, NonFiniteError
from quartet.train.token_record import TokenRecord
from quartet.train.train_batch import train_batch
from quartet.types import Batch, Trajectory

TIMEOUT_SECONDS = 30.0
ACTOR_CRITIC = {
    "terms": ["ppo_clip", {"name": "value", "weight": 0.5}, {"name": "entropy", "weight": 0.01}],
    "aggregation": "sequence_mean",
}
OVER_MINIBATCH = {
    "terms": [{"name": "clip_cov", "cov_share": 0.1, "cov_low": 0.1}, "dpo", {"name": "kl", "weight": 0.1}]
}


@dataclass(frozen=True)
class Case:
    """A recipe, and groups to train on, twice."""

    groups: Callable[[], list[list[Trajectory]]]
    sections: Mapping[str, Any] = field(default_factory=dict)
    packed: bool = True
    kind: str = ""
    """Architecture of a model that reads pictures; empty for a model that reads only text."""


def groups(seed: int = 0, *, count: int = 3, members: int = 4, turns: int = 3) -> list[list[Trajectory]]:
    """Return groups of rollouts of several lengths, whose first prompts are equal within a group."""
    random = np.random.default_rng(seed)

    def ids(length: int) -> list[int]:
        return random.integers(0, 50, length).tolist()

    def member(prompt: list[int], reward: float) -> Trajectory:
        prompts = [prompt, *(ids(int(random.integers(3, 30))) for _ in range(random.integers(0, turns)))]
        return make_trajectory([make_call(each, ids(int(random.integers(1, 6)))) for each in prompts], reward)

    return [[member(prompt, float(i % 3 == 0)) for i in range(members)] for prompt in (ids(9) for _ in range(count))]


CASES = {
    "several_minibatches_and_epochs": Case(
        groups, {"train": {"minibatches": 2, "epochs": 2, "max_tokens_per_microbatch": 64}}
    ),
    "value_head_and_entropies": Case(
        groups,
        {
            "credit": "gae",
            "loss": ACTOR_CRITIC,
            "train": {"min_turn_entropy_percentile": 20, "max_tokens_per_microbatch": 50},
        },
    ),
    "terms_over_the_minibatch_and_a_moving_reference": Case(
        groups,
        {
            "loss": OVER_MINIBATCH,
            "reference": {"train_steps_per_move": 1, "move_share": 0.5},
            "train": {"max_tokens_per_microbatch": 90},
        },
    ),
    "fewer_rows_than_ranks": Case(
        lambda: groups(count=1, members=2, turns=1),
        {"loss": ACTOR_CRITIC, "credit": "reinforce", "critic": "head_with_gradient"},
    ),
    "an_adapter_whose_base_is_the_reference": Case(
        groups, {"lora": {"rank": 6}, "loss": OVER_MINIBATCH, "train": {"max_tokens_per_microbatch": 90}}
    ),
    "a_critic_of_its_own": Case(
        groups, {"credit": "gae", "critic": "model", "loss": ACTOR_CRITIC, "train": {"max_tokens_per_microbatch": 64}}
    ),
    "fewer_rows_than_ranks_and_a_critic_of_its_own": Case(
        lambda: groups(count=1, members=2, turns=1),
        {"loss": ACTOR_CRITIC, "credit": "reinforce", "critic": {"name": "model", "warmup_steps": 1}},
    ),
    "one_row_per_branch": Case(
        groups, {"train": {"max_tokens_per_microbatch": 128, "activation_checkpointing": True}}, packed=False
    ),
}


@cache
def seeing(kind: str) -> Seeing:
    """Return a model that reads pictures. Called first before the ranks start: transformers saves only on rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        policy = make_vision_policy(["red green"], folder, kind=kind, hidden_size=32, seed=0)
    assert policy.pictures is not None
    return Seeing(policy.model, policy.pictures)


def groups_with_pictures(kind: str) -> list[list[Trajectory]]:
    """Return groups whose prompts show pictures, groups whose prompts show some or none, and one without pictures."""
    return [*mixed_groups(seeing(kind)), *groups(count=1, members=2)]


def case_with_pictures(kind: str, **sections: Any) -> Case:
    return Case(lambda: groups_with_pictures(kind), sections, kind=kind)


PICTURE_CASES = {
    "a_minibatch_without_pictures": case_with_pictures("qwen3_vl", train={"minibatches": 4}),
    "a_frozen_tower": case_with_pictures(
        "qwen3_vl", model={"path": "none", "freeze_vision": True}, loss=OVER_MINIBATCH
    ),
    "an_adapter_in_the_tower": case_with_pictures("qwen3_vl", lora={"rank": 2}, loss=OVER_MINIBATCH),
    "a_critic_that_reads_pictures_in_some_microbatches": case_with_pictures(
        "qwen2_5_vl",
        credit="gae",
        critic={"name": "model", "warmup_steps": 1},
        loss=ACTOR_CRITIC,
        train={"max_tokens_per_microbatch": 50},
    ),
}
"""Cases of models that read pictures. Every rank holds the vision tower whole."""

SAVED_CASES = (
    "value_head_and_entropies",
    "terms_over_the_minibatch_and_a_moving_reference",
    "an_adapter_whose_base_is_the_reference",
    "a_critic_of_its_own",
    "a_minibatch_without_pictures",
)
"""Cases whose checkpoints hold a whole critic, the sharded weights of a reference, the sharded factors of an adapter,
a critic that is sharded in part, and a whole vision tower."""
ALL_CASES = CASES | PICTURE_CASES


def recipe_of(case: Case) -> Recipe:
    train = {"learning_rate": 1e-3, **case.sections.get("train", {})}
    base = {"name": "test", "model": {"path": "none"}, "env": {"name": "bandit"}, "engine": {"max_context_tokens": 50}}
    return parse_recipe(base | {"filters": []} | dict(case.sections) | {"train": train}, source="test")


def model_of_odd_sizes(seed: int) -> Qwen3ForCausalLM:
    """Return a model with 50 and 6 rows in its matrices: 4 ranks have shards of 13, 11, 2 and 0 rows."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 12, "intermediate_size": 9, "num_hidden_layers": 2, "head_dim": 6, "vocab_size": 50}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, max_position_embeddings=512, initializer_range=0.2)).eval()


def learner_of(case: Case, ranks: Ranks, seed: int = 0) -> Learner:
    recipe = recipe_of(case)
    model, reference = model_of(case, seed), model_of(case, seed + 1)
    without = freeze_tower(model) if recipe.model.freeze_vision else None
    if recipe.lora.rank:
        add_adapter(model, recipe.lora, "base", seed, without=without)
    frozen = {} if recipe.lora.rank else {"reference": reference}
    learner = Learner(model, recipe, frozen, sight_of(case, recipe), ranks)
    learner.scorer.packed = case.packed
    return learner


def model_of(case: Case, seed: int) -> PreTrainedModel:
    return seeing_model(case.kind, seed) if case.kind else model_of_odd_sizes(seed)


def seeing_model(kind: str, seed: int) -> PreTrainedModel:
    """Return a model with weights large enough for pictures to matter."""
    torch.manual_seed(seed)
    model = copy.deepcopy(seeing(kind).model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0 * torch.rand_like(parameter))
    return model


def sight_of(case: Case, recipe: Recipe) -> Sight | None:
    if not case.kind:
        return None
    shown = seeing(case.kind)
    return Sight(shown.processor, shown.load, max_kept_bytes=2**20 if recipe.model.freeze_vision else 0)


def train(case: Case, ranks: Ranks) -> tuple[Learner, dict[str, torch.Tensor]]:
    """Train twice; return the learner and its metrics, token values, weights and moments, whole."""
    learner, batch = learner_of(case, ranks), make_batch(case.groups())
    recipe = learner.recipe
    found: dict[str, torch.Tensor] = {}
    for step in (1, 2):
        record = TokenRecord(batch)
        _, metrics = step_of(batch, learner, recipe, record)
        calls = sorted(record.calls(), key=lambda call: (call.rollout_id, call.call_index))
        found[f"old log-probs {step}"] = torch.frombuffer(
            bytearray(b"".join(call.logprobs for call in calls)), dtype=torch.float16
        ).clone()
        found |= {f"{name} {step}": torch.tensor(float(value)) for name, value in metrics.items()}
    for name, parameter in learner.parameters.items():
        found[name] = whole(parameter.detach())
        for entry, value in learner.optimizer.state[parameter].items():
            found[f"{name}/{entry}"] = whole(value)
    return learner, {name: value.clone().contiguous() for name, value in found.items()}


def step_of(batch: Batch, learner: Learner, recipe: Recipe, record: TokenRecord | None = None) -> Any:
    """Train on a batch; all ranks but the first get it from there."""
    if learner.ranks.rank:
        encode = msgspec.msgpack.encode  # a log-prob that is not a number differs from itself
        assert encode(learner.ranks.receive()) == encode(Train(batch)), "the batch arrives as it was sent"
    credits = credits_of(recipe)
    return train_batch(
        batch, learner, recipe, credits, progress=lambda: None, phases=lambda phase: nullcontext(), record=record
    )


def whole_state(learner: Learner) -> dict[str, torch.Tensor]:
    """Return what a checkpoint holds, without the random state of this process."""
    tensors = {name: whole(value.detach()).clone() for name, value in state_tensors(learner).items()}
    return {name: value.contiguous() for name, value in tensors.items() if name != RANDOM_STATE}


def save_beside_training(case: Case, learner: Learner, folder: Path) -> dict[str, torch.Tensor]:
    """Let a thread write a checkpoint while the ranks train on; return the state of the checkpoint."""
    state, snapshot = whole_state(learner), take_snapshot(learner, 2)
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write_checkpoint, folder, snapshot, ranks=learner.ranks)
        step_of(make_batch(case.groups()), learner, learner.recipe)
        writing.result()
    return state


def refuse_infinite_losses(ranks: ShardingRanks) -> None:
    """Train on a log-prob that is not finite: every rank raises the same error, keeps its weights and goes on."""
    calls = [make_call([1, 2], [3, 4], logprobs=[logprob, -1.0]) for logprob in (-1.0, float("nan"))]
    batch = make_batch([[make_trajectory([call], float(place)) for place, call in enumerate(calls)]])
    recipe = recipe_of(CASES["one_row_per_branch"])
    learner = Learner(model_of_odd_sizes(seed=0), recipe, ranks=ranks)
    before = [weights.clone() for weights in learner.whole_weights()]
    for attempt in range(2):
        try:
            step_of(batch, learner, recipe)
        except NonFiniteError as error:
            assert "loss nan" in str(error), attempt
        else:
            raise AssertionError("a loss that is not finite was accepted")
    assert all(torch.equal(a, b) for a, b in zip(before, learner.whole_weights(), strict=True))


def go_on_after_an_error_of_all(ranks: ShardingRanks) -> None:
    """Train on a batch that no rank can pack: every rank raises the error, and the ranks take the next order."""
    recipe = recipe_of(CASES["one_row_per_branch"])
    learner = Learner(model_of_odd_sizes(seed=0), recipe, ranks=ranks)
    unpackable = make_batch([[make_trajectory([make_call([], [1])], reward) for reward in (0.0, 1.0)]])
    try:
        step_of(unpackable, learner, recipe)
    except QuartetError as error:
        assert "empty prompt" in error.what, error
    else:
        raise AssertionError("a call without a prompt was accepted")
    ranks.require_all()
    step_of(make_batch(groups(count=1)), learner, recipe)


def fail_together(ranks: ShardingRanks, error: Exception, reported: type[QuartetError]) -> None:
    """Raise an error in rank 1 alone: the others report it as an error of the type `reported`, and refuse to go on."""
    if ranks.rank:
        assert isinstance(ranks.receive(), GatherWeights)
    try:
        with ranks.together(GatherWeights()):
            if ranks.rank == 1:
                raise error
            ranks.gather(b"")
    except (IndexError, QuartetError) as found:
        if found is error:
            os._exit(0)  # as a process that dies of it
        what = f"rank 1 (of ranks 0 to {ranks.size - 1}) failed: {type(error).__name__}: met by one rank"
        assert (type(found), found.what) == (reported, what), found
    try:
        ranks.require_all()
    except RankLostError:
        ranks.close()
        return
    raise AssertionError("the remaining ranks go on")


@contextmanager
def forked(size: int) -> Iterator[int]:
    """Yield the rank of this process, one of `size` that run the block; each ends after it."""
    torch.set_num_threads(1)
    for case in PICTURE_CASES.values():
        seeing(case.kind)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
    children = []
    rank = 0
    for number in range(1, size):
        child = os.fork()
        if not child:
            rank = number
            break
        children.append(child)
    os.environ["RANK"] = str(rank)
    try:
        yield rank
    except BaseException:  # noqa: BLE001  (a fork must not return into the program)
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    if rank:
        os._exit(0)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


def main(size: int, folder: Path) -> None:
    """Write what each of `size` ranks has after each case, and checkpoints."""
    with forked(size) as rank:
        ranks = ShardingRanks(Timeouts(TIMEOUT_SECONDS, TIMEOUT_SECONDS))
        for name, case in ALL_CASES.items():
            learner, found = train(case, ranks)
            parts = [one.to_local() for one in learner.model.parameters() if isinstance(one, DTensor)]
            found["rows of the shards"] = torch.tensor([len(part) for part in parts])
            save_file(found, folder / f"{name}.{rank}.safetensors")
            if name in SAVED_CASES:
                state = save_beside_training(case, learner, folder / f"{name}.checkpoint")
                save_file(state, folder / f"{name}.state.{rank}.safetensors")
        refuse_infinite_losses(ranks)
        go_on_after_an_error_of_all(ranks)
        fail_together(ranks, IndexError("met by one rank"), QuartetError)


def lose_the_ledger(size: int) -> None:
    """Raise an error of the ledger in rank 1 alone, which is not the batch's."""
    with forked(size):
        ranks = ShardingRanks(Timeouts(TIMEOUT_SECONDS, TIMEOUT_SECONDS))
        fail_together(ranks, LedgerError("met by one rank"), RankLostError)


def resume(size: int, folder: Path, saved: int) -> None:
    """Load the checkpoints that `saved` ranks wrote with `size` ranks, and write the whole state of each."""
    with forked(size) as rank:
        ranks = ShardingRanks(Timeouts(TIMEOUT_SECONDS, TIMEOUT_SECONDS))
        for name in SAVED_CASES:
            learner = learner_of(ALL_CASES[name], ranks, seed=5)
            assert load_checkpoint(folder / f"{name}.checkpoint", learner) == 2
            save_file(whole_state(learner), folder / f"{name}.{saved}_to_{size}.{rank}.safetensors")
        ranks.close()
