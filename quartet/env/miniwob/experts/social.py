"""Experts for a feed of posts: press a button of one post, or of several."""

from collections.abc import Generator

from .goal import parts
from .page import Element, Page, click

ICONS = ("Reply", "Retweet", "Like")
"""Buttons of a post that are icons. The menu `more` of the page social-media has the others."""
MENU = ("Mute", "Block")
"""First words of items of that menu that name the author."""


def one_post(goal: str, page: Page) -> Generator[str, Page, None]:
    """social-media: `For the user @ada, click on the "Block" button.`"""
    user, button = parts(r'For the user (\S+), click on the "(.*)" button\.', goal)
    post = _posts(page, user)[0]
    if button in ICONS:
        yield click(_icon(post, button.lower()))
        return
    page = yield click(_icon(post, "more"))
    yield click(next(item for item in _posts(page, user)[0] if item.label in (button, f"{button} {user}")))


def posts(goal: str, page: Page) -> Generator[str, Page, None]:
    """social-media-all and -some: `Click the "Share" button on 2 posts by @ada and then click Submit.`, or all."""
    button, number, user = parts(r'Click the "(.*)" button on (\w+) posts? by (\S+) and then click Submit\.', goal)
    by_user = _posts(page, user)
    for post in by_user if number == "all" else by_user[: int(number)]:
        yield click(_icon(post, button.lower()))
    yield click(page.find("button", "Submit"))


def _icon(post: list[Element], name: str) -> Element:
    return next(element for element in post if element.kind == "image" and element.label == name)


def _posts(page: Page, user: str) -> list[list[Element]]:
    """Return the elements of each post by the user. A post begins with a text of its author's name and user name."""
    found: list[list[Element]] = []
    for element in page.elements:
        words = element.label.split()
        if element.kind == "text" and words[1:] and words[1].startswith("@") and words[0] not in MENU:
            found.append([])
        if found:
            found[-1].append(element)
    return [post for post in found if post[0].label.split()[1] == user]
