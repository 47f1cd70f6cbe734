"""Validation of trajectories, when they are appended to the ledger and when they are imported.

An invalid trajectory could make the train step of its batch fail. Each rule checks one field.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec import Struct

from quartet.types import LARGEST_TEMPERATURE, Call, Keyboard, Pointer, Status, TakenAction, Trajectory, Turn
from quartet.types.frame import Place, Point

MAX_ROUNDING_NATS = 1e-3
"""Rounding tolerance for log-probs above 0 and entropies below 0."""
MOST_NATS = 1e4
"""Upper bound of entropies and negative log-probs: no token of probability e^-10000 is ever sampled."""
LARGEST_REWARD = 1e9
"""Bound of a reward's magnitude: its square and the sum of a group's rewards must be finite in float32."""
_SHA256 = re.compile("[0-9a-f]{64}")
LARGEST_VERSION = 10**7
"""Upper bound of policy versions, higher than any run reaches."""
_Found = tuple[str, str, Status]
"""Field within a turn or call, what is wrong with it, and the status of a rollout with this flaw."""


class Flaw(Struct, frozen=True, kw_only=True):
    """A flaw that makes a trajectory unusable for training."""

    field: str
    """Path of the field, for example `calls[0].response.logprobs`."""
    what: str
    status: Status
    """Final status of a rollout with this flaw."""

    def __str__(self) -> str:
        return f"{self.field}: {self.what}"


def find_flaw(trajectory: Trajectory, vocabulary_size: float = math.inf) -> Flaw | None:
    """Return the first flaw, or None. `vocabulary_size` is that of the trajectory's policy, infinite if unknown."""
    return next(_flaws(trajectory, vocabulary_size), None)


def _flaws(trajectory: Trajectory, vocabulary_size: float) -> Iterator[Flaw]:
    for field, reward in (*((f"rewards.{name}", part) for name, part in trajectory.rewards.items()), _sum(trajectory)):
        if not abs(reward) <= LARGEST_REWARD:
            yield _flaw(field, f"{reward:g} is no reward", Status.ERROR_REWARD)
    for index, turn in enumerate(trajectory.turns):
        yield from _within(f"turns[{index}]", _turn_flaws(turn, len(trajectory.calls)))
    keys = Counter((call.policy, call.key) for call in trajectory.calls if call.key)
    for (_, key), count in keys.items():
        if count > 1:
            yield _flaw("calls", f"{count} of them have the key {key!r}", Status.ERROR_AGENT)
    foreign = {call.policy for call in trajectory.calls if call.response.versions} - {trajectory.policy}
    if foreign and trajectory.status.countable:  # an untrained record may hold calls of several policies
        what = f"sampled by {', '.join(map(repr, sorted(foreign)))} in a trajectory of {trajectory.policy!r}"
        yield _flaw("calls", what, Status.ERROR_AGENT)
    for index, call in enumerate(trajectory.calls):
        # The record of an attempt that failed holds the calls of all policies, whose tokenizers may differ.
        of_this_policy = trajectory.status.countable or call.policy == trajectory.policy
        yield from _within(f"calls[{index}]", _call_flaws(call, vocabulary_size if of_this_policy else math.inf))
    if trajectory.status.countable and any(call.media for call in trajectory.calls):
        yield from _picture_flaws(trajectory)
    if (fork := trajectory.parent) and min(fork.rollout_id, fork.call_index) < 0:
        what = f"there is no call {fork.call_index} of a rollout {fork.rollout_id}"
        yield _flaw("parent", what, Status.ERROR_AGENT)
    if not 0 <= trajectory.wall_seconds < math.inf:
        yield _flaw("wall_seconds", f"{trajectory.wall_seconds:g} is no duration", Status.ERROR_AGENT)


def _within(path: str, found: Iterator[_Found]) -> Iterator[Flaw]:
    for field, what, status in found:
        yield _flaw(f"{path}.{field}", what, status)


def _sum(trajectory: Trajectory) -> tuple[str, float]:
    return "rewards", trajectory.reward


def _turn_flaws(turn: Turn, num_calls: int) -> Iterator[_Found]:
    for name, part in turn.rewards.items():
        if not abs(part) <= LARGEST_REWARD:
            yield f"rewards.{name}", f"{part:g} is no reward", Status.ERROR_REWARD
    for index, taken in enumerate(turn.actions):
        if not all(map(math.isfinite, _coordinates(taken))):
            yield f"actions[{index}]", "a place that is no finite number of pixels", Status.ERROR_ENV
    if not 0 <= turn.call_index < num_calls:
        yield "call_index", f"there is no call {turn.call_index}", Status.ERROR_AGENT


def _coordinates(taken: TakenAction) -> Iterator[float]:
    yield from chain(*taken.points)
    places: list[Place] = []
    if isinstance(taken.action, Pointer):
        places = taken.action.places
        yield from taken.action.scrolled
    elif isinstance(taken.action, Keyboard) and taken.action.place:
        places = [taken.action.place]
    for place in places:
        if isinstance(place, Point):
            yield from (place.x, place.y)


def _call_flaws(call: Call, vocabulary_size: float) -> Iterator[_Found]:
    response = call.response
    if call.response_ids and not call.prompt_ids:
        yield "prompt_ids", "a response without a prompt", Status.ERROR_AGENT
    for name, ids in (
        ("prompt_ids", call.prompt_ids),
        ("train_prompt_ids", call.train_prompt_ids),
        ("response.token_ids", response.token_ids),
        *(("response.top_ids", each) for each in response.top_ids),
    ):
        if ids and (min(ids) < 0 or max(ids) >= vocabulary_size):
            strange = next(each for each in ids if not 0 <= each < vocabulary_size)
            yield name, f"{strange} is no token of the policy", Status.ERROR_ENGINE
    for name, versions in (("versions", response.versions), ("cache_versions", response.cache_versions)):
        if versions and (min(versions) < 0 or max(versions) > LARGEST_VERSION):
            strange = next(each for each in versions if not 0 <= each <= LARGEST_VERSION)
            yield f"response.{name}", f"{strange} is no policy version", Status.ERROR_ENGINE
    for name, values, lowest, highest, meaning in (
        ("logprobs", response.logprobs, -MOST_NATS, MAX_ROUNDING_NATS, "no log-prob of a sampled token"),
        *(("top_logprobs", each, -math.inf, MAX_ROUNDING_NATS, "no log-prob") for each in response.top_logprobs),
        ("entropies", response.entropies, -MAX_ROUNDING_NATS, MOST_NATS, "no entropy"),
    ):
        if values and (strange := _outside(values, lowest, highest)) is not None:
            yield f"response.{name}", f"{strange} is {meaning}", Status.ERROR_ENGINE
    if not 0 <= call.borrowed <= len(call.prompt_ids) + len(response):
        yield "borrowed", f"{call.borrowed} is not between 0 and the number of the call's tokens", Status.ERROR_ENGINE
    if not 0 <= call.sampling.temperature <= LARGEST_TEMPERATURE:
        yield "sampling.temperature", f"{call.sampling.temperature} is no temperature", Status.ERROR_ENGINE
    if call.media:
        yield from _media_flaws(call)


def _outside(values: Sequence[float], lowest: float, highest: float) -> float | None:
    """Return the first value that is not in [lowest, highest], NaN included, or None.

    `min` and `max` take a tenth of the time of a loop, but may step over a NaN; a sum with a NaN differs from itself.
    """
    total = sum(values)
    if total == total and min(values) >= lowest and max(values) <= highest:
        return None
    return next((value for value in values if not lowest <= value <= highest), None)


def _media_flaws(call: Call) -> Iterator[_Found]:
    end = 0
    for index, picture in enumerate(call.media):
        start, end_before = picture.offset, end
        end = start + picture.num_placeholders
        if not end_before <= start < end <= len(call.prompt_ids):
            what = f"placeholders {start} to {end - 1} are empty, overlap others, or lie outside of the prompt"
            yield f"media[{index}]", what, Status.ERROR_AGENT
        if not _SHA256.fullmatch(picture.content_hash):
            yield f"media[{index}].content_hash", "no SHA-256 in hex", Status.ERROR_AGENT


def _picture_flaws(trajectory: Trajectory) -> Iterator[Flaw]:
    """Yield pictures of prompts that are in no observation. Only pictures of observations are stored."""
    seen = [turn.observation for turn in trajectory.turns]
    seen += [trajectory.final_observation] if trajectory.final_observation else []
    stored = {hashlib.sha256(one.data).hexdigest() for shown in seen for one in shown.pictures if one.data}
    for number, call in enumerate(trajectory.calls):
        for index, picture in enumerate(call.media):
            if picture.content_hash not in stored:
                field = f"calls[{number}].media[{index}].content_hash"
                yield _flaw(field, "no observation has this picture, so training could not read it", Status.ERROR_AGENT)


def _flaw(field: str, what: str, status: Status) -> Flaw:
    return Flaw(field=field, what=what, status=status)
