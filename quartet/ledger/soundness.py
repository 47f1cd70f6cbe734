"""Validation of trajectories, when they are appended to the ledger and when they are imported.

An invalid trajectory would fail the train step of any batch that holds it. Each rule checks one field.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec import Struct

from quartet.types import Call, Keyboard, Pointer, Status, TakenAction, Trajectory, Turn
from quartet.types.frame import Place, Point

MAX_ROUNDING_NATS = 1e-3
"""Rounding tolerance for log-probs above 0 and entropies below 0."""
MOST_NATS = 1e4
"""Upper bound of entropies and negative log-probs: no token of probability e^-10000 is ever sampled."""
LARGEST_REWARD = 1e9
"""Bound of a reward's magnitude: its square and the sum of a group's rewards must be finite in float32."""
LARGEST_TEMPERATURE = 1e3
_SHA256 = re.compile("[0-9a-f]{64}")
LARGEST_VERSION = 10**7
"""Upper bound of policy versions; no run trains this many."""


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
        yield from _turn_flaws(f"turns[{index}]", turn, len(trajectory.calls))
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
        yield from _call_flaws(f"calls[{index}]", call, vocabulary_size if of_this_policy else math.inf)
    if trajectory.status.countable and any(call.media for call in trajectory.calls):
        yield from _picture_flaws(trajectory)
    if (fork := trajectory.parent) and min(fork.rollout_id, fork.call_index) < 0:
        what = f"there is no call {fork.call_index} of a rollout {fork.rollout_id}"
        yield _flaw("parent", what, Status.ERROR_AGENT)
    if not 0 <= trajectory.wall_seconds < math.inf:
        yield _flaw("wall_seconds", f"{trajectory.wall_seconds:g} is no duration", Status.ERROR_AGENT)


def _sum(trajectory: Trajectory) -> tuple[str, float]:
    return "rewards", trajectory.reward


def _turn_flaws(field: str, turn: Turn, num_calls: int) -> Iterator[Flaw]:
    for name, part in turn.rewards.items():
        if not abs(part) <= LARGEST_REWARD:
            yield _flaw(f"{field}.rewards.{name}", f"{part:g} is no reward", Status.ERROR_REWARD)
    for index, taken in enumerate(turn.actions):
        if not all(map(math.isfinite, _coordinates(taken))):
            what = "a place that is no finite number of pixels"
            yield _flaw(f"{field}.actions[{index}]", what, Status.ERROR_ENV)
    if not 0 <= turn.call_index < num_calls:
        yield _flaw(f"{field}.call_index", f"there is no call {turn.call_index}", Status.ERROR_AGENT)


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


def _call_flaws(field: str, call: Call, vocabulary_size: float) -> Iterator[Flaw]:
    if call.response_ids and not call.prompt_ids:
        yield _flaw(f"{field}.prompt_ids", "a response without a prompt", Status.ERROR_AGENT)
    ranges: tuple[tuple[str, Sequence[float], float, float, str], ...] = (
        ("prompt_ids", call.prompt_ids, 0, vocabulary_size - 1, "no token of the policy"),
        ("train_prompt_ids", call.train_prompt_ids, 0, vocabulary_size - 1, "no token of the policy"),
        ("response.top_ids", list(chain(*call.response.top_ids)), 0, vocabulary_size - 1, "no token of the policy"),
        ("response.token_ids", call.response_ids, 0, vocabulary_size - 1, "no token of the policy"),
        ("response.logprobs", call.response.logprobs, -MOST_NATS, MAX_ROUNDING_NATS, "no log-prob of a sampled token"),
        ("response.top_logprobs", list(chain(*call.response.top_logprobs)), -math.inf, MAX_ROUNDING_NATS, "none"),
        ("response.entropies", call.response.entropies, -MAX_ROUNDING_NATS, MOST_NATS, "no entropy"),
        ("response.versions", call.response.versions, 0, LARGEST_VERSION, "no policy version"),
        ("response.cache_versions", call.response.cache_versions, 0, LARGEST_VERSION, "no policy version"),
    )
    for name, values, lowest, highest, meaning in ranges:
        if values and (strange := _outside(values, lowest, highest)) is not None:
            yield _flaw(f"{field}.{name}", f"{strange} is {meaning}", Status.ERROR_ENGINE)
    if not 0 <= call.borrowed <= len(call.prompt_ids) + len(call.response):
        yield _flaw(f"{field}.borrowed", f"{call.borrowed} is no number of the call's tokens", Status.ERROR_ENGINE)
    if not 0 <= call.sampling.temperature <= LARGEST_TEMPERATURE:
        what = f"{call.sampling.temperature} is no temperature"
        yield _flaw(f"{field}.sampling.temperature", what, Status.ERROR_ENGINE)
    if call.media:
        yield from _media_flaws(field, call)


def _outside(values: Sequence[float], lowest: float, highest: float) -> float | None:
    """Return the first value that is not in [lowest, highest], NaN included, or None.

    `min` and `max` take a tenth of the time of a loop, but may step over a NaN; a sum with a NaN differs from itself.
    """
    total = sum(values)
    if total == total and min(values) >= lowest and max(values) <= highest:
        return None
    return next((value for value in values if not lowest <= value <= highest), None)


def _media_flaws(field: str, call: Call) -> Iterator[Flaw]:
    end = 0
    for index, picture in enumerate(call.media):
        start, end_before = picture.offset, end
        end = start + picture.num_placeholders
        if not end_before <= start < end <= len(call.prompt_ids):
            what = f"placeholders {start} to {end - 1} overlap or are none of the prompt"
            yield _flaw(f"{field}.media[{index}]", what, Status.ERROR_AGENT)
        if not _SHA256.fullmatch(picture.content_hash):
            yield _flaw(f"{field}.media[{index}].content_hash", "no SHA-256 in hex", Status.ERROR_AGENT)


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
