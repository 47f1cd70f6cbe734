"""Advice of the scripted experts: the action that the family's expert would take now."""

from quartet.types import Observation

from ..miniwob.experts import ExpertError, expert_action


def advice(family: str, observation: Observation) -> str:
    """Return the expert's action, or "" on a page on which the expert does not know one."""
    try:
        return expert_action(family, observation)
    except ExpertError:
        return ""
