"""The benchmark of histories: sequences and tokens as computed by hand, for small screens."""

import asyncio

import pytest

from benchmarks import history
from benchmarks.history import (
    ACTION_TOKENS,
    HISTORIES,
    INTERVAL,
    OBSERVATION_TOKENS,
    PLACEHOLDER_TOKENS,
    PROMPT_TOKENS,
    REQUEST_TOKENS,
    RESPONSE_TOKENS,
    SLIDING,
    play,
    trained,
)

TURNS = 30
PICTURE = 16 + 2
"""Tokens of a picture of 112 x 112 pixels, with its two marks."""
RULES = PROMPT_TOKENS + 2
GOAL_TOKENS = 2
TURN = OBSERVATION_TOKENS + 3 + RESPONSE_TOKENS
"""Tokens of a turn without its picture: the observation's text, the marks of the two messages, and the response."""


@pytest.mark.parametrize(
    ("name", "branches"),
    [
        ("all", [(30, 30)]),
        (INTERVAL, [(14, 14), (24, 14), (30, 10)]),
        (SLIDING, [(5, 5), *((turn, 5) for turn in range(6, 31))]),
    ],
)
def test_tokens_of_a_trajectory_are_those_of_its_branches(name, branches, monkeypatch):
    """Each branch has the texts of all turns so far, and some of their pictures."""
    monkeypatch.setattr(history, "SCREEN", (112, 112))
    counts = trained(asyncio.run(play(HISTORIES[name], TURNS)))
    assert counts.sequences == len(branches)
    assert counts.picture_tokens == sum(16 * pictures for _, pictures in branches)
    assert counts.tokens == sum(RULES + turns * TURN + PICTURE * pictures for turns, pictures in branches)


def test_every_prompt_of_latest_repeats_the_instructions_and_the_earlier_actions(monkeypatch):
    monkeypatch.setattr(history, "SCREEN", (112, 112))
    counts = trained(asyncio.run(play(HISTORIES["latest"], TURNS)))
    assert counts.sequences == TURNS
    assert counts.tokens == sum(RULES + TURN + PICTURE + ACTION_TOKENS * turn for turn in range(TURNS))


def test_a_branch_after_a_summary_has_the_instructions_the_request_and_the_summary(monkeypatch):
    """Two summaries: each is requested and written at the end of a branch, and read at the beginning of the next."""
    monkeypatch.setattr(history, "SCREEN", (112, 112))
    written = REQUEST_TOKENS + 3 + RESPONSE_TOKENS
    counts = trained(asyncio.run(play(HISTORIES["summary_every_10"], TURNS)))
    assert counts.sequences == 3
    assert counts.tokens == 3 * RULES + TURNS * (TURN + PICTURE) + 4 * written + 2 * GOAL_TOKENS


def test_compressed_pages_make_the_longest_sequence_short_and_the_sum_of_all_long(monkeypatch):
    """Every turn is a sequence: the instructions, its page, and of each earlier turn a placeholder and the response."""
    monkeypatch.setattr(history, "SCREEN", (112, 112))
    counts = trained(asyncio.run(play(HISTORIES["compressed"], TURNS)))
    earlier = PLACEHOLDER_TOKENS + 3 + RESPONSE_TOKENS
    lengths = [RULES + TURN + PICTURE + earlier * turn + GOAL_TOKENS * (turn > 0) for turn in range(TURNS)]
    assert (counts.sequences, counts.tokens, counts.longest) == (TURNS, sum(lengths), lengths[-1])
    assert counts.read_tokens == sum(lengths) - TURNS * RESPONSE_TOKENS
    assert counts.picture_tokens == 16 * TURNS


def test_a_conversation_with_all_pages_is_one_long_sequence_that_is_read_in_every_turn(monkeypatch):
    monkeypatch.setattr(history, "SCREEN", (112, 112))
    counts = trained(asyncio.run(play(HISTORIES["all"], TURNS)))
    assert counts.longest == counts.tokens == RULES + TURNS * (TURN + PICTURE)
    assert counts.read_tokens == sum(RULES + turn * (TURN + PICTURE) - RESPONSE_TOKENS for turn in range(1, TURNS + 1))
