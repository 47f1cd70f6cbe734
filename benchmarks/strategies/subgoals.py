"""Does a curriculum by sub-goals help, in which tasks begin where an expert has few actions left?"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher


class Main(Strategy):
    """Whole tasks, drawn uniformly or by contrast, against tasks that begin near their end. A control never leaves more
    than one action to the policy. Success is measured on whole tasks; the expert's presses have no tokens."""

    arms: ClassVar = {
        "whole tasks": [],
        "whole tasks, contrast": ["control.sampler=contrast"],
        "sub-goals": ["control.sampler=subgoals"],
        "one action left": ["control.sampler=subgoals", "control.sampler.most=1"],
    }
    claims = (
        higher("sub-goals: more success per token than whole tasks", "sub-goals", "whole tasks"),
        higher("sub-goals: more than whole tasks by the same sampler", "sub-goals", "whole tasks, contrast"),
        higher("sub-goals: more success at the end than whole tasks", "sub-goals", "whole tasks", "end"),
        higher("raising the number: more than leaving one action", "sub-goals", "one action left"),
    )
