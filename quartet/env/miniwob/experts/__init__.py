"""Scripted experts for families of MiniWoB++ that can be solved from their elements.

A policy's turn is an action for the newest observation, so most experts are pure functions of goal and page: equal
observations get equal actions, and a small policy can imitate them. Where the page does not show what was done before,
the expert is a plan: a generator that yields one action after another, and receives the page after each.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from quartet.env.base import Expert
from quartet.errors import ExpertError
from quartet.registry import lookup
from quartet.types import Observation

from . import (
    arithmetic,
    choose,
    click,
    dates,
    drag,
    flights,
    form,
    mail,
    menu,
    number,
    read,
    scroll,
    search,
    shop,
    social,
)
from .page import Page

Answer = Callable[[str, Page], str]
"""Function (goal, page) -> action text. Raises `ExpertError` if the page lacks an element that the expert needs."""
Plan = Callable[[str, Page], Generator[str, Page, None]]
"""Generator function (goal, first page) of action texts, to which the page after each action is sent. Raises
`ExpertError` like an `Answer`."""

EXPERTS: dict[str, Answer] = {
    "click-button": click.named_button,
    "click-dialog": click.named_button,
    "focus-text-2": click.nth_input,
    "click-option": choose.radio,
    "enter-text": form.one_field,
    "choose-list": choose.closed_list,
    "click-tab-2": click.link_behind_tab,
    "click-collapsible": click.unfold_and_submit,
    "click-checkboxes": choose.checkboxes,
    "click-scroll-list": choose.scroll_list,
    "enter-password": form.password_twice,
    "login-user": form.login,
    "search-engine": search.nth_result,
    "email-inbox-reply": mail.reply,
    "form-sequence-2": form.radio_and_number,
    "multi-orderings": form.movie_search,
    "click-test-2": click.bare_button,
    "click-link": click.named_link,
    "click-dialog-2": click.named_button,
    "enter-text-dynamic": form.one_field,
    "click-checkboxes-large": choose.checkboxes,
    "login-user-popup": form.login,
    "email-inbox-forward": mail.forward,
    "multi-layouts": form.movie_search,
    "book-flight": flights.booked,
    "book-flight-nodelay": flights.booked,
    "buy-ticket": shop.ticket,
    "click-checkboxes-soft": choose.synonyms,
    "click-checkboxes-transfer": choose.checkboxes,
    "click-collapsible-2": click.link_in_section,
    "click-collapsible-2-nodelay": click.link_in_section,
    "click-collapsible-nodelay": click.unfold_and_submit,
    "click-tab": click.named_tab,
    "click-tab-2-easy": click.link_behind_tab,
    "click-tab-2-hard": click.link_behind_tab,
    "click-tab-2-medium": click.link_behind_tab,
    "click-test": click.only_button,
    "click-test-transfer": click.bare_button,
    "click-widget": click.widget,
    "email-inbox": mail.any_task,
    "email-inbox-delete": mail.delete,
    "email-inbox-important": mail.any_task,
    "email-inbox-noscroll": mail.any_task,
    "email-inbox-star-reply": mail.any_task,
    "enter-text-2": form.other_case,
    "enter-time": form.time_of_day,
    "focus-text": click.nth_input,
    "generate-number": number.generated,
    "phone-book": read.contact,
    "read-table": read.table,
    "read-table-2": read.table_into_form,
    "simple-algebra": arithmetic.equation,
    "simple-arithmetic": arithmetic.sum_or_product,
    "text-transform": read.letters,
    "unicode-test": click.named_button,
    "use-autocomplete": form.suggestion,
    "use-autocomplete-nodelay": form.suggestion,
    "use-spinner": number.spinner,
}
"""Experts without memory."""

PLANS: dict[str, Plan] = {
    "choose-date": dates.calendar,
    "choose-date-easy": dates.calendar,
    "choose-date-medium": dates.calendar,
    "choose-date-nodelay": dates.calendar,
    "click-button-sequence": click.one_then_two,
    "click-menu": menu.nested,
    "copy-paste": read.copied,
    "copy-paste-2": read.copied,
    "drag-box": drag.into_box,
    "drag-sort-numbers": drag.sorted_numbers,
    "enter-date": dates.typed,
    "find-greatest": number.greatest_card,
    "form-sequence-3": choose.styled_list,
    "guess-number": number.guessed,
    "highlight-text": scroll.highlighted,
    "highlight-text-2": scroll.highlighted,
    "navigate-tree": menu.tree,
    "number-checkboxes": number.drawn,
    "odd-or-even": number.odd_or_even,
    "order-food": shop.order,
    "scroll-text-2": scroll.to_end,
    "sign-agreement": scroll.signed,
    "social-media": social.one_post,
    "social-media-all": social.posts,
    "social-media-some": social.posts,
    "terminal": read.terminal,
}
"""Experts with memory."""


def expert_action(family: str, observation: Observation) -> str:
    """Return the action of the family's expert without memory for this observation.

    Raise `ConfigError` for an unknown family and `ExpertError` if the page lacks an element that the expert needs.
    """
    answer, page = lookup("expert", family, EXPERTS), Page.parse(observation.text)
    with _explaining(page):
        return answer(observation.goal, page)


def make_expert(family: str) -> Expert | None:
    """Return an expert for one episode of the family; None if there is none."""
    if family in PLANS:
        return _follow(PLANS[family])
    return (lambda observation: expert_action(family, observation)) if family in EXPERTS else None


def _follow(plan: Plan) -> Expert:
    """Return an expert that follows the plan, and then gives up."""
    running: Generator[str, Page, None] | None = None

    def act(observation: Observation) -> str:
        nonlocal running
        page = Page.parse(observation.text)
        with _explaining(page):
            if running is None:
                running = plan(observation.goal, page)
                return next(running, "done")
            try:
                return running.send(page)
            except StopIteration:
                return "done"

    return act


@contextmanager
def _explaining(page: Page) -> Iterator[None]:
    """Raise `ExpertError` with the page's elements if an expert does not find what it looks for, as on a page that was
    read before it was whole."""
    try:
        yield
    except (LookupError, ValueError, RuntimeError) as error:  # a `StopIteration` in a plan is a `RuntimeError`
        raise ExpertError(f"the expert does not know this page ({error!r}); its elements: {page.listing}") from error


__all__ = ["EXPERTS", "PLANS", "Answer", "Page", "Plan", "expert_action", "make_expert"]
