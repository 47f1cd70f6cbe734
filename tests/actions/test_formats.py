"""Formats of actions: what is written is read back, and no text of a model is more than data."""

import json
import re
from functools import cache

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quartet import config
from quartet.actions.error import ActionError, UnwritableError
from quartet.actions.format.base import ActionFormat
from quartet.actions.format.browsergym import _READERS
from quartet.actions.function_calls import write_call
from quartet.errors import ConfigError
from quartet.recipe.file import parse_recipe
from quartet.registry import build, names
from quartet.types import Action, Done, Infeasible, Keyboard, Pointer, Text, ToolCall, Wait
from quartet.types.frame import Element, Point, Resized, Screen, Unit

FORMATS = names("action_format")
PICTURE = Resized(1932, 1092)
FRAMES = {"ui_tars": PICTURE, "qwen3_vl": Unit(1000), "location_tokens": Unit(64)}

NUMBERS = st.integers(-5, 5000) | st.floats(0, 5000).map(lambda value: round(value, 3))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["it's", "a')", 'say "x"\n', "\\n", "```", "</tool_call>", "Action: click()", "python\n", "\\", "DONE", "x', 'y"]
)
KEYS = st.sampled_from(["Enter", "Control+c", "Control+Shift+t", "Alt+F4", "PageDown", "a", "Z", "+", "Space", "Meta"])
CLICKS = ["click", "double_click", "triple_click", "right_click", "middle_click", "long_press", "move", "down", "up"]
STEPS = st.sampled_from([0, 1, -1, 5, -5, 12])


@cache
def actions_in(frame) -> st.SearchStrategy[Action]:
    """Return actions of every kind, with most points in one frame."""
    elements = st.builds(Element, st.from_regex(r"[a-z]?\d{1,3}", fullmatch=True))
    points = st.builds(Point, NUMBERS, NUMBERS, st.sampled_from([frame] * 5 + [Screen(), Unit(1000), Unit(999)]))
    places = points | elements
    return (
        st.builds(Pointer, gesture=st.sampled_from(CLICKS), places=st.lists(places, max_size=1))
        | st.builds(Pointer, gesture=st.just("drag"), places=st.lists(places, min_size=1, max_size=2))
        | st.builds(
            Pointer, gesture=st.just("scroll"), places=st.lists(places, max_size=1), scrolled=st.tuples(STEPS, STEPS)
        )
        | st.builds(Keyboard, text=TEXTS, place=st.none() | elements)
        | st.builds(
            Keyboard,
            keys=st.lists(KEYS, min_size=1, max_size=2),
            motion=st.sampled_from(["press", "down", "up"]),
            place=st.none() | elements,
        )
        | st.builds(ToolCall, name=st.sampled_from(["open", "goto"]), arguments=st.fixed_dictionaries({"url": TEXTS}))
        | st.builds(
            ToolCall, name=st.just("select"), arguments=st.fixed_dictionaries({"element": TEXTS, "option": TEXTS})
        )
        | st.builds(Wait, seconds=st.sampled_from([0, 0.5, 1.0, 5.0]))
        | st.builds(Done, answer=TEXTS)
        | st.builds(Infeasible, reason=TEXTS)
        | st.builds(Text, text=TEXTS)
    )


def part(name: str, **own) -> ActionFormat:
    return build(config.ActionFormat(name=name, **own))


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=400)
@given(data=st.data())
def test_what_a_format_writes_it_reads_back(name, data):
    """An action that a format cannot express is refused, and never written as another one."""
    one, frame = part(name), FRAMES.get(name, Screen())
    said: list[Action] = data.draw(st.lists(actions_in(frame), min_size=1, max_size=3))
    try:
        text = one.write(said)
    except UnwritableError:
        return
    assert one.parse(text, PICTURE) == said


WRITTEN = {
    "quartet": {"move", "click", "double_click", "triple_click", "right_click", "drag", "scroll"},
    "ui_tars": {"move", "click", "double_click", "right_click", "drag", "scroll"},
    "qwen3_vl": {"move", "click", "double_click", "triple_click", "right_click", "scroll"},
    "browsergym": {"move", "click", "double_click", "right_click", "drag", "scroll"},
    "computer_13": {"move", "click", "double_click", "triple_click", "right_click"},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_format_writes_the_kinds_of_actions_that_its_models_know(name):
    one, frame = part(name), FRAMES.get(name, Screen())
    place, there = Point(30, 40, frame), Point(50, 60, frame)
    for gesture in WRITTEN[name]:
        places = [place, there] if gesture == "drag" else [place]
        scrolled = (0, 5) if gesture == "scroll" else (0, 0)
        if (name, gesture) == ("browsergym", "scroll"):
            places = []
        said: list[Action] = [Pointer(gesture=gesture, places=places, scrolled=scrolled)]
        assert one.parse(one.write(said), PICTURE) == said
    wait = {"ui_tars": Wait(seconds=5.0)}.get(name, Wait())
    keys: list[Action] = [Keyboard(text="a b\n"), Keyboard(keys=["Enter"]), Keyboard(keys=["Control+c"])]
    several = [*keys, wait, Infeasible(), Done()]
    assert one.parse(one.write(several), PICTURE) == several


@given(st.lists(st.integers(0, 63), min_size=4, max_size=4), st.booleans())
def test_locations_are_middles_of_parts(numbers, is_drag):
    one, frame = part("location_tokens"), Unit(64)
    x, y, there_x, there_y = (number + 0.5 for number in numbers)
    places = [Point(x, y, frame), Point(there_x, there_y, frame)][: 1 + is_drag]
    said: list[Action] = [Pointer(gesture="drag" if is_drag else "click", places=list(places))]
    tokens = [f"<loc{number}>" for number in numbers[: 2 + 2 * is_drag]]
    assert one.write(said) == ("drag " if is_drag else "click ") + "".join(tokens)
    assert one.parse(one.write(said), PICTURE) == said


@pytest.mark.parametrize(
    "text", ["click <loc1>", "drag <loc1><loc2>", "click <loc1><loc2><loc3><loc4>", "click <loc64><loc0>", "click [3]"]
)
def test_a_click_has_two_locations_and_a_drag_four(text):
    with pytest.raises(ActionError):
        part("location_tokens").parse(text, PICTURE)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=400)
@given(
    text=st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            [
                *"()[]{}<>,:='\"\\\n `",
                *(
                    "click",
                    "Action:",
                    "point",
                    "type",
                    "content",
                    "<tool_call>",
                    "</tool_call>",
                    "None",
                    "fill",
                    "scroll",
                ),
                *('{"name": "computer_use", "arguments": ', '"action"', '"key"', '"keys"', "ctrl", "1e999", "9" * 30),
                *("mouse_down(", "mouse_click(", "select_option(", "'left'", "True", "10, 20", "gesture=", "button="),
                *("```json", "```", '{"action_type": "CLICK"', '"parameters"', "x", "-3.5", "\ud83d"),
            ]
        ),
        max_size=12,
    ).map("".join)
)
def test_any_response_is_actions_or_an_action_error(name, text):
    try:
        actions = part(name).parse(text, PICTURE)
    except ActionError as error:
        assert len(str(error)) < 80
    else:
        assert actions
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(actions), type=list[Action]) == actions


@pytest.mark.parametrize("call", sorted(_READERS))
@settings(max_examples=40)
@given(
    arguments=st.lists(st.sampled_from([True, None, 7, -1.5, "left", "right", "a12", "Enter", ["x"], [7]]), max_size=4),
    named=st.dictionaries(st.sampled_from(["gesture", "motion", "button", "x", "bid", "action"]), st.just("left")),
)
def test_arguments_of_a_call_are_an_action_of_the_declared_types_or_an_action_error(call, arguments, named):
    """A value of a wrong type must not reach the environment, which would count it as its own fault."""
    try:
        actions = part("browsergym").parse(write_call(call, *arguments, **named), PICTURE)
    except ActionError:
        return
    assert msgspec.json.decode(msgspec.json.encode(actions), type=list[Action]) == actions


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("quartet", 'call add {"a": [%s]}'),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": [%s]}}</tool_call>'),
        ("qwen3_vl", '<tool_call>{"name": "add", "arguments": {"a": [%s]}}</tool_call>'),
    ],
)
def test_an_argument_that_could_not_be_recorded_is_refused(name, text):
    for number in (2**64 - 1, -(2**63)):
        assert part(name).parse(text % number, PICTURE) == [ToolCall(name="add", arguments={"a": [number]})]
    for number in (2**64, -(2**63) - 1, 10**400):
        with pytest.raises(ActionError, match="number too large"):
            part(name).parse(text % number, PICTURE)


TEXT_IS_AN_ANSWER = {"environment", "hermes"}
"""`environment` leaves the response to the environment; in `hermes`, a response without a call is the answer."""


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in TEXT_IS_AN_ANSWER])
@pytest.mark.parametrize(
    "text", ["", "I see a button.", "__import__('os').system('true')", "(" * 100_000, "[" * 100_000]
)
def test_other_text_is_a_short_error(name, text):
    with pytest.raises(ActionError) as refused:
        part(name).parse(text, PICTURE)
    assert len(str(refused.value)) < 80


def click(x: float, y: float, frame) -> Action:
    return Pointer(gesture="click", places=[Point(x, y, frame)])


def tool_call(**arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "ui_tars",
            "Action: click(start_box='(960,546)')",
            [Pointer(gesture="click", places=[Point(960, 546, PICTURE)])],
        ),
        (
            "ui_tars",
            "Thought: Action now.\nAction: click(start_box='<|box_start|>(10,20,30,40)<|box_end|>')",
            [click(20, 30, PICTURE)],
        ),
        (
            "ui_tars",
            "Thought: x\nAction: hotkey(key='ctrl a')\n\ntype(content='it's me\\n')\n\nfinished()",
            [Keyboard(keys=["Control+a"]), Keyboard(text="it's me\n"), Done()],
        ),
        (
            "ui_tars",
            "Thought: x\nAction: hotkey(key='ctrl a')\n\nAction: type(content='a')\nThought: y\nAction: finished()",
            [Keyboard(keys=["Control+a"]), Keyboard(text="a"), Done()],
        ),
        ("ui_tars", "Action: call_user()", [Infeasible()]),
        ("ui_tars", "Action: scroll(direction='down')", [Pointer(gesture="scroll", scrolled=(0, 5))]),
        *[
            (
                "ui_tars",
                f"Action: {call}",
                [Pointer(gesture="drag", places=[Point(1, 2, PICTURE), Point(3, 4, PICTURE)])],
            )
            for call in (
                "drag('<point>1 2</point>', '<point>3 4</point>')",
                "drag('<point>1 2</point>', end_point='<point>3 4</point>')",
                "drag(end_box='(3,4)', start_box='(1,2)')",
            )
        ],
        (
            "ui_tars",
            "Action: scroll(start_box='(3,4)', direction='up')",
            [Pointer(gesture="scroll", places=[Point(3, 4, PICTURE)], scrolled=(0, -5))],
        ),
        (
            "qwen3_vl",
            "I click.\n"
            + tool_call(action="left_click", coordinate=[999, 0])
            + tool_call(action="key", keys=["ctrl", "C"]),
            [Pointer(gesture="click", places=[Point(999, 0, Unit(1000))]), Keyboard(keys=["Control+c"])],
        ),
        ("qwen3_vl", tool_call(action="scroll", pixels=-300), [Pointer(gesture="scroll", scrolled=(0, 3))]),
        ("qwen3_vl", tool_call(action="wait"), [Wait()]),
        ("qwen3_vl", tool_call(action="wait", time=2), [Wait(seconds=2.0)]),
        ("qwen3_vl", tool_call(action="terminate", status="failure"), [Infeasible()]),
        ("qwen3_vl", tool_call(action="terminate", status="success"), [Done()]),
        ("qwen3_vl", '<tool_call>{"name": "open", "arguments": {"a": 1}}', [ToolCall(name="open", arguments={"a": 1})]),
        (
            "browsergym",
            "The form.\n```\nfill('a12', 'it\\'s')\npress(\"a12\", 'Enter')\nclick('b3', button='right')\n```",
            [
                Keyboard(text="it's", place=Element("a12")),
                Keyboard(keys=["Enter"], place=Element("a12")),
                Pointer(gesture="right_click", places=[Element("b3")]),
            ],
        ),
        (
            "browsergym",
            "mouse_down(10, 20, button='left')\nmouse_up(30, 20)\nselect_option('a1', ['x'])",
            [
                Pointer(gesture="down", places=[Point(10, 20)]),
                Pointer(gesture="up", places=[Point(30, 20)]),
                ToolCall(name="select", arguments={"element": "a1", "option": "x"}),
            ],
        ),
        (
            "browsergym",
            "```\nclick('a1')\n\nclick('a2') # twice\n```\nThis opens a menu. Then I would click('a3').",
            [Pointer(gesture="click", places=[Element(ref)]) for ref in ("a1", "a2")],
        ),
        ("browsergym", "report_infeasible('no such page')", [Infeasible(reason="no such page")]),
        (
            "computer_13",
            'So:\n```json\n{"action_type": "CLICK", "parameters": {"x": 5, "y": 6, "num_clicks": 2}}\n```\n```DONE```',
            [Pointer(gesture="double_click", places=[Point(5, 6)]), Done()],
        ),
        (
            "computer_13",
            '{"action_type": "SCROLL", "parameters": {"dy": -3}}',
            [Pointer(gesture="scroll", scrolled=(0, 3))],
        ),
        ("computer_13", "FAIL", [Infeasible()]),
        ("computer_13", '{"action_type": "CLICK", "x": 100, "y": 200}', [click(100, 200, Screen())]),
        ("computer_13", '{"action_type": "CLICK", "parameters": {}}', [Pointer(gesture="click")]),
        (
            "computer_13",
            '{"action_type": "MOUSE_DOWN", "parameters": {"button": "left"}}',
            [Pointer(gesture="down")],
        ),
        (
            "computer_13",
            '[{"action_type": "KEY_DOWN", "parameters": {"key": "shift"}}]',
            [Keyboard(keys=["Shift"], motion="down")],
        ),
    ],
)
def test_responses_of_the_models_are_understood(name, text, expected):
    assert part(name).parse(text, PICTURE) == expected


@pytest.mark.parametrize(
    ("name", "action", "written"),
    [
        ("ui_tars", Keyboard(keys=["Control+c"]), "Action: hotkey(key='ctrl c')"),
        ("ui_tars", Keyboard(keys=["ArrowLeft"]), "Action: hotkey(key='left')"),
        ("ui_tars", Keyboard(keys=["Z"]), "Action: hotkey(key='Z')"),
        ("ui_tars", click(966, 546, PICTURE), "Action: click(point='<point>966 546</point>')"),
        (
            "qwen3_vl",
            Keyboard(keys=["Alt+ArrowLeft"]),
            '<tool_call>\n{"name":"computer_use","arguments":{"action":"key","keys":["alt","left"]}}\n</tool_call>',
        ),
        (
            "qwen3_vl",
            click(500, 250, Unit(1000)),
            '<tool_call>\n{"name":"computer_use","arguments":{"action":"left_click","coordinate":[500,250]}}\n</tool_call>',
        ),
        ("browsergym", Keyboard(keys=["Control+a"], place=Element("b3")), "press('b3', 'Control+a')"),
        ("browsergym", ToolCall(name="select", arguments={"element": "b3", "option": "x"}), "select_option('b3', 'x')"),
        (
            "computer_13",
            Keyboard(keys=["Control+Shift+ArrowUp"]),
            '```json\n{"action_type":"HOTKEY","parameters":{"keys":["ctrl","shift","up"]}}\n```',
        ),
        (
            "computer_13",
            Keyboard(keys=["Escape"], motion="down"),
            '```json\n{"action_type":"KEY_DOWN","parameters":{"key":"esc"}}\n```',
        ),
        (
            "computer_13",
            click(5, 6, Screen()),
            '```json\n{"action_type":"CLICK","parameters":{"x":5,"y":6}}\n```',
        ),
    ],
)
def test_actions_are_written_in_the_words_of_the_models(name, action, written):
    assert part(name).write([action]) == written


@pytest.mark.parametrize(
    ("name", "own", "frame"),
    [
        ("ui_tars", {}, Screen()),
        ("ui_tars", {}, Unit(1000)),
        ("ui_tars", {"coordinates": "thousandths"}, Unit(999)),
        ("ui_tars", {"coordinates": "thousandths"}, PICTURE),
        ("qwen3_vl", {"parts": 999}, Unit(1000)),
        ("qwen3_vl", {}, Screen()),
        ("browsergym", {}, PICTURE),
        ("computer_13", {}, Unit(1000)),
    ],
)
def test_a_point_of_another_frame_is_not_written(name, own, frame):
    with pytest.raises(UnwritableError):
        part(name, **own).write([click(500, 250, frame)])


def test_the_instructions_state_the_size_of_the_coordinates():
    assert "999 x 999" in part("qwen3_vl", parts=999).instructions
    assert "1000 x 1000" in part("qwen3_vl").instructions


def computer_13(action_type: str, **parameters) -> str:
    return json.dumps({"action_type": action_type, "parameters": parameters})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("browsergym", "mouse_down(10, 20, 'right')"),
        ("browsergym", "mouse_down(10, 20, gesture='left')"),
        ("browsergym", "mouse_move(10, 20, 'left')"),
        ("browsergym", "mouse_click(True, 3)"),
        ("browsergym", "noop(True)"),
        ("browsergym", "select_option('a1', ['x', 'y'])"),
        ("browsergym", "select_option('a1', [])"),
        ("browsergym", "select_option('a1', 3)"),
        ("qwen3_vl", tool_call(action="left_click", position=[1, 2])),
        ("qwen3_vl", tool_call(action="left_click", coordinate=[1])),
        ("qwen3_vl", tool_call(action="left_click", coordinate=[10**400, 1])),
        ("qwen3_vl", tool_call(action="wait", time=10**400)),
        ("browsergym", "click('a1')\nclick(a2)"),
        ("ui_tars", "Action: wait()\nThis opens a menu."),
        ("ui_tars", "Action: scroll(point='', direction='down')"),
        ("ui_tars", "Action: scroll(direction='down', start_box=3)"),
        ("ui_tars", "Action: drag('<point>10 10</point>')"),
        (
            "ui_tars",
            "Action: drag(start_point='<point>1 1</point>', start_box='(1,1)', end_point='<point>2 2</point>')",
        ),
        ("ui_tars", "Action: drag('<point>1 1</point>', '<point>2 2</point>', '<point>3 3</point>')"),
        ("ui_tars", "Action: click('<point>1 1</point>', '<point>2 2</point>')"),
        ("ui_tars", "Action: click(point='<point>1 1</point>', button='right')"),
        ("ui_tars", "Action: scroll('<point>1 1</point>', 'down', 5)"),
        ("computer_13", computer_13("CLICK", x=100)),
        ("computer_13", computer_13("CLICK", position=[1, 2])),
        ("computer_13", json.dumps({"action_type": "CLICK", "x": 100})),
        ("computer_13", json.dumps({"action_type": "CLICK", "parameters": {}, "x": 1, "y": 2})),
        ("computer_13", computer_13("CLICK", x=1, y=2, text="a")),
        ("computer_13", computer_13("CLICK", x=1, y=2, button="right", num_clicks=2)),
        ("computer_13", computer_13("CLICK", x=True, y=2)),
        ("computer_13", computer_13("CLICK", x=10**400, y=2)),
        ("computer_13", computer_13("CLICK", x=1, y=2, num_clicks=10**400)),
        ("computer_13", computer_13("SCROLL", dy=-(10**400))),
        ("computer_13", computer_13("DRAG_TO", x=5)),
        ("computer_13", computer_13("DRAG_TO")),
        ("computer_13", computer_13("MOUSE_DOWN", button="right")),
        ("computer_13", computer_13("MOUSE_UP", button="middle")),
        ("computer_13", computer_13("SCROLL")),
        ("computer_13", computer_13("DONE", answer="x")),
        ("computer_13", '{"action_type": "CLICK", "parameters": null}'),
        ("computer_13", '{"action_type": 3}'),
        ("computer_13", '{"parameters": {}}'),
    ],
)
def test_wrong_arguments_are_refused_and_no_other_action(name, text):
    with pytest.raises(ActionError) as refused:
        part(name).parse(text, PICTURE)
    assert len(str(refused.value)) < 80


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen3_vl", tool_call(action="left_click", coordinate=[10**400, 5])),
        ("qwen3_vl", tool_call(action="wait", time=10**400)),
        ("computer_13", computer_13("CLICK", x=10**400, y=5)),
        ("computer_13", computer_13("SCROLL", dx=0, dy=-(10**400))),
    ],
)
def test_an_integer_that_no_float_can_hold_is_too_large(name, text):
    with pytest.raises(ActionError, match="number too large"):
        part(name).parse(text, PICTURE)


@pytest.mark.parametrize(
    ("key", "canonical"),
    [("ctrlleft", "Control"), ("shiftright", "Shift"), ("winleft", "Meta"), ("printscreen", "PrintScreen")],
)
def test_keys_of_osworld_are_known(key, canonical):
    (pressed,) = part("computer_13").parse(computer_13("PRESS", key=key), PICTURE)
    assert pressed == Keyboard(keys=[canonical])


def test_every_call_of_the_instructions_is_understood_as_they_spell_it():
    """The parameters are given by the names in the instructions of `browsergym`."""
    values = {"bid": "a1", "from_bid": "a1", "to_bid": "a2", "button": "left", "key_comb": "Enter", "key": "Enter"}
    values |= dict.fromkeys(["value", "options", "text", "reason"], "x")
    calls = re.findall(r"(\w+)\(([a-z_]+[^)]*)\)", part("browsergym").instructions)
    assert len(calls) > 15
    for name, parameters in calls:
        names = [parameter.split("=")[0] for parameter in parameters.split(", ")]
        text = write_call(name, **{parameter: values.get(parameter, 7) for parameter in names})
        (action,) = part("browsergym").parse(text, PICTURE)
        assert not isinstance(action, ToolCall) or action.name == "select", "no environment performs it"


def test_coordinates_keep_the_frame_of_their_model():
    old, exact = part("ui_tars", coordinates="thousandths"), part("qwen3_vl", parts=999)
    said = "Action: click(point='<point>500 250</point>')"
    assert old.parse(said, PICTURE) == [click(500, 250, Unit(1000))]
    (said_click,) = exact.parse(tool_call(action="left_click", coordinate=[1, 2]), PICTURE)
    assert said_click == click(1, 2, Unit(999))
    with pytest.raises(UnwritableError):
        part("qwen3_vl").write([said_click])


@pytest.mark.parametrize("length", [20_000, 80_000])
@pytest.mark.parametrize(
    "begin, repeated", [("Action: type(content='", "' "), ("click(", "'a',"), ("click(['", "a"), ("f(", " ")]
)
def test_a_long_response_is_read_in_linear_time(begin, repeated, length):
    for name in ("ui_tars", "browsergym"):
        with pytest.raises(ActionError):
            part(name).parse(begin + repeated * (length // len(repeated)), PICTURE)


def recipe(**rollout):
    return parse_recipe({"name": "x", "model": {"path": "/m"}, "env": {"name": "bandit"}, "rollout": rollout}, "test")


def test_a_recipe_names_its_format():
    with pytest.raises(ConfigError, match=r"(?s)unknown action_format 'ui_tar'.*Did you mean 'ui_tars'"):
        recipe(actions="ui_tar")
    with pytest.raises(ConfigError, match="the environment 'bandit' reads responses itself"):
        recipe(actions="ui_tars")
    assert recipe().rollout.actions.name == "environment"
