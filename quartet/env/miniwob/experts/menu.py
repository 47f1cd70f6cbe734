"""Experts for nested menus and trees."""

from collections.abc import Generator

from .goal import parts, quoted
from .page import Page, click, point_at


def nested(goal: str, page: Page) -> Generator[str, Page, None]:
    """click-menu: `Select Ada>Bo>Cy`. The pointer opens a menu, and a click on the last item selects it."""
    (path,) = parts(r"Select (.*)", goal)
    *menus, item = path.split(">")
    for name in menus:
        page = yield point_at(page.find("menuitem", name))
    yield click(page.find("menuitem", item))


def tree(goal: str, page: Page) -> Generator[str, Page, None]:
    """navigate-tree: open one folder after another until the name is visible. A folder follows its mark."""
    (name,) = quoted(goal)
    opened: set[int] = set()
    while not page.has("text", name):
        marked = zip(page.elements, page.elements[1:], strict=False)
        folder = next(item for mark, item in marked if mark.kind == "image" and item.ref not in opened)
        opened.add(folder.ref)
        page = yield click(folder)
    yield click(page.find("text", name))
