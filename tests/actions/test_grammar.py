"""The grammar of actions: what is written is read back, and what policies really say is understood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.actions.grammar import (
    Action,
    ActionError,
    Click,
    Done,
    Drag,
    Element,
    Key,
    Point,
    Scroll,
    Select,
    Type,
    format_action,
    parse_action,
)
from quartet.actions.keyboard import canonical_keys, strokes

LABELS = st.text(st.characters(exclude_characters="[]\"“”'", exclude_categories=["C", "Z"]), max_size=20)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ELEMENTS = st.builds(Element, st.integers(0, 999), st.lists(LABELS.filter(bool), max_size=3).map(" ".join))
POINTS = st.builds(Point, st.integers(0, 999), st.integers(0, 999))
TARGETS = ELEMENTS | POINTS
ACTIONS = (
    st.builds(Click, TARGETS)
    | st.builds(Type, ELEMENTS, TEXTS)
    | st.builds(
        Key, st.sampled_from(["Enter", "Control+a", "Shift+Tab", "ArrowDown", "x", "+", "Space", "Control+Space"])
    )
    | st.builds(Select, ELEMENTS, TEXTS)
    | st.builds(Scroll, st.sampled_from(["up", "down"]))
    | st.builds(Drag, TARGETS, TARGETS)
    | st.just(Done())
)


@given(ACTIONS)
def test_formatted_action_parses_to_the_same_action(action: Action) -> None:
    assert parse_action(format_action(action)) == action


@given(ACTIONS)
def test_thoughts_before_an_action_do_not_hide_it(action: Action) -> None:
    assert parse_action(f"I look for the target\nit is there\n{format_action(action)}\n") == action


@given(st.text(max_size=80))
def test_any_text_is_an_action_or_an_action_error(text: str) -> None:
    try:
        action = parse_action(text)
    except ActionError as error:
        assert len(str(error)) < 40
    else:
        assert parse_action(format_action(action)) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("click next [23]", Click(Element(23, "next"))),
        ("CLICK Next  Page [ 23 ].", Click(Element(23, "Next Page"))),
        ("click [7]", Click(Element(7))),
        ("click[7]", Click(Element(7))),
        ('click "OK" [4]', Click(Element(4, "OK"))),
        ("click (80, 120)", Click(Point(80, 120))),
        ("`click 1st [3]`", Click(Element(3, "1st"))),
        ("- click a [3]", Click(Element(3, "a"))),
        ("2. click a [3]", Click(Element(3, "a"))),
        ("Action: click a [3]", Click(Element(3, "a"))),
        ("The button is there. click a [3]", Click(Element(3, "a"))),
        ("click a [3]\nclick b [4]", Click(Element(4, "b"))),
        ("click a [3]\nThat should do it", Click(Element(3, "a"))),
        ('type Name [5] "bob"', Type(Element(5, "Name"), "bob")),
        ('type Name [5] "bob', Type(Element(5, "Name"), "bob")),
        ("type Name [5] “bob”", Type(Element(5, "Name"), "bob")),
        ('type [5] ""', Type(Element(5), "")),
        ('type [5] "click b [4]"', Type(Element(5), "click b [4]")),
        ('type [5] "say "hi""', Type(Element(5), 'say "hi"')),
        (r'type [5] "a\nb \d \\"', Type(Element(5), "a\nb \\d \\")),
        ('select Country [9] "Spain"', Select(Element(9, "Country"), "Spain")),
        ("key enter", Key("Enter")),
        ("press ctrl+A", Key("Control+a")),
        ("Scroll Down", Scroll("down")),
        ("drag a [1] to b [2]", Drag(Element(1, "a"), Element(2, "b"))),
        ("drag road to rome [1] to b [2]", Drag(Element(1, "road to rome"), Element(2, "b"))),
        ("drag (1,2) to (3,4)", Drag(Point(1, 2), Point(3, 4))),
        ("Done.", Done()),
    ],
)
def test_tolerant_reading(text: str, action: Action) -> None:
    assert parse_action(text) == action


@pytest.mark.parametrize("text", ["", "next [23]", "click next", "type [3] bob", "undone", "scroll sideways", "key"])
def test_text_that_is_not_an_action_is_rejected(text: str) -> None:
    with pytest.raises(ActionError, match="not an action"):
        parse_action(text)


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(ActionError, match="no key Hyper"):
        parse_action("key Hyper")


def test_keys_and_their_modifiers() -> None:
    assert canonical_keys("shift-ctrl-END") == "Control+Shift+End"
    assert canonical_keys("super+a") is None
    stroke, bits = strokes("Control+Shift+End")
    assert (stroke.virtual_key, bits) == (35, 2 | 8)
    assert strokes("Control+Space")[0].text == " "


@pytest.mark.parametrize(
    "begin, repeated, end",
    [
        ("key ", ".", "x"),
        ("x", ".", ""),
        ("done", ".", "x"),
        ("", "x.", ""),
        ("", "done.", "x"),
        ("", "click a.", ""),
        ("", "click a. [", ""),
        ("", "drag [1] to b.", ""),
        ("", "key a.", "x"),
        ("", 'type [9999999] "a.', ""),
        ("", "press hyper.", "x"),
        ("x.", " ", "1"),
        ("click", " ", "x"),
        ("click 1,1", " ", "x"),
        ("click [1", "1", ""),
        ("", "1", ""),
        ("", "click [x]\n", ""),
    ],
)
def test_a_long_response_is_read_in_linear_time(begin, repeated, end):
    """What the grammar does per character is bounded: with quadratic work these would take many minutes."""
    with pytest.raises(ActionError):
        parse_action(begin + repeated * (300_000 // len(repeated)) + end)
