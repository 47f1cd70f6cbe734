"""Command that writes solutions of the training tasks as chat-format JSONL, for imitation as a control.

python -m recipes.llm_tools.demonstrate --output runs/solutions.jsonl
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from quartet.env import make_environment
from quartet.env.base import Env
from quartet.files.disk import whole_file
from quartet.policy.prompt import turn_messages
from quartet.recipe.file import load_recipe
from quartet.terminal.say import say
from quartet.types import Task

RECIPE = Path(__file__).with_name("recipe.toml")


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), help="Tasks of each family; by default all training tasks.")
@click.option("--output", type=click.Path(path_type=Path), required=True)
def main(seeds: int | None, output: Path) -> None:
    """Write one chat per task of the recipe's families, solved by the environment's expert."""
    recipe = load_recipe(RECIPE)
    count = seeds or recipe.control.train_seeds_per_family
    tasks = [Task(env="tools", family=name, seed=seed) for name in recipe.env.families for seed in range(count)]
    output.parent.mkdir(parents=True, exist_ok=True)
    chats = asyncio.run(_solve_all(tasks))
    with whole_file(output) as fresh:
        fresh.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    say(f"wrote {len(chats)} chats to {output}")


async def _solve_all(tasks: list[Task]) -> list[dict[str, Any]]:
    session = make_environment(load_recipe(RECIPE).env).session()
    return [await _solve(session, task) for task in tasks]


async def _solve(session: Env, task: Task) -> dict[str, Any]:
    """Return the chat of an episode of the expert."""
    expert = make_environment(load_recipe(RECIPE).env).expert(task.family, task.seed)
    assert expert is not None
    observation, messages = await session.reset(task), list[dict[str, str]]()
    while True:
        messages += [{"role": one.role, "content": one.content} for one in turn_messages(observation, [])]
        messages.append({"role": "assistant", "content": expert(observation)})
        result = await session.step(messages[-1]["content"])
        observation = result.observation
        if result.terminated:
            assert result.reward == 1.0, f"the expert failed at {task.key}"
            return {"messages": messages, "env": task.env, "family": task.family, "seed": task.seed}


if __name__ == "__main__":
    main()
