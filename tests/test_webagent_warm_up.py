"""Warm-up of recipes/webagent_r1: demonstrations of the loop `latest`, told with the history of the recipe."""

import json
from pathlib import Path

import pytest

from quartet.errors import ConfigError
from quartet.exchange.chat import ChatLine
from quartet.policy.chat import decode_chat
from quartet.policy.prompt import turn_text
from quartet.rollout.episode import actions_of
from recipes.webagent_r1.warm_up import DEMONSTRATIONS, trajectories, write

PLACEHOLDER = "** Simplified html **"


def test_a_turn_is_the_page_alone_and_gives_the_demonstrated_text_with_the_actions_before_it() -> None:
    lines = DEMONSTRATIONS.read_bytes().splitlines()
    texts = [decode_chat(line, ChatLine).messages[0].content for line in lines]
    made = [
        turn_text(turn.observation, actions_of(whole.turns[:number]))
        for whole in trajectories(DEMONSTRATIONS)
        for number, turn in enumerate(whole.turns)
    ]
    assert made == texts
    assert not any("\ndid " in turn.observation.text for whole in trajectories(DEMONSTRATIONS) for turn in whole.turns)


def test_a_chat_shows_one_page_and_a_placeholder_for_each_before_and_its_last_answer_is_learned(tmp_path: Path) -> None:
    count = write(DEMONSTRATIONS, tmp_path / "x.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert count == sum(line["turn"] == 0 for line in lines) and len(lines) == 497
    assert max(line["turn"] for line in lines) >= 2
    for line in lines:
        reads = [message["content"] for message in line["messages"] if message["role"] == "user"]
        assert len(reads) == line["turn"] + 1
        assert [PLACEHOLDER in text for text in reads] == [True] * line["turn"] + [False]
        assert line["unlearned"] == list(range(line["turn"]))


def test_a_demonstration_of_another_loop_is_refused(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "g\np"}, {"role": "assistant", "content": "click a [1]"}]}
    lines = [json.dumps(chat | {"family": "f", "seed": 0, "turn": turn}) for turn in (0, 1)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"x\.jsonl:2: the text does not end with the 1 earlier actions"):
        list(trajectories(tmp_path / "x.jsonl"))
