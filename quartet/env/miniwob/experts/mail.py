"""Experts for the mailbox: reply to the e-mail of one sender, forward it, delete it or mark it."""

from .goal import parts
from .page import Element, Page, click, fill


def reply(goal: str, page: Page) -> str:
    """email-inbox-reply: `Find the email by Ada and reply to them with the text "Nunc.".`"""
    sender, text = parts(r'Find the email by (.+) and reply to them with the text "(.*)"\.', goal)
    if page.has("textarea"):
        return fill(page.find("textarea"), text) or click(page.find("image", "send reply"))
    return _open_then(page, sender, "Reply")


def forward(goal: str, page: Page) -> str:
    """email-inbox-forward: `Find the email by Ada and forward that email to Bo.`"""
    sender, recipient = parts(r"Find the email by (.+) and forward that email to (.+)\.", goal)
    if page.has("textarea"):
        return fill(page.find("input"), recipient) or click(page.find("image", "send forward"))
    return _open_then(page, sender, "Forward")


def _open_then(page: Page, sender: str, button: str) -> str:
    """Open the e-mail by `sender` from the list, or click `button` if the e-mail is open."""
    return click(page.find("text", button if page.has("text", button) else sender))


def delete(goal: str, page: Page) -> str:
    """email-inbox-delete: `Find the email by Ada and click the trash icon to delete it.`"""
    (sender,) = parts(r"Find the email by (.+) and click the trash icon to delete it\.", goal)
    return click(_icon_of(page, sender, "trash"))


def star(goal: str, page: Page) -> str:
    """email-inbox-important: `Find the email by Ada and click the star icon to mark it as important.`"""
    (sender,) = parts(r"Find the email by (.+) and click the star icon to mark it as important\.", goal)
    return click(_icon_of(page, sender, "star"))


def any_task(goal: str, page: Page) -> str:
    """email-inbox and its variants: the goal says what to do with the e-mail."""
    task = next(
        expert
        for words, expert in (("reply to", reply), ("forward", forward), ("trash", delete), ("star", star))
        if words in goal
    )
    return task(goal, page)


def _icon_of(page: Page, sender: str, icon: str) -> Element:
    """Return an icon in the row of the e-mail by `sender`: the first one after the name."""
    row = page.elements[page.elements.index(page.find("text", sender)) :]
    return next(element for element in row if element.kind == "image" and element.label == icon)
