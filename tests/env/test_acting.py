"""Typed actions on a real page: a click lands where the picture shows its target, in every format's coordinates."""

from collections.abc import AsyncIterator
from io import BytesIO

import pytest
import pytest_asyncio
from desk import Desk
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from quartet import config
from quartet.actions.format.location_tokens import middle_of_part
from quartet.env.hands import Hands
from quartet.env.miniwob.env import MiniWobPool, MiniWobSession
from quartet.env.page import Page
from quartet.env.performing import perform_all
from quartet.policy.kind.qwen_vl import QwenPictures
from quartet.policy.make_vision import make_processor, picture_tokens, vision_tokenizer
from quartet.policy.renderer import Renderer
from quartet.registry import build
from quartet.rollout.formatted_env import FormattedEnv
from quartet.types import Action, Done, Keyboard, Outcome, Pointer, Task, Wait
from quartet.types.frame import Point, Resized, Screen, Unit, from_screen

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

DOT = 5
"""Width in pixels of the dot that the page draws where it is clicked."""
PAGE = f"""
document.body.innerHTML =
  '<div style="position:absolute;left:201px;top:37px;width:40px;height:24px;background:#0f0">'
log = []
for (const kind of ['mousedown', 'mouseup', 'dblclick', 'contextmenu', 'keydown', 'keyup', 'wheel'])
  addEventListener(kind, (event) =>
    log.push([kind, event.button ?? 0, event.detail ?? 0, event.key ?? '', event.shiftKey]))
addEventListener('mousedown', ({{ clientX, clientY }}) => {{
  const dot = Object.assign(document.createElement('div'), {{ id: 'dot' }})
  dot.style.cssText = `position:absolute;pointer-events:none;background:#f00;width:{DOT}px;height:{DOT}px;` +
    `left:${{clientX - {DOT // 2}}}px;top:${{clientY - {DOT // 2}}}px`
  document.body.append(dot)
}})
"""
FIELD = "document.body.innerHTML = '<input>'; document.querySelector('input').focus()"


async def shown(page: Page) -> Image.Image:
    return Image.open(BytesIO(await page.screenshot())).convert("RGB")


def middle_of(colour: int, picture: Image.Image) -> tuple[float, float]:
    """Return the middle of all pixels in which the channel `colour` is much stronger than the others."""
    places = [
        (x, y)
        for x in range(picture.width)
        for y in range(picture.height)
        if (pixel := picture.getpixel((x, y)))[colour] > 150 and sum(pixel) - pixel[colour] < 160
    ]
    return sum(x for x, _ in places) / len(places) + 0.5, sum(y for _, y in places) / len(places) + 0.5


FRAMES = {
    "ui_tars": Resized,
    "qwen3_vl": Unit(1000),
    "quartet": Screen(),
    "browsergym": Screen(),
    "computer_13": Screen(),
    "location_tokens": Unit(64),
}


@pytest.mark.parametrize("name", FRAMES)
async def test_a_click_at_what_the_resized_picture_shows_hits_it(desk: Desk, name: str) -> None:
    """The model's side finds the target in the picture that it reads; the page draws a dot where it was clicked."""
    await desk.page.navigate("about:blank")
    await desk.page.evaluate(PAGE)
    screen = await shown(desk.page)
    height, width = smart_resize(screen.height, screen.width, 28, 56 * 56, 12_845_056)
    picture = Resized(width, height)
    assert (width, height) != screen.size
    x, y = middle_of(1, screen.resize((width, height)))
    frame = picture if FRAMES[name] is Resized else FRAMES[name]
    seen = Point(x, y, picture)
    on_screen = x * screen.width / width, y * screen.height / height
    said = seen if frame == picture else from_screen(*on_screen, frame, *screen.size)
    said = Point(round(said.x), round(said.y), frame)
    if name == "location_tokens":  # the format that the recipe `pixels` trains with: a part's middle
        said = middle_of_part(*on_screen, *screen.size, 64)
    tolerances = [0.5 * extent / said.frame.parts if name == "location_tokens" else 0.5 for extent in screen.size]

    format = build(config.ActionFormat(name=name))
    text = format.write([Pointer(gesture="click", places=[said])])
    (action,) = format.parse(text, picture)
    (point,) = await Hands(desk.page).perform(action)

    dotted = await shown(desk.page)
    for drawn, told, wanted, tolerance in zip(middle_of(0, dotted), point, (221, 49), tolerances, strict=True):
        assert drawn == pytest.approx(wanted, abs=tolerance + 1)
        assert told == pytest.approx(wanted, abs=tolerance + 0.5)
    assert dotted.getpixel((int(point[0]), int(point[1])))[0] > 200


async def events(desk: Desk, *kinds: str) -> list[list]:
    return [event for event in await desk.page.evaluate("log") if event[0] in kinds]


async def over(action: Action) -> bool:
    return isinstance(action, Done)


async def act(desk: Desk, *actions: Action) -> list[Outcome]:
    return [taken.outcome for taken in await perform_all(actions, Hands(desk.page), over)]


async def test_every_gesture_reaches_the_page(desk: Desk) -> None:
    await desk.page.navigate("about:blank")
    await desk.page.evaluate(PAGE)
    await desk.page.isolate()
    place = [Point(100, 100)]
    await act(desk, Pointer(gesture="triple_click", places=place), Pointer(gesture="right_click", places=place))
    assert [event[1:3] for event in await events(desk, "mousedown")] == [[0, 1], [0, 2], [0, 3], [2, 1]]
    assert await events(desk, "contextmenu", "dblclick") != []
    await desk.page.evaluate("log.length = 0")
    await act(desk, Pointer(gesture="middle_click", places=place), Pointer(gesture="move", places=[Point(9, 9)]))
    assert [event[1] for event in await events(desk, "mousedown", "mouseup")] == [1, 1]
    assert desk.page.pointer == (9, 9)
    await act(desk, Pointer(gesture="drag", places=[Point(20, 20)]), Wait(seconds=0))
    assert [event[0] for event in await events(desk, "mousedown", "mouseup")][2:] == ["mousedown", "mouseup"]
    await act(desk, Pointer(gesture="scroll", places=place, scrolled=(1, 2)), Pointer(gesture="long_press"))
    assert len(await events(desk, "wheel")) == 1


async def test_keys_and_buttons_are_released_after_an_error(desk: Desk) -> None:
    await desk.page.navigate("about:blank")
    await desk.page.evaluate(PAGE)
    held = [Keyboard(keys=["Control", "Shift"], motion="down"), Pointer(gesture="down", places=[Point(5, 5)])]
    outcomes = await act(desk, *held, Pointer(gesture="click", places=[Point(900, 5)]), Keyboard(text="x"))
    assert outcomes == [Outcome.DONE, Outcome.DONE, Outcome.REFUSED, Outcome.ENDED]
    assert [event[3] for event in await events(desk, "keydown")] == ["Control", "Shift"]
    assert [event[3] for event in await events(desk, "keyup")] == ["Shift", "Control"]
    assert len(await events(desk, "mouseup")) == 1
    await act(desk, Keyboard(keys=["a"]))
    assert (await events(desk, "keydown"))[-1][3:] == ["a", False]


async def test_shift_with_a_character_types_what_the_key_shows(desk: Desk) -> None:
    await desk.page.navigate("about:blank")
    await desk.page.evaluate(PAGE + FIELD)
    keys = Keyboard(keys=["Shift+a", "Shift+1", "Shift+/", "Shift+Space", "b"])
    await act(desk, keys, Keyboard(keys=["Shift"], motion="down"), Keyboard(keys=["c", "é"]))
    assert await desk.page.evaluate("document.querySelector('input').value") == "A!? bCé"
    assert [event[3:] for event in await events(desk, "keydown")][:2] == [["A", True], ["!", True]]


async def test_every_key_of_a_hotkey_is_held(desk: Desk) -> None:
    """Held once, also if it is named twice."""
    await desk.page.navigate("about:blank")
    await desk.page.evaluate(PAGE + FIELD)
    down, again = (Keyboard(keys=[keys], motion="down") for keys in ("Control+a", "Control+Shift"))
    await act(desk, down, again, Keyboard(keys=["Control+a"], motion="up"))
    assert [event[3] for event in await events(desk, "keydown")] == ["Control", "a", "Shift"]
    assert [event[3] for event in await events(desk, "keyup")] == ["A", "Control", "Shift"]
    assert await desk.page.evaluate("document.querySelector('input').value") == ""


async def test_keys_are_held_during_every_gesture(desk: Desk) -> None:
    await desk.page.navigate("about:blank")
    await desk.page.evaluate(PAGE)
    places = [Point(20, 20), Point(60, 60)]
    gestures = [
        Pointer(gesture="drag", places=places),
        Pointer(gesture="drag", places=places[:1]),
        Pointer(gesture="down"),
        Pointer(gesture="up"),
        Pointer(gesture="long_press"),
        Pointer(gesture="click"),
    ]
    await act(desk, Keyboard(keys=["Shift"], motion="down"), *gestures)
    assert [event[4] for event in await events(desk, "mousedown", "mouseup")] == [True] * 10


async def test_nothing_is_done_after_the_policy_has_finished(desk: Desk) -> None:
    await desk.page.navigate("about:blank")
    await desk.page.evaluate(PAGE)
    assert await act(desk, Done(), Pointer(gesture="click", places=[Point(5, 5)])) == [Outcome.DONE, Outcome.ENDED]
    assert await events(desk, "mousedown") == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session() -> AsyncIterator[MiniWobSession]:
    pool = MiniWobPool(config.Env(name="miniwob", sessions=1))
    env = await pool.acquire()
    assert isinstance(env, MiniWobSession)
    yield env
    await pool.close()


async def test_a_task_is_solved_by_several_actions_of_one_response(session: MiniWobSession) -> None:
    tokenizer = vision_tokenizer(["a"], 1024)
    renderer = Renderer(tokenizer, QwenPictures(make_processor(14, 2**16), picture_tokens(tokenizer)))
    task = Task(env="miniwob", family="enter-text", seed=3)
    seen = await session.reset(task)
    places = [
        line.partition(" [")[2].rstrip("]") for line in seen.text.splitlines() if line.startswith(("input", "button"))
    ]
    field, button = [(await session.step(f"click [{place.split(']')[0]}]")).actions[0].points[0] for place in places]

    env = FormattedEnv(session, build(config.ActionFormat(name="ui_tars")), renderer)
    seen = await env.reset(task)
    wanted = seen.goal.split('"')[1]
    frame = renderer.picture_frame(seen.pictures)
    assert frame == Resized(168, 224)
    malformed = await env.step("Thought: I type.\nAction: type(")
    assert (malformed.observation.error, malformed.terminated) == ("malformed arguments of type", False)
    assert [taken.outcome for taken in malformed.actions] == [Outcome.PARSE_ERROR]
    at = [from_screen(*point, frame, 160, 210) for point in (field, button)]
    clicks = [f"click(point='<point>{round(point.x)} {round(point.y)}</point>')" for point in at]
    result = await env.step(
        f"Thought: fill and send.\nAction: {clicks[0]}\n\ntype(content='{wanted}')\n\n{clicks[1]}\n\nwait()"
    )
    assert result.info["success"], result
    assert [taken.outcome for taken in result.actions] == [*[Outcome.DONE] * 3, Outcome.ENDED]
    assert result.actions[1].canonical == f"Action: type(content='{wanted}')"
    assert result.actions[0].points[0] == pytest.approx(field, abs=1)
