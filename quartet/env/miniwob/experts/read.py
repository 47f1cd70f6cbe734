"""Experts for pages whose text holds what to type or where to click."""

from collections.abc import Generator

from quartet.errors import ExpertError

from .goal import ordinal, parts
from .page import Page, click, fill, first


def table(goal: str, page: Page) -> str:
    """read-table: `Enter the value of Country into the text field and press Submit.`"""
    (key,) = parts(r"Enter the value of (.*) into the text field and press Submit\.", goal)
    return fill(page.find("input"), _after(page, key)) or click(page.find("button", "Submit"))


def table_into_form(goal: str, page: Page) -> str:
    """read-table-2: the label of each field is a key of the table."""
    steps = (fill(field, _after(page, field.label)) for field in page.all("input"))
    return first(steps) or click(page.find("button", "Submit"))


def contact(goal: str, page: Page) -> str:
    """phone-book: `Find Ada in the contact book and click on their phone number.`, one contact per page."""
    name, detail = parts(r"Find (.*) in the contact book and click on their (phone|email|address).*", goal)
    if not page.has("text", name):
        return click(page.find("link", ">"))
    place = page.elements.index(page.find("text", f"{detail.capitalize()}:"))
    return click(page.elements[place + 1])


def letters(goal: str, page: Page) -> str:
    """text-transform: type the letters, which are turned and shifted."""
    text = "".join(letter.label for letter in page.all("text"))
    return fill(page.find("input"), text) or click(page.find("button", "Submit"))


def copied(goal: str, page: Page) -> Generator[str, Page, None]:
    """copy-paste and -2: `Copy the text from the 2nd text area below and paste it ...`; its end may be a space."""
    position = goal.removeprefix("Copy the text from the ").split()[0]
    yield click(page.find("textarea", nth=ordinal(position) if position[0].isdigit() else 0))
    yield "key Control+a Control+c"
    yield click(page.find("input"))
    yield "key Control+v"
    yield click(page.find("button", "Submit"))


def terminal(goal: str, page: Page) -> Generator[str, Page, None]:
    """terminal: list the files, then remove one with the extension, or one without any."""
    (wanted,) = parts(r"Use the terminal below to delete a file (.*)", goal)
    for character in "ls":
        page = yield f'type here "{character}"'
    page = yield "key Enter"
    listed = _after(page, "user$ ls").split()
    if wanted.startswith("ending"):
        fitting = [name for name in listed if name.endswith(wanted.split()[-1])]
    else:
        fitting = [name for name in listed if "." not in name]
    if not fitting:
        raise ExpertError(f"no file of {listed} is {wanted}")
    yield f'type here "rm {fitting[0]}"'
    yield "key Enter"


def _after(page: Page, label: str) -> str:
    """Return the label of the text that follows the text `label`."""
    texts = page.all("text")
    return texts[texts.index(page.find("text", label)) + 1].label
