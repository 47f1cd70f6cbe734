"""Files of chats: what a line must be, and how an error names it."""

import json
from pathlib import Path

import pytest

from quartet.errors import ConfigError
from quartet.policy.chat import read_messages
from quartet.policy.examples import Example, read_chats
from tests.rollout.scripted_engine import make_tokenizer

TOKENIZER = make_tokenizer()
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def read(file: Path, *messages: dict[str, object], **fields: object) -> list[Example]:
    """Read a file with an ordinary chat, and one with these messages after a question."""
    asked = {"role": "user", "content": "How warm is it?"}
    lines = [{"messages": [asked, {"role": "assistant", "content": "12"}]}, {"messages": [asked, *messages]} | fields]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return read_chats(file, TOKENIZER)


@pytest.mark.parametrize("call", [{"tool_calls": [CALL]}, {"function_call": CALL["function"]}])
@pytest.mark.parametrize("content", ["", None, "I look."])
def test_a_call_outside_the_text_is_refused_since_it_would_be_lost(tmp_path, call, content):
    said = {"role": "assistant", "content": content} | call
    for reader in (lambda file: read(file, said), read_messages):
        with pytest.raises(ConfigError, match=rf"x\.jsonl:2: a message has {next(iter(call))}: write the call as text"):
            reader(tmp_path / "x.jsonl")


def test_an_answer_without_text_is_only_read(tmp_path):
    empty = {"role": "assistant", "content": " ", "tool_calls": [], "function_call": None}
    messages = [empty, {"role": "user", "content": "Well?"}, {"role": "assistant", "content": "12"}]
    with pytest.raises(ConfigError, match=r"x\.jsonl:2: answer 0 is empty"):
        read(tmp_path / "x.jsonl", *messages)
    *_, example = read(tmp_path / "x.jsonl", *messages, unlearned=[0])
    learned = [token for token, flag in zip(example.token_ids, example.learned, strict=True) if flag]
    assert TOKENIZER.decode(learned) == "12<|end|>"
