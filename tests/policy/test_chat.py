"""Files of chats: what a line must be, and how an error names it."""

import json
from pathlib import Path

import pytest

from quartet.errors import ConfigError
from quartet.policy.chat import FORM, read_messages
from quartet.policy.examples import Example, read_chats
from tests.rollout.scripted_engine import CHAT_TEMPLATE, make_tokenizer

TOKENIZER = make_tokenizer()
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def read(file: Path, *messages: dict[str, object], tokenizer=TOKENIZER, **fields: object) -> list[Example]:
    """Read a file with an ordinary chat, and one with these messages after a question."""
    asked = {"role": "user", "content": "How warm is it?"}
    lines = [{"messages": [asked, {"role": "assistant", "content": "12"}]}, {"messages": [asked, *messages]} | fields]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return read_chats(file, tokenizer)


@pytest.mark.parametrize("call", [{"tool_calls": [CALL]}, {"function_call": CALL["function"]}])
@pytest.mark.parametrize("content", ["", None, "I look."])
def test_a_call_outside_the_text_is_refused_since_it_would_be_lost(tmp_path, call, content):
    said = {"role": "assistant", "content": content} | call
    for reader in (lambda file: read(file, said), read_messages):
        with pytest.raises(ConfigError, match=rf"x\.jsonl:2: a message has {next(iter(call))}, which") as refused:
            reader(tmp_path / "x.jsonl")
        assert refused.value.advice.startswith("write the call as text in content")


def test_an_answer_without_text_is_only_read(tmp_path):
    empty = {"role": "assistant", "content": " ", "tool_calls": [], "function_call": None}
    messages = [empty, {"role": "user", "content": "Well?"}, {"role": "assistant", "content": "12"}]
    with pytest.raises(ConfigError, match=r"x\.jsonl:2: answer 0 is empty"):
        read(tmp_path / "x.jsonl", *messages)
    *_, example = read(tmp_path / "x.jsonl", *messages, unlearned=[0])
    learned = [token for token, flag in zip(example.token_ids, example.learned, strict=True) if flag]
    assert TOKENIZER.decode(learned) == "12<|end|>"


@pytest.mark.parametrize("number", [1, -1])
def test_a_number_in_unlearned_that_no_answer_has_is_refused(tmp_path, number):
    with pytest.raises(ConfigError, match=rf"x\.jsonl:2: unlearned names answer {number}, but the chat has 1"):
        read(tmp_path / "x.jsonl", {"role": "assistant", "content": "12"}, unlearned=[number])


def test_a_chat_that_the_template_rejects_is_named(tmp_path):
    """The error of the template itself has advice about environments."""
    weather = {"function": {"name": "weather", "description": "<|end|>"}}
    said, tool = {"role": "assistant", "content": "12"}, {"role": "tool", "content": "12"}
    strict = "{% for m in messages if m['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endfor %}"
    for template, messages, fields, cause in (
        (strict, [said, tool, said], {}, "rejects messages with the roles .*no tools"),
        ("", [said], {"tools": [weather]}, "contains the special token"),
    ):
        tokenizer = make_tokenizer(template + CHAT_TEMPLATE)
        with pytest.raises(ConfigError, match=rf"x\.jsonl:2: .*{cause}") as refused:
            read(tmp_path / "x.jsonl", *messages, tokenizer=tokenizer, **fields)
        assert refused.value.advice.startswith("correct the chat")


def test_chats_without_tools_have_the_same_tokens_however_they_say_so(tmp_path):
    """An export writes null; templates that ask `tools is not none` must not see an empty list."""
    opened = make_tokenizer("{% if tools is not none %}12 12 {% endif %}" + CHAT_TEMPLATE)
    said = {"role": "assistant", "content": "12"}
    first, *others = (
        read(tmp_path / "x.jsonl", said, tokenizer=opened, **one) for one in ({}, {"tools": None}, {"tools": []})
    )
    assert others == [first, first]


SAID = {"role": "assistant", "content": "12"}


@pytest.mark.parametrize(
    ("messages", "fields", "advice"),
    [
        ([{"role": "bot", "content": "12"}], {}, "the roles are assistant, system, tool, user"),
        ([SAID, SAID], {}, "begin with a message that is read, end with an answer"),
        ([{"role": "assistant"}], {}, "give each message a role and a content, both as text"),
        ([{"role": "assistant", "content": [{"type": "text"}]}], {}, "give each message a role and a content"),
        (["12"], {}, "give each message a role and a content"),
        ([SAID], {"tools": [{"name": "weather"}]}, 'write a tool as {"type": "function"'),
        ([SAID], {"unlearned": ["0"]}, "list the numbers of the answers"),
        ([SAID], {"unlearned": [0]}, "remove a number from unlearned"),
        ([SAID], {"unlearned": [4]}, "remove the number from unlearned"),
    ],
)
def test_the_advice_of_an_error_fits_the_fault(tmp_path, messages, fields, advice):
    """The file is one chat per line already."""
    with pytest.raises(ConfigError, match=r"x\.jsonl:2: ") as refused:
        read(tmp_path / "x.jsonl", *messages, **fields)
    assert refused.value.advice.startswith(advice)


@pytest.mark.parametrize("line", ["12", "{", '{"prompt": "How warm is it?"}', '{"messages": 12}'])
def test_a_line_that_is_no_chat_gets_an_example_of_one(tmp_path, line):
    (tmp_path / "x.jsonl").write_text(line)
    with pytest.raises(ConfigError, match=r"x\.jsonl:1: ") as refused:
        read_chats(tmp_path / "x.jsonl", TOKENIZER)
    assert refused.value.advice == f"write one chat per line: {FORM}"
