"""Questions that are answered with tools: a calculator, a table, conversion of units, a small SQLite database."""

import json
from collections.abc import Sequence
from typing import Any

from quartet.actions.grammar import parse_calls
from quartet.actions.malformed_call import refused_call
from quartet.actions.taken import canonical
from quartet.config import Recipe
from quartet.env.base import Env, Environment, Expert, in_order
from quartet.env.earlier_turns import require_earlier_turns
from quartet.env.rewards.number import value_of
from quartet.env.tools.problems import FAMILIES, problem_of, solve
from quartet.env.tools.toolbox import TOOLS, Toolbox, ToolError
from quartet.errors import EnvError
from quartet.types import (
    Action,
    Done,
    Message,
    Observation,
    Outcome,
    StepResult,
    TakenAction,
    Task,
    Text,
    ToolCall,
)

TURNS = {"1": 3, "2": 4, "3": 6}
"""Maximum number of turns by level: the calls of the longest solution, the answer, and a margin."""


def write_call(call: ToolCall) -> str:
    """Return a call as the examples write it.

    >>> write_call(ToolCall(name="convert", arguments={"value": 5}))
    'call convert {"value": 5}'
    """
    return f"call {call.name} {json.dumps(call.arguments)}"


def _example(question: str, *calls: tuple[str, str]) -> list[Message]:
    """Return a chat with these calls and their results, the last of which is the answer."""
    turns = [
        message
        for call, result in calls
        for message in (Message("assistant", call), Message("tool", result, call.split()[1]))
    ]
    return [Message("user", question), *turns, Message("assistant", calls[-1][1])]


class Tools(Environment):
    """Questions that are answered with calls of tools: calculator, table, units, database, in three levels."""

    deterministic = typed_actions = True
    grammar = '`call NAME {"argument": "value"}`, or the answer'
    instructions = """Answer with tools. Write one call, read its result, then write the answer.
calculator(expression)
lookup(item, column): price, weight or stock
convert(value, unit, to)
sql(query) on the table people(name, age, city)"""
    examples = (
        *_example("Use calculator. What is 51 * 23?", ('call calculator {"expression": "51 * 23"}', "1173")),
        *_example(
            "Use convert, then calculator. What are 5 kg in g, plus 30 g?",
            ('call convert {"value": 5, "unit": "kg", "to": "g"}', "5000"),
            ('call calculator {"expression": "5000 + 30"}', "5030"),
        ),
        *_example(
            "Use sql. What is the age of Max?",
            ('call sql {"query": "SELECT age FROM people WHERE name = \'Max\'"}', "41"),
        ),
        *_example(
            "Use lookup, then calculator. What is the price of 6 pieces of bed?",
            ('call lookup {"item": "bed", "column": "price"}', "45"),
            ('call calculator {"expression": "6 * 45"}', "270"),
        ),
    )
    first_settings = {
        "env": {"screenshots": False},
        "rollout": {"loop": "append", "max_turns": 6, "max_tokens": 48},
        "control": {"horizon": ["suite"]},
    }

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        require_earlier_turns(recipe, "the results of earlier calls")

    def families(self) -> list[str]:
        return list(FAMILIES)

    def session(self) -> Env:
        return ToolsEnv()

    def max_turns(self, family_name: str) -> int:
        return TURNS[family_name[-1]]

    def expert(self, family_name: str, seed: int) -> Expert:
        calls, answer = solve(*problem_of(Task(env="tools", family=family_name, seed=seed)))
        return in_order([*map(write_call, calls), answer])

    def wrong_expert(self, family_name: str, seed: int) -> Expert:
        calls, answer = solve(*problem_of(Task(env="tools", family=family_name, seed=seed)))
        return in_order([*map(write_call, calls), f"{answer}1"])


class ToolsEnv:
    """One session."""

    def __init__(self) -> None:
        self._toolbox: Toolbox | None = None

    async def reset(self, task: Task) -> Observation:
        """Ask the question of the task. Raise `ConfigError` for an unknown family."""
        await self.close()
        problem, world = problem_of(task)
        self._answer, self._toolbox = solve(problem, world)[1], world.toolbox()
        return Observation(goal="", text="", messages=[Message("user", problem.question)], tools=TOOLS)

    async def step(self, action: str) -> StepResult:
        """Perform the calls of a response in Quartet's grammar. A response without a call is the answer."""
        calls = parse_calls(action)
        if calls:
            return await self.act(calls)
        return refused_call(action) or await self.act([Text(text=action)])

    async def act(self, actions: Sequence[Action]) -> StepResult:
        """Perform the calls of a response in order, until it gives the answer."""
        if self._toolbox is None:
            raise EnvError("tools were used before the first reset", "call reset(task) first")
        messages, records = [], []
        for action in actions:
            if not isinstance(action, ToolCall):
                return self._answered(action, records)
            try:
                result, error = self._toolbox.call(action.name, action.arguments), ""
            except ToolError as refused:
                result, error = f"error: {refused}", str(refused)
            messages.append(Message("tool", result, action.name))
            outcome = Outcome.REFUSED if error else Outcome.DONE
            records.append(TakenAction(action=action, canonical=write_call(action), outcome=outcome, error=error))
        return _continued(messages, records)

    async def close(self) -> None:
        if self._toolbox is not None:
            self._toolbox.close()
        self._toolbox = None

    def _answered(self, action: Action, records: list[TakenAction]) -> StepResult:
        """End the episode. The reward is 1 if the last number of the answer is the right one."""
        match action:
            case Text(text=text) | Done(answer=text):
                pass
            case _:
                text = ""
        success = value_of(text) == value_of(self._answer)
        return StepResult(
            observation=Observation(goal="", text=""),
            reward=float(success),
            terminated=True,
            info={"success": success},
            actions=[*records, TakenAction(action=action, canonical=canonical(action) or text)],
        )


def _continued(messages: list[Message], records: list[TakenAction]) -> StepResult:
    seen = Observation(goal="", text="", messages=messages)
    return StepResult(observation=seen, reward=0.0, terminated=False, actions=records)
