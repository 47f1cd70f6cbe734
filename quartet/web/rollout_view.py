"""Content of a rollout's page, turn by turn, made from the ledger's rows and the stored record."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection
from starlette.requests import Request

from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.pictures import pictures_of
from quartet.ledger.schema import TrajectoryKind
from quartet.report.fates import fate
from quartet.types import Observation, Purpose, Trajectory, Turn
from quartet.web.prompt_view import PromptPicture, prompt_parts
from quartet.web.queries.rollout import RolloutFacts
from quartet.web.queries.tasks import why_dropped
from quartet.web.tokens import Vocabulary, tokens_of
from quartet.web.training import Training, credit_of_group, training_of
from quartet.web.tree import Tree, tree_of
from quartet.web.turn_view import CallView, Line, SeenView, TurnView
from quartet.web.viewed_run import ViewedRun

MOST_TILES, MOST_TILES_OF_ALL, LEAST_TILES = 300, 4000, 20
"""Maximum number of tokens of a response that is shown token by token, and (roughly) of such tokens on a page. A
response of up to `LEAST_TILES` tokens is always shown token by token. A response that is too long is shown as text; the
page of its turn lists its tokens."""
KINDS = {
    TrajectoryKind.FINAL: "the one that counts",
    TrajectoryKind.RETRIED: "an infrastructure error, so it was tried again",
    TrajectoryKind.LATE: "came after its group had closed: stored, but never added to the group",
    TrajectoryKind.SUPERSEDED: "its lease was lost to a later attempt",
    TrajectoryKind.PARTIAL: "was recalled; the next attempt continues from here",
    TrajectoryKind.EVICTED: "was recalled once too often and cancelled",
}
"""Text that explains each kind of stored attempt."""
_REFERENCE = re.compile(r"\[(\d+)\]")


class RolloutView(Struct, frozen=True, kw_only=True):
    """Content of the page of one attempt of a rollout."""

    facts: RolloutFacts
    attempt: Any | None
    """The attempt's row of `trajectories`; None while no attempt is stored."""
    trajectory: Trajectory | None
    problem: str
    """Reason why there is no record to show; empty if there is one."""
    pictures: frozenset[str]
    """Digests of the stored pictures; empty if none was taken, or all were deleted to stay in the disk budget."""
    turns: list[TurnView]
    end: SeenView | None
    """Final observation; None if none was recorded."""
    loose_calls: list[CallView]
    """Calls that belong to no turn: after an infrastructure error, the tokens sampled so far are kept."""
    training: Training
    tree: Tree | None
    """None if no rollout of the group was forked, and on a turn's page."""
    fate: str
    """End of the sentence "It ..." that says whether the rollout was or will be trained on."""

    def picture_addresses(self, request: Request, seen: SeenView) -> list[str]:
        """Return the addresses of those pictures of an observation that are stored."""
        shown = seen.observation.pictures
        places = [place for place, picture in enumerate(shown, 1) if picture.content_hash in self.pictures]
        if self._has_former_pictures and self.pictures and seen is not self.end:
            places = [1]
        return [self._address(request, seen.number, place) for place in places]

    def prompt_picture_address(self, request: Request, picture: PromptPicture) -> str:
        """Return the address of a picture in a prompt; empty if it is not stored."""
        if self.trajectory is None or picture.seen_at is None:
            return ""
        turn, place = picture.seen_at
        shown = self.trajectory.turns[turn - 1].observation.pictures[place - 1]
        return self._address(request, turn, place) if shown.content_hash in self.pictures else ""

    def _address(self, request: Request, turn: int, place: int) -> str:
        assert self.attempt is not None, "a picture belongs to a stored attempt"
        names = {"run": request.path_params["run"], "trajectory": self.attempt.id}
        return request.url_for("picture", **names, turn=turn, place=place).path

    @property
    def _has_former_pictures(self) -> bool:
        """True for a record from before schema 6, which does not refer to its pictures."""
        return self.trajectory is not None and not self.trajectory.has_pictures

    @property
    def neighbours(self) -> tuple[int | None, int | None]:
        """Ids of the rollouts before and after this one in its group; None at the ends."""
        ids = [row.id for row in self.facts.siblings]
        place = ids.index(self.facts.rollout.id)
        return ids[place - 1] if place else None, ids[place + 1] if place + 1 < len(ids) else None


def view_rollout(
    run: ViewedRun, connection: Connection, facts: RolloutFacts, attempt: Any | None, *, turn_number: int | None = None
) -> RolloutView:
    """Return the content of a rollout's page, or with `turn_number` that of the turn's page.

    On a rollout's page, long responses are plain text. On a turn's page, all tokens of the turn's response are listed,
    and the prompt is shown.
    """
    trajectory, problem = _load(run, attempt)
    training = Training()
    if attempt is not None and attempt.kind == TrajectoryKind.FINAL:
        training = training_of(connection, run, facts)
    calls = _calls(trajectory, training, Vocabulary(run.run_dir), turn_number) if trajectory else []
    done = trajectory.turns if trajectory else []
    solved_with = len(done) if trajectory and trajectory.success else 0
    turns = list(_turns(done, calls, solved_with))
    final = trajectory.final_observation if trajectory else None
    held = pictures_of(connection, [attempt.id])[attempt.id] if attempt is not None else []
    shown = {view.turn.call_index for view in turns}
    return RolloutView(
        facts=facts,
        attempt=attempt,
        trajectory=trajectory,
        problem=problem,
        pictures=frozenset(held),
        turns=turns,
        end=SeenView(number=len(turns) + 1, observation=final, page=_page(final, set())) if final else None,
        loose_calls=[call for call in calls if call.index not in shown],
        training=training,
        tree=_tree(connection, run, facts) if turn_number is None else None,
        fate=_fate(facts),
    )


def _tree(connection: Connection, run: ViewedRun, facts: RolloutFacts) -> Tree | None:
    """Return the tree of the rollout's group; read its credit only if the group has forks."""
    return tree_of(facts, credit_of_group(connection, run, facts)) if facts.has_forks else None


def _load(run: ViewedRun, attempt: Any | None) -> tuple[Trajectory | None, str]:
    if attempt is None:
        return None, "Nothing is stored yet. Load this page again when the rollout has ended."
    if not attempt.blob:
        return None, "The record was deleted because of its age (disk.max_record_age); its row in the ledger is kept."
    try:
        return run.ledger.store.load(attempt.blob), ""
    except DamagedBlobError as error:
        return None, f"The record cannot be read: {error.what}. Everything below comes from the ledger's rows."


def _calls(
    trajectory: Trajectory, training: Training, vocabulary: Vocabulary, turn_number: int | None
) -> list[CallView]:
    """Return all calls. On the page of one turn, only the turn's own call has tokens and a prompt."""
    if turn_number is None:
        most = max(LEAST_TILES, min(MOST_TILES, MOST_TILES_OF_ALL // max(len(trajectory.calls), 1)))
        return [_call(index, trajectory, training, vocabulary, most) for index in range(len(trajectory.calls))]
    whole = trajectory.turns[turn_number - 1].call_index if turn_number <= len(trajectory.turns) else None
    return [
        _call(index, trajectory, training, vocabulary, MOST_TILES if index == whole else 0, whole=index == whole)
        for index in range(len(trajectory.calls))
    ]


def _call(
    index: int,
    trajectory: Trajectory,
    training: Training,
    vocabulary: Vocabulary,
    most_tiles: int,
    *,
    whole: bool = False,
) -> CallView:
    """Return one call: with all tokens and the prompt if `whole`; otherwise with its tokens if these are few enough."""
    call = trajectory.calls[index]
    is_long = len(call.response_ids) > most_tiles
    return CallView(
        call=call,
        index=index,
        tokens=tokens_of(call, index, training, vocabulary) if whole or not is_long else [],
        text=vocabulary.text(call.response_ids) if is_long else None,
        prompt=list(prompt_parts(call, trajectory, vocabulary)) if whole else [],
    )


def _turns(done: Sequence[Turn], calls: Sequence[CallView], solved_with: int) -> Iterator[TurnView]:
    """Yield the turns; the turn with the number `solved_with` solved the task."""
    pointer = None
    for number, turn in enumerate(done, start=1):
        named = {ref for action in turn.actions for ref in _REFERENCE.findall(action.canonical)}
        view = TurnView(
            number=number,
            observation=turn.observation,
            page=_page(turn.observation, named),
            turn=turn,
            call=calls[turn.call_index] if 0 <= turn.call_index < len(calls) else None,
            solves=number == solved_with,
            came_from=pointer,
        )
        yield view
        pointer = next((mark.points[-1] for mark in reversed(view.marks) if mark.done and mark.frame is None), pointer)


def _page(observation: Observation, named: set[str]) -> list[Line]:
    """Return the lines of an observation. A line that contains one of the references `named` is marked."""
    spoken = [f"{message.role}: {message.content}" for message in observation.messages]
    lines = "\n".join([*spoken, observation.text]).splitlines()
    return [Line(text=line, acted_on=bool(named & set(_REFERENCE.findall(line)))) for line in lines]


def _fate(facts: RolloutFacts) -> str:
    """Return the end of the sentence "It ..." that says whether the rollout was or will be trained on."""
    final, group = facts.final, facts.group
    if final is None:
        return {"queued": "waits for a worker", "leased": "is running now"}.get(facts.rollout.state, "left no record")
    if group.purpose == Purpose.EVAL:
        return "belongs to an evaluation and is never trained on"
    if group.purpose == Purpose.DEMONSTRATION:
        return "is a demonstration: it waits in the pool to be replayed"
    outcome = fate(final, group)
    if outcome.startswith("dropped"):
        return f"was not trained on: its group was dropped ({why_dropped(group)})"
    return {"trained": "was trained on", "waiting": "waits to be trained on"}.get(
        outcome, f"is not trained on: {outcome}"
    )
