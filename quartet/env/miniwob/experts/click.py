"""Experts for pages on which the goal names the element to click, which may be in a hidden tab or section."""

from collections.abc import Generator

from .goal import ordinal, parts, quoted
from .page import Page, click


def named_button(goal: str, page: Page) -> str:
    """click-button, click-dialog and -2: `Click on the "next" button.`, `Close the dialog box by clicking the "x".`"""
    (label,) = quoted(goal)
    return click(page.find("button", label))


def bare_button(goal: str, page: Page) -> str:
    """click-test-2: `Click button ONE.`"""
    (label,) = parts(r"Click button (\w+)\.", goal)
    return click(page.find("button", label))


def named_link(goal: str, page: Page) -> str:
    """click-link: `Click on the link "amet".`"""
    (label,) = quoted(goal)
    return click(page.find("link", label))


def nth_input(goal: str, page: Page) -> str:
    """focus-text and -2: `Focus into the textbox.`, `Focus into the 2nd input textbox.`"""
    (position,) = parts(r"Focus into the (?:(\w+) input )?textbox\.", goal)
    return click(page.find("input", nth=ordinal(position) if position else 0))


def link_behind_tab(goal: str, page: Page) -> str:
    """click-tab-2: click the link if the open tab shows it, else open the next tab."""
    (label,) = quoted(goal)
    if page.has("link", label):
        return click(page.find("link", label))
    tabs = page.all("tab")
    selected = next(index for index, tab in enumerate(tabs) if "selected" in tab.states)
    return click(tabs[(selected + 1) % len(tabs)])


def unfold_and_submit(goal: str, page: Page) -> str:
    """click-collapsible: expand the only section, then click the button Submit."""
    header = page.find("tab")
    return click(header if "expanded" not in header.states else page.find("button", "Submit"))


def link_in_section(goal: str, page: Page) -> str:
    """click-collapsible-2: click the link if an expanded section shows it, else expand the next section."""
    (label,) = quoted(goal)
    if page.has("link", label):
        return click(page.find("link", label))
    headers = page.all("tab")
    expanded = [index for index, header in enumerate(headers) if "expanded" in header.states]
    return click(headers[(expanded[0] + 1) % len(headers) if expanded else 0])


def named_tab(goal: str, page: Page) -> str:
    """click-tab: `Click on Tab #2.`"""
    (label,) = parts(r"Click on (.*)\.", goal)
    return click(page.find("tab", label))


def only_button(goal: str, page: Page) -> str:
    """click-test: `Click the button.`"""
    return click(page.find("button"))


def widget(goal: str, page: Page) -> str:
    """click-widget: `Click on a "textarea" widget.`, one of several kinds."""
    (kind,) = quoted(goal)
    return click(page.find("input" if kind == "text" else kind))


def one_then_two(goal: str, page: Page) -> Generator[str, Page, None]:
    """click-button-sequence: `Click button ONE, then click button TWO.`"""
    yield click(page.find("button", "ONE"))
    yield click(page.find("button", "TWO"))
