"""Every kind of action in the real browser, and what happens when the browser fails."""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from desk import PAGES, Desk

from quartet.actions.grammar import parse_action
from quartet.env.browser import Browser, find_chromium
from quartet.env.framing import Framer
from quartet.env.hands import ActionFailedError
from quartet.errors import EnvError, SetupError

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

BLANK = "about:blank"
LABELS = """\
input In a label [1]
input Left cell [2]
input Below it [3]
input Beside it [4]
input 1st [5]
input Placeholder [6]
radio 1st [7]
radio 2nd [8]
checkbox Ticked box [9] checked
input Spoken [10] = "say 'hi' (now)"
button x [11]
button Send [12] disabled
link Real link [13]
text Words and [14]
link styled link [15]
text and more [16]
button Styled button [17]
tab Section [18] expanded
tab Tab 1 [19] selected
tab Tab 2 [20]
text Plain bold text [21]"""


async def do(desk: Desk, action: str) -> str:
    await desk.hands.perform(parse_action(action))
    return await desk.read()


async def logged(desk: Desk, kind: str) -> list[tuple[str, str]]:
    """(element, key) of the events of a kind; all of them must be trusted."""
    events = [event for event in await desk.page.evaluate("log") if event["kind"] == kind]
    assert all(event["trusted"] for event in events)
    return [(event["on"], event["key"]) for event in events]


async def test_labels_and_states(desk: Desk) -> None:
    assert await desk.open("labels.html") == LABELS


async def test_click_waits_for_what_it_causes(desk: Desk) -> None:
    await desk.open("actions.html")
    text = await do(desk, f"click Go [{await desk.ref('button Go')}]")
    assert text.startswith("button Went [1] focused")
    assert await logged(desk, "click") == [("go", "")]


async def test_click_at_a_place(desk: Desk) -> None:
    await desk.open("actions.html")
    await do(desk, "click (10,10)")
    assert await logged(desk, "click") == [("go", "")]
    with pytest.raises(ActionFailedError, match="outside the page"):
        await do(desk, "click (300,10)")


async def test_type_replaces_and_presses_real_keys(desk: Desk) -> None:
    await desk.open("actions.html")
    ref = await desk.ref("input Name")
    assert f'input Name [{ref}] = "néw" focused' in await do(desk, f'type Name [{ref}] "néw"')
    assert [key for _, key in await logged(desk, "keyup")][-3:] == ["n", "é", "w"]
    assert f"input Name [{ref}] focused" in await do(desk, f'type Name [{ref}] ""')


async def test_delayed_changes_of_a_page_are_observed(desk: Desk) -> None:
    await desk.open("actions.html")
    assert "hint for cat" in await do(desk, f'type [{await desk.ref("input Word")}] "cat"')


async def test_keys(desk: Desk) -> None:
    await desk.open("actions.html")
    ref = await desk.ref("input Name")
    await do(desk, f'type [{ref}] "ab"')
    await do(desk, "key Control+a")
    assert f'input Name [{ref}] = "Z"' in await do(desk, "key Z")
    assert f"input Name [{ref}] focused" in await do(desk, "key Backspace")
    assert "checkbox Agree" in (await do(desk, "key Tab"))
    assert "checked focused" in await do(desk, "key Space")


@pytest.mark.parametrize("option", ["Sweden", "Spa", "Spain", "spa"])
async def test_select_in_a_closed_list(desk: Desk, option: str) -> None:
    await desk.open("actions.html")
    ref = await desk.ref("select")
    text = await do(desk, f'select [{ref}] "{option}"')
    assert f'[{ref}] = "{option.capitalize()}" focused' in text
    assert len(await logged(desk, "change")) == (option != "Spain")


async def test_select_what_cannot_be_selected(desk: Desk) -> None:
    await desk.open("actions.html")
    with pytest.raises(ActionFailedError, match="no option Atlantis"):
        await do(desk, f'select [{await desk.ref("select")}] "Atlantis"')
    with pytest.raises(ActionFailedError, match="no list"):
        await do(desk, f'select [{await desk.ref("button Go")}] "Spain"')


async def test_select_adds_to_an_open_list(desk: Desk) -> None:
    text = await desk.open("actions.html")
    box = next(line for line in text.splitlines() if line.startswith("select 2nd"))
    await do(desk, f'{box} "Di"')
    text = await do(desk, f"click Ann [{await desk.ref('option Ann')}]")
    assert [line.split()[1] for line in text.splitlines() if line.endswith("selected")] == ["Ann", "Di"]
    text = await do(desk, f"click Di [{await desk.ref('option Di')}]")
    assert [line.split()[1] for line in text.splitlines() if line.endswith("selected")] == ["Ann"]


async def test_scroll(desk: Desk) -> None:
    await desk.open("actions.html")
    await do(desk, "move (280,20)")
    await do(desk, "scroll down")
    assert await logged(desk, "wheel")
    scrolled = await desk.page.evaluate("scrollY")
    assert scrolled > 0
    await do(desk, "scroll up")
    assert await desk.page.evaluate("scrollY") < scrolled


async def test_a_scroll_without_a_place_is_where_the_pointer_is(desk: Desk) -> None:
    await desk.open("actions.html")
    box = await desk.page.evaluate(
        "(({ left, top }) => [Math.ceil(left), Math.ceil(top)])(at('pane').getBoundingClientRect())"
    )
    scrolls = "[scrollY, at('pane').scrollTop]"
    await do(desk, f"move ({box[0] + 5},{box[1] + 5})")
    await do(desk, "scroll down")
    page, pane = await desk.page.evaluate(scrolls)
    assert (page, pane > 0) == (0, True)
    await do(desk, "move (280,20)")
    await do(desk, "scroll down")
    assert (await desk.page.evaluate(scrolls))[0] > 0
    assert (await desk.page.evaluate(scrolls))[1] == pane


async def test_drag(desk: Desk) -> None:
    await desk.open("actions.html")
    source, target = await desk.ref("text from"), await desk.ref("text into")
    await do(desk, f"drag from [{source}] to into [{target}]")
    assert await logged(desk, "drop") == [("target", "")]


async def test_an_action_tells_where_it_pointed(desk: Desk) -> None:
    await desk.open("actions.html")
    assert await desk.hands.perform(parse_action("click (10,10)")) == [(10, 10)]
    assert await desk.hands.perform(parse_action("key Tab")) == []
    source, target = await desk.ref("text from"), await desk.ref("text into")
    ends = await desk.hands.perform(parse_action(f"drag from [{source}] to into [{target}]"))
    under = [await desk.page.evaluate(f"document.elementFromPoint({x}, {y}).id") for x, y in ends]
    assert under == ["source", "target"]


async def test_a_far_element_is_scrolled_to(desk: Desk) -> None:
    await desk.open("actions.html")
    await do(desk, f"click [{await desk.ref('button Far')}]")
    assert await logged(desk, "click") == [("far", "")]


async def test_what_cannot_be_clicked(desk: Desk) -> None:
    await desk.open("actions.html")
    ref = await desk.ref("button Below")
    with pytest.raises(ActionFailedError, match=rf"covered \[{ref}\]"):
        await do(desk, f"click [{ref}]")
    with pytest.raises(ActionFailedError, match=r"no element \[150\]"):
        await do(desk, "click [150]")
    with pytest.raises(ActionFailedError, match="no text field"):
        await do(desk, f'type [{await desk.ref("button Go")}] "x"')


@pytest.mark.parametrize("kind", ["reset", "image", "file", "color"])
async def test_no_text_is_typed_into_an_input_without_text(desk: Desk, kind: str) -> None:
    await desk.open("actions.html")
    await desk.page.evaluate(f"document.body.innerHTML = '<input id=only type={kind} alt=One aria-label=One>'")
    (line,) = (await desk.read()).splitlines()
    with pytest.raises(ActionFailedError, match=r"no text field \[\d+\]"):
        await do(desk, f'type One [{line.split("[")[1].split("]")[0]}] "x"')
    assert await logged(desk, "click") == []


async def test_references_stay_with_their_elements(desk: Desk) -> None:
    await desk.open("actions.html")
    before = await desk.ref("button Far")
    await desk.page.evaluate(
        "at('go').remove(), at('name').after(Object.assign(document.createElement('button'), {textContent: 'New'}))"
    )
    assert await desk.ref("button Far") == before
    assert await desk.ref("button New") > before


async def test_no_two_elements_share_a_reference(desk: Desk) -> None:
    """Once all references are taken, a new element gets that of an element that left, and this one may come back."""
    await desk.open("actions.html")
    await desk.page.evaluate("document.body.innerHTML = '<button>x</button>'.repeat(199)")
    await desk.read()
    await desk.page.evaluate("gone = document.body.firstChild, gone.replaceWith(document.createElement('textarea'))")
    taken = await desk.ref("textarea")
    await desk.page.evaluate("document.body.lastChild.replaceWith(gone)")
    references = re.findall(r"\[\d+\]", await desk.read())
    assert f"[{taken}]" in references and len(set(references)) == len(references) == 199


async def test_script_errors_and_silence_are_env_errors(desk: Desk) -> None:
    with pytest.raises(EnvError, match="no_such_thing"):
        await desk.page.evaluate("no_such_thing()")
    with pytest.raises(EnvError, match="no answer within"):
        await desk.page.evaluate("new Promise(() => 0)", timeout_seconds=0.05)
    with pytest.raises(EnvError, match="cannot load"):
        await desk.page.navigate("file:///there/is/no/such.html")


async def test_a_page_crash_ends_its_calls_and_spares_the_browser(browser: Browser) -> None:
    page = await browser.new_page(BLANK, width=100, height=100)
    pending = asyncio.ensure_future(page.evaluate("new Promise(() => 0)"))
    await page.crash()
    with pytest.raises(EnvError, match="crashed"):
        await pending
    with pytest.raises(EnvError, match="crashed"):
        await page.evaluate("1")
    await page.close()
    other = await browser.new_page(BLANK, width=100, height=100)
    assert await other.evaluate("1 + 1") == 2
    await other.close()


async def test_browser_death_fails_pending_calls() -> None:
    browser = await Browser.start()
    page = await browser.new_page(BLANK, width=100, height=100)
    pending = asyncio.ensure_future(page.evaluate("new Promise(() => 0)"))
    await asyncio.sleep(0)
    os.kill(browser.pid, signal.SIGKILL)
    with pytest.raises(EnvError, match="died"):
        await pending
    assert not browser.alive
    await browser.close()


async def test_close_leaves_nothing_behind() -> None:
    browser = await Browser.start()
    await browser.new_page(BLANK, width=100, height=100)
    process = psutil.Process(browser.pid)
    family = [process, *process.children(recursive=True)]
    profile = next(Path(part.partition("=")[2]) for part in process.cmdline() if part.startswith("--user-data-dir"))
    assert profile.is_dir()
    assert len(family) > 2
    await browser.close()
    await browser.close()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    assert not profile.exists()


@pytest.mark.parametrize("program", ["chromium", "chromium-headless-shell"])
async def test_a_killed_browser_leaves_nothing_among_the_temporary_files(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chromium with windows keeps a socket there too."""
    monkeypatch.setenv("QUARTET_CHROMIUM", shutil.which(program) or find_chromium())
    with tempfile.TemporaryDirectory(prefix="q-") as folder:  # short: the path of a socket has a hundred characters
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        browser = await Browser.start()
        await browser.new_page(BLANK, width=100, height=100)
        os.killpg(browser.pid, signal.SIGKILL)
        assert len(list(Path(folder).iterdir())) == 1
        await browser.close()
        assert list(Path(folder).iterdir()) == []


KILLED = """
import asyncio, os, signal
from quartet.env.browser import Browser

async def main():
    browser = await Browser.start()
    await browser.new_page("about:blank", width=100, height=100)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_killed_owner_leaves_neither_a_browser_nor_a_profile() -> None:
    with tempfile.TemporaryDirectory(prefix="q-") as folder:
        environment = {**os.environ, "TMPDIR": folder}
        owner = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, env=environment)
        assert await owner.wait() == -signal.SIGKILL
        async with asyncio.timeout(60):
            while list(Path(folder).iterdir()) or _processes_naming(folder):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


def _processes_naming(folder: str) -> list[psutil.Process]:
    """Return the processes of a browser's profile in the folder, and those that delete it."""
    return [process for process in psutil.process_iter() if folder in " ".join(command_of(process))]


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []  # it has just ended


async def test_a_page_that_floods_or_cannot_be_decoded_fails_alone(browser: Browser) -> None:
    honest = await browser.new_page(BLANK, width=100, height=100)
    for expression, problem in [("'x'.repeat(60e6)", "more than"), ("'half a pair: \\ud83d'", "cannot be decoded")]:
        hostile = await browser.new_page(BLANK, width=100, height=100)
        with pytest.raises(EnvError, match=problem):
            await hostile.evaluate(expression)
        assert await honest.evaluate("1 + 1") == 2
        await hostile.close()
    await honest.close()


async def test_console_output_of_a_page_is_not_transferred(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    page = await browser.new_page(BLANK, width=100, height=100)
    received: list[int] = []
    feed = Framer.feed
    monkeypatch.setattr(Framer, "feed", lambda self, data: received.append(len(data)) or feed(self, data))
    await page.evaluate("console.log('x'.repeat(6e6)), 0")
    await page.evaluate("0")
    assert sum(received) < 10_000
    await page.close()


async def test_windows_that_a_page_opens_are_closed(browser: Browser) -> None:
    page = await browser.new_page(BLANK, width=100, height=100)
    before = await open_pages(browser)
    await page.evaluate(
        "document.body.innerHTML = '<a id=a href=about:blank>x</a>', document.getElementById('a').focus()"
    )
    await page.press("Control+Enter", "Shift+Enter")
    await page.evaluate("for (let i = 0; i < 20; i++) open('about:blank', `w${i}`); 0")
    async with asyncio.timeout(60):
        while await open_pages(browser) != before:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await page.close()


async def test_a_page_whose_opening_is_cancelled_is_closed(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await open_pages(browser)
    opening = asyncio.create_task(browser.new_page(BLANK, width=100, height=100))
    send = browser.connection.send

    def send_and_cancel(session_id: str, method: str, params: dict[str, Any]) -> "asyncio.Future[dict[str, Any]]":
        if method == "Target.attachToTarget":
            opening.cancel()
        return send(session_id, method, params)

    monkeypatch.setattr(browser.connection, "send", send_and_cancel)
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with asyncio.timeout(60):
        while await open_pages(browser) - before:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def open_pages(browser: Browser) -> set[str]:
    targets = (await browser.connection.browser.call("Target.getTargets"))["targetInfos"]
    return {target["targetId"] for target in targets if target["type"] == "page"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_no_page_reaches_a_server_of_this_machine(browser: Browser, host: str) -> None:
    connections: list[object] = []
    server = await asyncio.start_server(lambda _, writer: connections.append(writer), "localhost", 0)
    page = await browser.new_page((PAGES / "labels.html").as_uri(), width=100, height=100)
    for listening in server.sockets:
        url = f"http://{host}:{listening.getsockname()[1]}/"
        fetched = f"fetch('{url}', {{ mode: 'no-cors' }}).then(() => 'reached', () => 'blocked')"
        assert await page.evaluate(fetched) == "blocked"
        with pytest.raises(EnvError, match="cannot load"):
            await page.navigate(url)
    assert connections == []
    await page.close()
    server.close()


async def test_a_missing_browser_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTET_CHROMIUM", "no-such-browser")
    with pytest.raises(SetupError, match="QUARTET_CHROMIUM"):
        await Browser.start()
    monkeypatch.delenv("QUARTET_CHROMIUM")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SetupError, match="apt-get install chromium"):
        await Browser.start()


async def test_a_browser_that_does_not_start_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTET_CHROMIUM", "false")
    with pytest.raises(SetupError, match="did not start"):
        await Browser.start()
