"""Experts for the mailbox: open the e-mail of one sender, then reply to it or forward it."""

from .goal import parts
from .page import Page, click, fill


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
