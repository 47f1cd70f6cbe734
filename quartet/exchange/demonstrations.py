"""Import of demonstrations: check the successes in a file, render them to tokens, and put them into the success
pool."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from quartet.config import Recipe
from quartet.env import suite_families, train_tasks, undemonstrated_families
from quartet.env.opening import opening
from quartet.errors import ConfigError
from quartet.exchange.chat import read_chat_trajectories
from quartet.exchange.fingerprint import Fingerprint, settle_fingerprint
from quartet.exchange.jsonl import read_jsonl
from quartet.exchange.parquet import read_parquet
from quartet.ledger import Ledger
from quartet.ledger.soundness import find_flaw
from quartet.on_progress import no_progress
from quartet.policy.renderer import Renderer
from quartet.types import ReplayRule, Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")
_Found = tuple[str, Trajectory]
"""Place in the file (`PATH:LINE`), and trajectory."""
_LEFT_OUT = {
    "no_success": "without success",
    "other_task": "of a task that this run never draws",
    "too_long": "longer than engine.max_context_tokens",
    "duplicate": "equal to an earlier line",
}
"""Reason in `ImportSummary.left_out` -> its words in an error."""


class ImportSummary(Struct, frozen=True, kw_only=True):
    """Result of importing a file of demonstrations."""

    file: str
    stored: int
    known: int
    """Number of usable demonstrations that were in the ledger already."""
    left_out: dict[str, int]
    """Number of trajectories that were left out, by reason: `no_success`, `other_task` (a task that this run never
    draws), `too_long` (for the engine's context), `duplicate` (of an earlier line of the file)."""


def settle(recipe: Recipe, ledger: Ledger, on_progress: Callable[[], None] = no_progress) -> None:
    """Record a run's fingerprint and the vocabulary size of each policy, and store the recipe's demonstrations.

    Call this at every start of a run.

    Raise the errors of `store_into`, and `UnusablePolicyError` if no tokenizer of the run can be read.
    """
    for policy in (*ledger.trained, *ledger.frozen):
        _settle_vocabulary(ledger.of(policy), recipe)
    if recipe.replay.demonstrations:
        store_into(ledger, recipe, Path(recipe.replay.demonstrations), on_progress)
    else:
        settle_fingerprint(ledger, recipe, _tokenizer(ledger, recipe))


def store_into(
    ledger: Ledger, recipe: Recipe, path: Path, on_progress: Callable[[], None] = no_progress
) -> ImportSummary:
    """Put the successes of a file into the pool in one transaction, except those that the ledger already has.

    Raise `ConfigError`, which names file, line and field, and store nothing, in these cases: the run has no pool; a
    trajectory cannot be trained on, or is of a task that must not be demonstrated; a trajectory's fingerprint differs
    from the run's; the replay rule is `stored` and log-probs are missing; the file has no usable trajectory.
    """
    if recipe.replay.name == "none":
        raise ConfigError(f"{ledger.run_dir} has no success pool", 'start one with replay.name = "success_pool"')
    tokenizer = _tokenizer(ledger, recipe)
    mark, vocabulary = settle_fingerprint(ledger, recipe, tokenizer), _settle_vocabulary(ledger, recipe)
    usable: list[Trajectory] = []
    left_out: Counter[str] = Counter()
    families, seen = suite_families(recipe.env), set[bytes]()
    num_seeds = dict.fromkeys(families, recipe.control.train_seeds_per_family) | train_tasks(recipe.env, families)
    for where, trajectory in _read(path, recipe, tokenizer, mark):
        on_progress()
        reason = _reason_to_leave_out(trajectory, recipe, num_seeds)
        if reason != "no_success":
            _refuse_unsound(where, trajectory, vocabulary)
            _refuse_forbidden(where, trajectory, recipe)
        if not reason:
            digest = hashlib.sha256(msgspec.msgpack.encode(trajectory)).digest()
            reason = "duplicate" if digest in seen else ""
            seen.add(digest)
        if reason:
            left_out[reason] += 1
        else:
            usable.append(trajectory)
    if not usable:
        counts = ", ".join(f"{count} {_LEFT_OUT[reason]}" for reason, count in left_out.items()) or "it is empty"
        raise ConfigError(
            f"no demonstration in {path} can be used by this run: {counts}",
            "give successes of env.name, of families and seeds that this recipe trains on, that fit in "
            "engine.max_context_tokens",
        )
    stored = ledger.pool.store_demonstrations(usable, recipe.replay.entries_per_task)
    summary = ImportSummary(file=str(path), stored=stored, known=len(usable) - stored, left_out=dict(left_out))
    if stored:
        ledger.event("demonstrations_stored", **msgspec.to_builtins(summary))
    return summary


def _settle_vocabulary(ledger: Ledger, recipe: Recipe) -> int:
    from quartet.policy.tokenizer_files import vocabulary_size

    if (known := ledger.policies.vocabulary_size) is not None:
        return known
    trust = recipe.model.trust_remote_code
    size = _from_policy(ledger, lambda folder: vocabulary_size(folder, trust_remote_code=trust))
    ledger.policies.settle_vocabulary(size)
    return size


def _tokenizer(ledger: Ledger, recipe: Recipe) -> "PreTrainedTokenizerBase":
    from quartet.policy.tokenizer_files import load_tokenizer, set_template_arguments

    trust = recipe.model.trust_remote_code
    tokenizer = _from_policy(ledger, lambda folder: load_tokenizer(folder, trust_remote_code=trust))
    set_template_arguments(tokenizer, recipe.model.template_arguments)
    return tokenizer


def _from_policy(ledger: Ledger, load: Callable[[Path], T]) -> T:
    """Apply `load`, which reads something that all policies of the run share, to the newest undamaged policy's folder.

    Raise `UnusablePolicyError` if all policies are damaged.
    """
    from quartet.policy.files import from_newest_whole

    return from_newest_whole([ledger.run_dir / policy.path for policy in ledger.policies.loadable()], load)


def _read(path: Path, recipe: Recipe, tokenizer: "PreTrainedTokenizerBase", mark: Fingerprint) -> Iterator[_Found]:
    if not path.is_file():
        raise ConfigError(f"no demonstrations at {path}", "set replay.demonstrations to a file, or leave it empty")
    if path.suffix != ".parquet" and _holds_chats(path):
        renderer = Renderer(tokenizer, opening=opening(recipe, tokenizer))
        for number, observation_hash, trajectory in read_chat_trajectories(path, recipe.env.name, renderer):
            where = f"{path}:{number}"
            if observation_hash:
                mark.refuse_other(msgspec.structs.replace(mark, observation_hash=observation_hash), where)
            yield where, trajectory
        return
    for number, record in (read_parquet if path.suffix == ".parquet" else read_jsonl)(path):
        where = f"{path}:{number}"
        mark.refuse_other(record.fingerprint, where)
        yield where, record.trajectory


def _holds_chats(path: Path) -> bool:
    """Return whether a file holds chats: the first line has the field `messages`, which trajectories do not have."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"{}")
    try:
        return "messages" in msgspec.json.decode(first, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a JSON Lines file: {error}", "see docs/exchange.md for the formats"
        ) from error


def _reason_to_leave_out(trajectory: Trajectory, recipe: Recipe, num_seeds: Mapping[str, int]) -> str:
    task = trajectory.task
    if not (trajectory.success and trajectory.status.countable and trajectory.calls):
        return "no_success"
    # Only the sampler `subgoals` draws tasks with parameters; elsewhere their successes could never join a group.
    trained = task.env == recipe.env.name and not task.params
    if not trained or not 0 <= task.seed < num_seeds.get(task.family, 0):
        return "other_task"
    longest = max(len(call.prompt_ids) + len(call.response_ids) for call in trajectory.calls)
    return "too_long" if longest > recipe.engine.max_context_tokens else ""


def _refuse_unsound(where: str, trajectory: Trajectory, vocabulary: int) -> None:
    """Raise `ConfigError` for a trajectory that could make train steps fail."""
    flaw = find_flaw(trajectory, vocabulary)
    if flaw is None and not trajectory.num_response_tokens:
        flaw = "calls: no response token to learn from"
    if flaw is not None:
        raise ConfigError(f"{where}: {flaw}", "fix or remove the line; nothing of the file was stored")


def _refuse_forbidden(where: str, trajectory: Trajectory, recipe: Recipe) -> None:
    """Raise `ConfigError` for a trajectory that would make the run's measurements or its training invalid."""
    task = trajectory.task
    if task.seed >= recipe.evaluation.first_seed:
        raise ConfigError(
            f"{where}: seed {task.seed} of {task.family} is held out for evaluation",
            f"demonstrate seeds below evaluation.first_seed = {recipe.evaluation.first_seed}",
        )
    if task.env == recipe.env.name and task.family in undemonstrated_families(recipe.env):
        raise ConfigError(
            f"{where}: {task.family} may not be demonstrated: it measures learning without demonstrations",
            "remove the lines of this family",
        )
    if any(call.response.has_logprobs and not call.sampling.whole for call in trajectory.calls):
        raise ConfigError(
            f"{where} was sampled greedily or from a truncated distribution, so it has no log-probs to train on",
            "export rollouts of purpose train",
        )
    stored = recipe.replay.demonstration_rule is ReplayRule.STORED
    if stored and not all(call.response.has_logprobs for call in trajectory.calls):
        raise ConfigError(
            f"{where} has no log-probs, which replay.demonstration_rule = 'stored' needs for importance weights",
            "set the rule to 'recompute', or demonstrate with trajectories sampled by a Quartet policy",
        )
