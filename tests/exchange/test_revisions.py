"""Revision trajectories: where failure and success part, what is learned of them, and pairs of a tree in a ledger."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from quartet.actions.taken import taken_action
from quartet.cli import cli
from quartet.errors import ConfigError
from quartet.exchange.export import export
from quartet.exchange.revisions import REVISIONS, num_shared, splice
from quartet.exchange.stored import Selection
from quartet.policy.examples import read_chats
from quartet.policy.make import make_policy
from quartet.recipe.file import to_toml
from quartet.types import Observation, Status, Task, Trajectory, Turn
from tests.ledger.samples import plan, recipe, trajectory

ROOM = Task(env="bandit", family="room", seed=1)


def walked(path: str, *, success: bool) -> Trajectory:
    """A rollout that reads where it is and says where it goes: `AB` begins at A, goes to B, and ends there."""
    turns = [
        Turn(
            observation=Observation(goal="Leave.", text=f"at {place}"),
            call_index=number,
            response=f"go {following}",
            actions=[taken_action(f"go {following}")],
        )
        for number, (place, following) in enumerate(pairwise(path))
    ]
    whole = trajectory(ROOM, reward=float(success), turns=len(turns))
    return replace(whole, turns=turns, final_observation=Observation(goal="Leave.", text=f"at {path[-1]}"))


def said(turns: list[Turn]) -> list[str]:
    return [f"{turn.observation.text}: {turn.response}" for turn in turns]


def test_a_splice_leaves_the_wrong_branch_after_its_first_turn():
    """Shared turns and wrong turn once, then the revision where the wrong turn led to, then the success's own turns."""
    failed, solved = walked("ABCD", success=False), walked("ABEF", success=True)
    assert num_shared(failed, solved) == 1
    spliced = splice(failed, solved, "Back.")
    assert spliced is not None and spliced.first_learned == 2
    assert said(spliced.turns) == ["at A: go B", "at B: go C", "at C: Back.", "at B: go E", "at E: go F"]


def test_a_wrong_last_turn_is_revised_at_the_end():
    spliced = splice(walked("ABC", success=False), walked("ABE", success=True), "Back.")
    assert spliced is not None
    assert said(spliced.turns) == ["at A: go B", "at B: go C", "at C: Back.", "at B: go E"]


def test_nothing_is_spliced_if_one_rollout_is_the_beginning_of_the_other():
    assert splice(walked("AB", success=False), walked("ABE", success=True), "Back.") is None
    unfinished = replace(walked("AC", success=False), final_observation=None)
    assert splice(unfinished, walked("AB", success=True), "Back.") is None, "nobody saw where it led"


def test_nothing_is_spliced_if_an_observation_differs_before_a_response():
    """The success has no page to which the policy could return from its wrong turn."""
    assert splice(walked("ABC", success=False), walked("XBE", success=True), "Back.") is None
    failed, solved = walked("ABCD", success=False), walked("ABEF", success=True)
    moved = replace(solved.turns[1], observation=Observation(goal="Leave.", text="at B, later"))
    assert splice(failed, replace(solved, turns=[solved.turns[0], moved]), "Back.") is None


def test_guidance_is_no_difference():
    failed, solved = walked("ABC", success=False), walked("ABE", success=True)
    turns = [replace(one, observation=replace(one.observation, guidance="Go to E.")) for one in solved.turns]
    spliced = splice(failed, replace(solved, turns=turns), "Back.")
    assert spliced is not None and spliced.first_learned == 2


@pytest.fixture
def tree(ledger):
    """A group of two successes and two failures; one failure is a fork of the second success."""
    ledger.groups.admit(plan(rollouts=4))
    paths = {"AGH": True, "ABEF": True, "ABCD": False, "AXY": False}
    for lease, (path, success) in zip(ledger.rollouts.claim("w", 4, 60), paths.items(), strict=True):
        ledger.trajectories.append(lease, replace(walked(path, success=success), task=lease.task), 1)
    return ledger


@pytest.mark.slow
def test_only_the_revision_and_what_follows_is_learned(tree, tmp_path: Path):
    """Each failure once, with its nearest success: ABCD with ABEF, not with AGH, which is shorter."""
    export(tree, recipe(rollout={"loop": "append"}), "revisions", tmp_path / "x.jsonl", Selection())
    texts = ["Leave.\nat " + place for place in "ABCDEFGHXY"] + ["go " + place for place in "ABCDEFGHXY"]
    tokenizer = make_policy(
        [*texts, *REVISIONS], tmp_path / "p", vocab_size=600, hidden_size=16, num_layers=1
    ).tokenizer
    examples = read_chats(tmp_path / "x.jsonl", tokenizer)
    learned = [
        [token for token, target in zip(example.token_ids, example.learned, strict=True) if target]
        for example in examples
    ]
    texts = [tokenizer.decode(ids, skip_special_tokens=True).replace(" ", "") for ids in learned]
    assert texts == [
        f"{REVISIONS[0]}go Ego F".replace(" ", ""),
        f"{REVISIONS[1]}go Ggo H".replace(" ", ""),
    ]


def test_a_loop_with_a_conversation_per_turn_leaves_out_the_turns_that_are_not_learned(tree, tmp_path: Path):
    for history, before in {"latest": [0, 0, 0], "compressed": [2, 3, 4]}.items():
        rollout = {"loop": "latest"} if history == "latest" else {"loop": "screens", "history": history}
        export(tree, recipe(rollout=rollout), "revisions", tmp_path / "x.jsonl", Selection())
        lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
        assert [line["messages"][-1]["content"] for line in lines[:3]] == [REVISIONS[0], "go E", "go F"]
        assert [line["turn"] for line in lines[:3]] == [0, 1, 2]
        assert [len(line["unlearned"]) for line in lines[:3]] == before


def test_a_limit_counts_the_revisions_and_not_what_they_are_made_of(tree, tmp_path: Path):
    whole, one = tmp_path / "whole.jsonl", tmp_path / "one.jsonl"
    export(tree, recipe(rollout={"loop": "append"}), "revisions", whole, Selection())
    summary = export(tree, recipe(rollout={"loop": "append"}), "revisions", one, Selection(), limit=1)
    assert (summary.trajectories, summary.revisions) == (4, 1)
    assert one.read_text() == whole.read_text().splitlines(keepends=True)[0]


def test_a_group_without_a_success_or_a_failure_that_counts_gives_nothing(ledger, tmp_path: Path):
    ledger.groups.admit(plan(rollouts=2))
    first, second = ledger.rollouts.claim("w", 2, 60)
    ledger.trajectories.append(first, replace(walked("AB", success=True), task=first.task), 1)
    diverged = replace(walked("AC", success=False), task=second.task, status=Status.DIVERGED)
    ledger.trajectories.append(second, diverged, 1)
    export(ledger, recipe(rollout={"loop": "append"}), "revisions", tmp_path / "x.jsonl", Selection())
    assert (tmp_path / "x.jsonl").read_bytes() == b""


def test_a_player_returns_to_its_own_success_and_the_summary_counts_the_revisions(ledger, tmp_path: Path):
    """The judge beside the failed solver shares more turns with it than the solver of the other rollout does."""
    ledger.groups.admit(plan(rollouts=2))
    for lease, paths in zip(ledger.rollouts.claim("w", 2, 60), [("ABC", "ABD"), ("AEF", "ABD")], strict=True):
        parts = [
            replace(walked(path, success=success), task=lease.task, part=part)
            for part, path, success in zip(["solver", "judge"], paths, [lease.rollout_id == 2, True], strict=True)
        ]
        ledger.trajectories.append(lease, parts[0], 1, parts[1:])
    summary = export(ledger, recipe(rollout={"loop": "append"}), "revisions", tmp_path / "x.jsonl", Selection())
    [line] = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [message["content"] for message in line["messages"]][-1] == "go F"
    assert (summary.trajectories, summary.revisions) == (4, 1)


@pytest.mark.parametrize(
    ("kind", "selection", "words"),
    [
        ("revisions", Selection(successes_only=True), "omit --success"),
        ("revisions", Selection(screenshots=True), "no place for screenshots"),
        ("chat", Selection(screenshots=True), "no place for screenshots"),
    ],
)
def test_a_selection_that_a_format_cannot_write_is_refused_and_an_earlier_file_is_kept(
    ledger, tmp_path: Path, kind, selection, words
):
    output = tmp_path / "x.jsonl"
    output.write_text("earlier")
    with pytest.raises(ConfigError, match=words):
        export(ledger, recipe(rollout={"loop": "append"}), kind, output, selection)
    assert output.read_text() == "earlier"


def exported(run_dir: Path, output: Path, *options: str) -> str:
    """Export by the command; return what it prints."""
    (run_dir / "config.toml").write_text(to_toml(recipe(rollout={"loop": "append"})))
    command = ["ledger", "export", str(run_dir), "--format", "revisions", "-o", str(output), *options]
    return CliRunner().invoke(cli, command, catch_exceptions=False).output


def test_the_result_names_what_was_read_and_what_was_written(tree, tmp_path: Path):
    read = r"read 4 trajectories, \d+ turns, \d+ response tokens\n"
    shown = exported(tree.run_dir, tmp_path / "x.jsonl")
    assert re.match(rf"{read}wrote 2 revision trajectories, [\d.]+ kB in ", shown)
    shown = exported(tree.run_dir, tmp_path / "x.jsonl", "--limit", "1")
    assert re.match(rf"{read}wrote 1 revision trajectory, .* in ", shown)


def test_a_file_without_revisions_gives_the_reason(ledger, tmp_path: Path):
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(lease, replace(walked("AB", success=True), task=lease.task), 1)
    assert "note: no selected group has a failure and a success" in exported(ledger.run_dir, tmp_path / "x.jsonl")
