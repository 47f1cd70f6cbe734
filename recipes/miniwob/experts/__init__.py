"""Scripted experts for the families of `miniwob-24`.

An expert is a pure function of the goal and the page, without state between turns: equal observations get equal
actions, so a small policy can imitate the expert. Families of the same form share an expert.
"""

from collections.abc import Callable

from quartet.registry import lookup
from quartet.types import Observation

from . import choose, click, form, mail, search
from .page import ExpertError, Page

Expert = Callable[[str, Page], str]
"""Function (goal, page) -> action text. Raises `ExpertError` if the page lacks an element that the expert needs."""

EXPERTS: dict[str, Expert] = {
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
}


def expert_action(family: str, observation: Observation) -> str:
    """Return the action of the family's expert for this observation.

    Raise `ConfigError` for an unknown family and `ExpertError` if the page lacks an element that the expert needs.
    """
    return lookup("expert", family, EXPERTS)(observation.goal, Page.parse(observation.text))


__all__ = ["EXPERTS", "Expert", "ExpertError", "Page", "expert_action"]
