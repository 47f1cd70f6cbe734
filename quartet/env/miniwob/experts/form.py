"""Experts for pages on which fields are filled in the order of the goal, and then submitted."""

from .goal import ordinal, parts, quoted
from .page import Page, click, ensure, fill, first

MOVIE_LABELS = ({"Genre", "Movie Genre"}, {"Director", "Director Name"}, {"Year", "Released Date"})
"""Labels of the genre, the director and the year in the five layouts of the movie search."""


def one_field(goal: str, page: Page) -> str:
    """enter-text and -dynamic: `Enter "Ada" into the text field and press Submit.`"""
    (text,) = quoted(goal)
    return fill(page.find("input"), text) or click(page.find("button", "Submit"))


def password_twice(goal: str, page: Page) -> str:
    """enter-password: `Enter the password "x1" into both text fields and press submit.`"""
    (password,) = quoted(goal)
    return (
        fill(page.find("input", "Password"), password)
        or fill(page.find("input", "Verify password"), password)
        or click(page.find("button", "Submit"))
    )


def login(goal: str, page: Page) -> str:
    """login-user and -popup: username and password; a popup in front of them is cancelled first."""
    username, password = quoted(goal, 2)
    if page.has("button", "Cancel"):
        return click(page.find("button", "Cancel"))
    return (
        fill(page.find("input", "Username"), username)
        or fill(page.find("input", "Password"), password)
        or click(page.find("button"))
    )


def radio_and_number(goal: str, page: Page) -> str:
    """form-sequence-2: `Check the 1st radio button and enter the number "7" into the 3rd textbox.`"""
    radio, number, textbox = parts(
        r'Check the (\w+) radio button and enter the number "(-?\d+)" into the (\w+) textbox\.', goal
    )
    return (
        ensure(page.find("radio", nth=ordinal(radio)), "checked")
        or fill(page.find("input", nth=ordinal(textbox)), number)
        or click(page.find("button", "Submit"))
    )


def movie_search(goal: str, page: Page) -> str:
    """multi-orderings and multi-layouts: genre, director and year, in fields of varying position, name and style."""
    wanted = parts(r"Search for (\w+) movies directed by (\w+) from year (\d+)\.", goal)
    texts = zip(MOVIE_LABELS, wanted, strict=True)
    return first(fill(page.find("input", labels), text) for labels, text in texts) or click(page.find("button"))


def other_case(goal: str, page: Page) -> str:
    """enter-text-2: `Type "ada" in all upper case letters in the text input and press Submit.`"""
    (text,) = quoted(goal)
    typed = text.upper() if "upper case" in goal else text.lower()
    return fill(page.find("input"), typed) or click(page.find("button", "Submit"))


def time_of_day(goal: str, page: Page) -> str:
    """enter-time: `Enter 8:04 PM as the time and press submit.` The field shows 20:04 after `0804PM` is typed."""
    hour, minute, half = parts(r"Enter (\d+):(\d+)\s(AM|PM) as the time and press submit\.", goal)
    shown = f"{int(hour) % 12 + 12 * (half == 'PM'):02}:{minute}"
    if page.find("input").value == shown:
        return click(page.find("button", "Submit"))
    return f'type {page.find("input").target} "{int(hour):02}{minute}{half}"'


def suggestion(goal: str, page: Page) -> str:
    """use-autocomplete: `Enter an item that starts with "Ger" and ends with "any".` Typing suggests items."""
    start, end = parts(r'Enter an item that starts with "(.*?)"(?: and ends with "(.*)")?\.', goal)
    entered = page.find("input").value
    if entered.startswith(start) and entered != start and entered.endswith(end or ""):
        return click(page.find("button", "Submit"))
    fitting = [text for text in page.all("text") if text.label.startswith(start) and text.label.endswith(end or "")]
    return click(fitting[0]) if fitting else f'type {page.find("input").target} "{start}"'
