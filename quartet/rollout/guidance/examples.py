"""XRPO's seeds: solved tasks of the same family as examples in the prompt (in-context learning)."""

from collections.abc import Sequence

from quartet.config.section import Positive, Section
from quartet.rollout.episode import actions_of
from quartet.rollout.guidance.base import Guidance, Guide
from quartet.types import Task, Trajectory


class ExamplesGuidance(Guidance):
    """Show the newest successes on other tasks of the family: goal, observations and actions.

    XRPO chooses the nearest tasks by embeddings. An attempt that follows a failure or a recall may show newer examples
    than the one before it.
    """

    class Settings(Section):
        count: Positive = 2
        """Maximum number of examples."""
        max_characters: Positive = 4000
        """Maximum length of all examples. An example that would exceed it is left out."""

    settings: Settings
    source = "XRPO, arXiv 2510.06672, in-context seeding"

    def guide(self, task: Task) -> Guide:
        text = examples(self.solved(task, self.settings.count), self.settings.max_characters)
        return lambda _: text


def examples(solved: Sequence[Trajectory], max_characters: int) -> str:
    """Return the examples in the order given, one after the other, without those that would exceed the length."""
    text = ""
    for one in map(example, solved):
        longer = f"{text}\n{one}" if text else one
        text = longer if len(longer) <= max_characters else text
    return text


def example(trajectory: Trajectory) -> str:
    """Return the goal, and every observation with the actions that followed it, in the form of `turn_text`."""
    lines = [f"solved {trajectory.turns[0].observation.goal}" if trajectory.turns else "solved"]
    for turn in trajectory.turns:
        lines += [turn.observation.text, *(f"did {action}" for action in actions_of([turn]) or [turn.response])]
    return "\n".join(lines)
