"""Repeat the training on a run's committed batches, in order, and compare the weights after every step bit for bit.

Training uses the advantages and masks that the trainer stored. They are also computed again from the rewards, and the
computed values must equal the stored ones. If no advantages are stored for a step, it is trained with computed ones.
"""

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from msgspec import structs

from quartet.config import Recipe
from quartet.errors import LedgerError, SetupError
from quartet.ledger import Ledger
from quartet.on_progress import no_progress
from quartet.policy.device import usable_device
from quartet.policy.digest import weights_digest
from quartet.policy.kind.find import load_pictures
from quartet.policy.lora import policy_weights
from quartet.report.audit.policy_receipts import RolloutPart
from quartet.telemetry.receipts import Committing, TrainedMember, trajectory_digest
from quartet.telemetry.token_values import CallValues, assigned, read_token_values
from quartet.train.aggregation import COMPARED
from quartet.train.assign import credits_of, needs_of
from quartet.train.checkpoint.files import load_checkpoint
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch
from quartet.train.frozen import load_frozen
from quartet.train.packing.branches import Branch, countable_members, pack_batch
from quartet.train.packing.sight import sight_of
from quartet.train.publish import published_dtype
from quartet.train.starting_policy import load_starting_policy
from quartet.train.step import Learner
from quartet.train.train_batch import credited, train_batch
from quartet.types import Batch, Call, Group, GroupMember, Trajectory


class Retrace:
    """Weights and optimizer of a run, trained again from its initial policy: each call of `step` trains one batch.

    If this machine lacks the run's device, the CPU trains, and `is_exact` is False, since its numbers differ in their
    last bits.
    """

    def __init__(self, recipe: Recipe, ledger: Ledger, initial: Path) -> None:
        recipe, self.is_exact = _on_this_machine(recipe)
        torch.set_num_threads(recipe.train.threads)
        self._recipe, self._ledger, self._ancestry = recipe, ledger, ledger.policies.ancestry()
        model = load_starting_policy(recipe, ledger.policy, initial).model
        self._credits = credits_of(recipe)
        frozen = load_frozen(recipe, self._credits, initial)
        self._learner = Learner(model, recipe, frozen, sight_of(load_pictures(initial), ledger, recipe))
        self.over_lag = 0
        """Number of tokens trained so far that were older than `admission.max_lag` allows."""

    @property
    def weights(self) -> str:
        """Digest of the current weights as they are published."""
        return weights_digest(policy_weights(self._learner.model), published_dtype(self._recipe))

    def step(self, receipt: Committing) -> bool:
        """Train the batch of a receipt. Return False if its stored advantages differ from newly computed ones. They are
        not compared if they depend on inexact numbers.

        Raise `LedgerError` if the ledger's records differ from the receipt, or if a group has no stored advantages
        although other groups of the batch have them.
        """
        batch = self._batch(receipt)
        max_lag, stored = self._recipe.admission.max_lag, stored_credit(batch, self._ledger.run_dir)
        self.over_lag += tokens_over_lag(batch, max_lag)
        anew = credited(batch, pack_batch(batch, max_lag), self._learner, self._credits, no_progress)
        credits = self._credits if stored is None else [stored]
        packed, _ = train_batch(batch, self._learner, self._recipe, credits, progress=no_progress, phases=_no_timer)
        return same_credit(packed.branches, anew.branches) or not (self.is_exact or not needs_of(self._credits))

    def same_optimizer(self, checkpoint: Path) -> bool:
        """Return whether a checkpoint's optimizer state and weights equal the present ones, bit for bit."""
        ours, twin = self._learner, Learner(*copy.deepcopy((self._learner.model, self._recipe, self._learner.frozen)))
        load_checkpoint(checkpoint, twin)
        pairs = list(zip(ours.parameters.values(), twin.parameters.values(), strict=True))
        if not all(torch.equal(one, other) for one, other in pairs):
            return False
        states = [(ours.optimizer.state.get(one, {}), twin.optimizer.state.get(other, {})) for one, other in pairs]
        return ours.optimizer_step == twin.optimizer_step and all(
            one.keys() == other.keys() and all(torch.equal(one[entry], other[entry]) for entry in one)
            for one, other in states
        )

    def _batch(self, receipt: Committing) -> Batch:
        groups: list[Group] = []
        for group in receipt.groups:
            members = [self._member(member) for member in group.members]
            groups.append(Group(group_id=group.group_id, task=members[0].trajectory.task, members=members))
        return Batch(
            batch_id=receipt.batch_id,
            attempt=1,
            train_step=receipt.train_step,
            start_version=receipt.start_version,
            groups=groups,
            ancestry=self._ancestry,
        )

    def _member(self, member: TrainedMember) -> GroupMember:
        trajectory = self._ledger.trajectories.load_final(member.rollout_id, member.part)
        if trajectory is None or trajectory_digest(trajectory) != member.digest:
            raise LedgerError(
                f"{RolloutPart(member.rollout_id, member.part)} is not stored, or differs from the trained trajectory"
            )
        return GroupMember(rollout_id=member.rollout_id, trajectory=trajectory, replay=member.replay)


def _on_this_machine(recipe: Recipe) -> tuple[Recipe, bool]:
    """Return the recipe with a device that this machine has, and whether it is the recipe's own device."""
    try:
        usable_device(recipe.train.device, "train.device")
    except SetupError:
        train = recipe.train.model_copy(update={"device": "cpu", "offload_optimizer": False})
        return recipe.model_copy(update={"train": train}), False
    return recipe, True


def stored_credit(batch: Batch, run_dir: Path) -> "StoredCredit | None":
    """Return the stored credit of a batch, or None.

    The result is None if the file was deleted because of `disk.max_token_values_megabytes`, or if the step was trained
    by an older Quartet, which stored only log-probs.
    """
    calls = read_token_values(run_dir, batch.train_step, batch.batch_id)
    if calls is None or any(call.group_id is None for call in calls):
        return None
    return StoredCredit(batch, calls)


class StoredCredit(Credit):
    """Credit (advantages, returns, masks) that the trainer assigned to a batch, read from the batch's file."""

    def __init__(self, batch: Batch, calls: Sequence[CallValues]) -> None:
        super().__init__(None)
        self._calls = {(call.group_id, call.rollout_id, call.part, call.call_index): call for call in calls}
        members = list(countable_members(batch))
        self._owners_N = [
            (batch.groups[group].group_id, member.rollout_id, member.trajectory.part)
            for group, member in members
            if member.use in COMPARED
        ]
        with_calls = {batch.groups[group].group_id for group, member in members if member.trajectory.calls}
        if foreign := with_calls - {call.group_id for call in calls}:
            raise LedgerError(f"train step {batch.train_step} stored no advantages for the groups {sorted(foreign)}")

    def assign(self, batch: CreditBatch) -> None:
        ends = np.searchsorted(batch.calls_T, np.arange(len(batch.calls) + 1))
        first_calls_N = (np.cumsum(batch.num_calls_N) - batch.num_calls_N).tolist()
        batch.mask_T[:] = False
        for call, member in enumerate(batch.members_C.tolist()):
            stored = self._calls.get((*self._owners_N[member], call - first_calls_N[member]))
            if stored is not None and stored.advantages:
                of_call = slice(ends[call], ends[call + 1])
                batch.mask_T[of_call] = stored.trained
                batch.advantages_T[of_call] = assigned(stored.advantages, stored.trained)
                batch.returns_T[of_call] = assigned(stored.returns, stored.trained)


def same_credit(branches: Sequence[Branch], others: Sequence[Branch]) -> bool:
    """Return whether two packings of a batch train the same tokens with bit-equal advantages and returns."""
    return len(branches) == len(others) and all(
        one.trajectory_index == other.trajectory_index
        and np.array_equal(one.trained_L, other.trained_L)
        and np.array_equal(one.advantages_L[one.trained_L], other.advantages_L[one.trained_L])
        and np.array_equal(one.returns_L[one.trained_L], other.returns_L[one.trained_L], equal_nan=True)
        for one, other in zip(branches, others, strict=True)
    )


def tokens_over_lag(batch: Batch, max_lag: int) -> int:
    """Return the number of trained tokens with a lag above `max_lag` train steps, in fresh members.

    The trainer's packing selects the trained tokens, but its handling of versions is not trusted. Therefore each
    token's lag is put in the place of its log-prob, which the packing only copies.
    """
    labelled = structs.replace(batch, groups=[_labelled(batch, group) for group in batch.groups])
    branches = pack_batch(labelled, max_lag).branches
    return sum(int((branch.rollout_logprobs_L[branch.trained_L] > max_lag).sum()) for branch in branches)


def _labelled(batch: Batch, group: Group) -> Group:
    fresh = [member for member in group.members if member.replay is None]
    members = [structs.replace(member, trajectory=_lags_as_logprobs(batch, member.trajectory)) for member in fresh]
    return structs.replace(group, members=members)


def _lags_as_logprobs(batch: Batch, trajectory: Trajectory) -> Trajectory:
    def labelled(call: Call) -> Call:
        lags = [float(lag) for lag in batch.ancestry.lags(call.response.versions, batch.start_version)]
        response = structs.replace(call.response, logprobs=lags)
        return structs.replace(call, response=response, train_prompt_ids=[])  # else log-probs would not be copied

    return structs.replace(trajectory, calls=[labelled(call) for call in trajectory.calls])


def _no_timer(phase: str) -> nullcontext[None]:
    return nullcontext()
