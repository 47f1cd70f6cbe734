"""Experts for pages on which items are selected in the order of the goal, and then submitted."""

from collections.abc import Generator, Iterable

from .goal import listed, parts
from .page import Page, choose, click, ensure, first

SELECT_AND_SUBMIT = r"Select (.*) and click Submit\."
SYNONYMS = [
    set(group.split())
    for group in (
        "big large huge enormous gigantic",
        "small tiny little mini petite",
        "red scarlet crimson vermillion",
        "happy cheerful joyful gleeful delighted",
        "sad unhappy sorrowful miserable tragic",
        "angry mad furious irritated",
        "evil wicked immoral sinful corrupt depraved",
        "wrong incorrect mistaken erroneous",
        "real genuine actual",
        "strange odd peculiar unusual weird",
        "stop cease halt end finish",
        "scared terrified panicked fearful frightened afraid",
        "quiet calm peaceful serene mild",
        "old aged archaic",
        "love like adore favor",
        "kill murder assassinate",
        "keep retain preserve sustain maintain",
        "hide conceal camouflage",
        "hate despise loathe detest dislike",
        "funny humorous amusing comical laughable",
        "fat fleshy plump chubby",
        "stupid dumb dull unwise",
        "delicious savory delectable appetizing",
        "cut slice carve chop",
        "brave courageous fearless",
        "begin start initiate launch",
        "answer reply response",
        "television televisions TV TVs",
        "house home houses homes",
        "fire flame fires flames",
        "pig pork swine",
        "rabbit rabbits bunny bunnies",
        "car cars automobile automobiles vehicle vehicles",
        "water",
    )
]
"""Groups of similar words, as the page click-checkboxes-soft has them."""


def radio(goal: str, page: Page) -> str:
    """click-option: `Select x9 and click Submit.`"""
    (label,) = parts(SELECT_AND_SUBMIT, goal)
    return _then_submit(page, [ensure(page.find("radio", label), "checked")])


def checkboxes(goal: str, page: Page) -> str:
    """click-checkboxes and -large: `Select ag9, x and click Submit.`"""
    labels = listed(SELECT_AND_SUBMIT, goal)
    return _then_submit(page, (ensure(page.find("checkbox", label), "checked") for label in labels))


def closed_list(goal: str, page: Page) -> str:
    """choose-list: `Select Spain from the list and click Submit.`"""
    (option,) = parts(r"Select (.*) from the list and click Submit\.", goal)
    return _then_submit(page, [choose(page.find("select"), option)])


def scroll_list(goal: str, page: Page) -> str:
    """click-scroll-list: `Select Ada, Bo from the scroll list and click Submit.`"""
    options = listed(r"Select (.*) from the scroll list and click Submit\.", goal)
    return _then_submit(page, (ensure(page.find("option", option), "selected") for option in options))


def _then_submit(page: Page, steps: Iterable[str | None]) -> str:
    return first(steps) or click(page.find("button", "Submit"))


def styled_list(goal: str, page: Page) -> Generator[str, Page, None]:
    """form-sequence-3: `Choose 6 ft from the dropdown, then click the button labeled "No".` The list is made of texts,
    and opens by its arrow."""
    option, button = parts(r'Choose (.*) from the dropdown, then click the button labeled "(.*)"\.', goal)
    page = yield click(page.find("text", "▾"))
    yield click(page.find("text", option))
    yield click(page.find("button", button))


def synonyms(goal: str, page: Page) -> str:
    """click-checkboxes-soft: `Select words similar to big, pig and click Submit.`"""
    words = listed(r"Select words similar to (.*) and click Submit\.", goal)
    boxes = [
        box
        for box in page.all("checkbox")
        if any(box.label in group and word in group for word in words for group in SYNONYMS)
    ]
    return _then_submit(page, (ensure(box, "checked") for box in boxes))
