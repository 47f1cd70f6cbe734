"""The grammar of actions: what is written is read back, and what policies really say is understood."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.actions.error import UnwritableError
from quartet.actions.grammar import Action, ActionError, parse_action, parse_actions
from quartet.actions.keyboard import canonical_keys, strokes
from quartet.actions.written import format_action
from quartet.types import Done, Infeasible, Keyboard, Pointer, ToolCall, Wait
from quartet.types.frame import Element, Point, Unit

LABELS = st.text(st.characters(exclude_characters="[]\"“”'", exclude_categories=["C", "Z"]), max_size=20)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ELEMENTS = st.builds(Element, st.integers(0, 999).map(str), st.lists(LABELS.filter(bool), max_size=3).map(" ".join))
POINTS = st.builds(Point, st.integers(0, 999), st.integers(0, 999))
PLACES = ELEMENTS | POINTS
MAYBE = st.lists(PLACES, max_size=1)
KEYS = st.sampled_from(["Enter", "Control+a", "Shift+Tab", "ArrowDown", "x", "+", "Space", "Control+Space", "F5"])
STEPS = st.sampled_from([(0, 1), (0, -1), (3, 0), (-12, 0), (0, 999_999)])
CLICKS = ["click", "double_click", "triple_click", "right_click", "middle_click", "long_press", "move", "down", "up"]
ACTIONS = (
    st.builds(Pointer, gesture=st.sampled_from(CLICKS), places=MAYBE)
    | st.builds(Pointer, gesture=st.just("drag"), places=st.lists(PLACES, min_size=1, max_size=2))
    | st.builds(Pointer, gesture=st.just("scroll"), places=MAYBE, scrolled=STEPS)
    | st.builds(Keyboard, text=TEXTS, place=st.none() | PLACES)
    | st.builds(Keyboard, keys=st.lists(KEYS, min_size=1, max_size=8), motion=st.sampled_from(["press", "down", "up"]))
    | st.builds(lambda element, option: parse_action(f'select [{element}] "{option}"'), st.integers(0, 999), LABELS)
    | st.builds(
        ToolCall,
        name=st.from_regex(r"[\w.-]{1,9}", fullmatch=True),
        arguments=st.dictionaries(TEXTS, TEXTS | st.integers(-9, 9) | st.none() | st.booleans()),
    )
    | st.builds(Wait, seconds=st.integers(0, 99).map(lambda tenths: tenths / 10))
    | st.builds(Done, answer=TEXTS)
    | st.builds(Infeasible, reason=TEXTS)
)


def click(place) -> Pointer:
    return Pointer(gesture="click", places=[place])


def drag(*places) -> Pointer:
    return Pointer(gesture="drag", places=list(places))


@given(ACTIONS)
def test_formatted_action_parses_to_the_same_action(action: Action) -> None:
    assert parse_action(format_action(action)) == action


@given(ACTIONS)
def test_thoughts_before_an_action_do_not_hide_it(action: Action) -> None:
    assert parse_action(f"I look for the target\nit is there\n{format_action(action)}\n") == action


@pytest.mark.slow
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
        ("click next [23]", click(Element("23", "next"))),
        ("CLICK Next  Page [ 23 ].", click(Element("23", "Next Page"))),
        ("click [7]", click(Element("7"))),
        ("click[7]", click(Element("7"))),
        ('click "OK" [4]', click(Element("4", "OK"))),
        ("click (80, 120)", click(Point(80, 120))),
        ("`click 1st [3]`", click(Element("3", "1st"))),
        ("- click a [3]", click(Element("3", "a"))),
        ("2. click a [3]", click(Element("3", "a"))),
        ("Action: click a [3]", click(Element("3", "a"))),
        ("The button is there. click a [3]", click(Element("3", "a"))),
        ("click a [3]\nclick b [4]", click(Element("4", "b"))),
        ("click a [3]\nThat should do it", click(Element("3", "a"))),
        ('type Name [5] "bob"', Keyboard(place=Element("5", "Name"), text="bob")),
        ('type Name [5] "bob', Keyboard(place=Element("5", "Name"), text="bob")),
        ("type Name [5] “bob”", Keyboard(place=Element("5", "Name"), text="bob")),
        ('type [5] ""', Keyboard(place=Element("5"), text="")),
        ('type [5] "click b [4]"', Keyboard(place=Element("5"), text="click b [4]")),
        ('type [5] "say "hi""', Keyboard(place=Element("5"), text='say "hi"')),
        (r'type [5] "a\nb \d \\"', Keyboard(place=Element("5"), text="a\nb \\d \\")),
        (
            'select Country [9] "Spain"',
            ToolCall(name="select", arguments={"element": "9", "label": "Country", "option": "Spain"}),
        ),
        ("key enter", Keyboard(keys=["Enter"])),
        ("press ctrl+A", Keyboard(keys=["Control+a"])),
        ("Scroll Down", Pointer(gesture="scroll", scrolled=(0, 1))),
        ("drag a [1] to b [2]", drag(Element("1", "a"), Element("2", "b"))),
        ("drag road to rome [1] to b [2]", drag(Element("1", "road to rome"), Element("2", "b"))),
        ("drag (1,2) to (3,4)", drag(Point(1, 2), Point(3, 4))),
        ("Done.", Done()),
    ],
)
def test_tolerant_reading(text: str, action: Action) -> None:
    assert parse_action(text) == action


@pytest.mark.parametrize("text", ["", "next [23]", "click next", "type [3] bob", "undone", "scroll sideways", "key"])
def test_text_that_is_not_an_action_is_rejected(text: str) -> None:
    with pytest.raises(ActionError, match="not an action"):
        parse_action(text)


@given(ACTIONS, st.sampled_from([("i", "ı"), ("I", "İ"), ("s", "ſ"), ("k", "\u212a"), ("3", "٣")]))
def test_whatever_is_read_of_letters_of_other_scripts_can_be_sent(action: Action, letters: tuple[str, str]) -> None:
    try:
        actions = parse_actions(format_action(action).replace(*letters))
    except ActionError:
        return
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(actions), type=list[Action]) == actions


@pytest.mark.parametrize("text", ["clıck [3]", "scroll rıght", "preſs Enter", "\u212aey Enter", "infeaſible"])
def test_a_word_with_a_letter_of_another_script_is_no_action(text: str) -> None:
    with pytest.raises(ActionError, match="not an action"):
        parse_action(text)


def test_labels_texts_and_names_of_tools_may_have_letters_of_any_script() -> None:
    assert parse_action("CLICK Straße ſ [٣]") == click(Element("3", "Straße ſ"))
    assert parse_action('type\N{NO-BREAK SPACE}HERE "ıſ\u212a"') == Keyboard(text="ıſ\u212a")
    assert parse_action("Call löſe {}") == ToolCall(name="löſe")


@pytest.mark.parametrize(
    "action",
    [
        click(Point(500, 500, Unit(1000))),
        click(Point(0.5, 3)),
        click(Element("a12")),
        Pointer(gesture="scroll", scrolled=(1, 1)),
        Keyboard(keys=["a", "."]),
        ToolCall(name="a b"),
        ToolCall(name="open", id="call-1"),
        Wait(seconds=1e-9),
    ],
)
def test_an_action_without_a_text_is_an_error(action):
    with pytest.raises(UnwritableError):
        format_action(action)


def test_several_actions_stand_in_lines_of_their_own():
    said = 'I click a [1] and then:\n1. click b [2]\n- type here "x"\nThat is all: click c [3]'
    assert [format_action(action) for action in parse_actions(said)] == ["click b [2]", 'type here "x"']
    assert parse_actions("Thought. click a [3]") == [click(Element("3", "a"))]


@pytest.mark.parametrize(
    "prose", ["Press the Save button.", "Press a button", "1. Press the X.", "Press the Enter key."]
)
def test_a_line_of_prose_about_a_press_is_no_action(prose) -> None:
    assert parse_actions(f"{prose}\nclick Save [3]") == [click(Element("3", "Save"))]
    with pytest.raises(ActionError, match="not an action"):
        parse_actions(prose)


@pytest.mark.parametrize("line", ["key Foo", "press Foo", "press Enter Foo", "key the Save button"])
def test_a_line_with_an_unknown_key_refuses_the_whole_response(line) -> None:
    with pytest.raises(ActionError, match="no key"):
        parse_actions(f"{line}\nclick Save [3]")


def test_keys_of_one_letter_are_keys() -> None:
    assert parse_actions("press a b\npress x") == [Keyboard(keys=["a", "b"]), Keyboard(keys=["x"])]


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(ActionError, match="no key Hyper"):
        parse_action("key Hyper")


def test_keys_and_their_modifiers() -> None:
    assert canonical_keys("shift-ctrl-END") == "Control+Shift+End"
    assert canonical_keys("super-A") == "Meta+a"
    assert canonical_keys("hyper+a") is None
    assert canonical_keys("a+b") is None
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
