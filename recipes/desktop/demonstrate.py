"""Command that writes the actions of the desktop's experts as chat-format JSONL, for a cold start and the success pool.

python -m recipes.desktop.demonstrate --output runs/desktop.jsonl
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from quartet.env import make_environment
from quartet.env.base import Environment, EnvPool
from quartet.errors import EnvError, ExpertError
from quartet.files.disk import whole_file
from quartet.policy.prompt import turn_text
from quartet.recipe.file import load_recipe
from quartet.terminal.say import say
from quartet.types import Task

RECIPE = Path(__file__).with_name("recipe.toml")
SEEDS = 4
"""Tasks of each family by default. They are few, so that reinforcement learning has something to learn."""


def _families_of_the_recipe() -> str:
    return ",".join(load_recipe(RECIPE).env.families)


@click.command()
@click.option(
    "--families", default=_families_of_the_recipe, show_default="those of the recipe", help="Names with commas."
)
@click.option("--seeds", type=click.IntRange(min=1), default=SEEDS, show_default=True, help="Tasks of each family.")
@click.option("--output", type=click.Path(path_type=Path), default=RECIPE.with_name("start.jsonl"))
def main(families: str, seeds: int, output: Path) -> None:
    """Write one chat of two messages per turn of every successful attempt."""
    tasks = [Task(env="desktop", family=name, seed=seed) for name in families.split(",") for seed in range(seeds)]
    output.parent.mkdir(parents=True, exist_ok=True)
    attempts = asyncio.run(_attempt_all(tasks))
    with whole_file(output) as fresh:
        fresh.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for lines in attempts for line in lines))
    say(f"{sum(map(bool, attempts))} of {len(tasks)} attempts succeeded; wrote {output}")


async def _attempt_all(tasks: list[Task]) -> list[list[dict[str, Any]]]:
    env = load_recipe(RECIPE).env
    environment, pool = make_environment(env), make_environment(env).pool(env)
    try:
        return list(await asyncio.gather(*(_attempt(environment, pool, task) for task in tasks)))
    finally:
        await pool.close()


async def _attempt(environment: Environment, pool: EnvPool, task: Task) -> list[dict[str, Any]]:
    """Return the chats of one attempt; none if it does not succeed, or the desktop or the expert fails."""
    expert = environment.expert(task.family, task.seed)
    assert expert is not None
    session, chats, actions, healthy = await pool.acquire(), [], [], False
    try:
        observation = await session.reset(task)
        while True:
            action = expert(observation)
            prompt = {"role": "user", "content": turn_text(observation, actions)}
            messages = [prompt, {"role": "assistant", "content": action}]
            chats.append({"messages": messages, "family": task.family, "seed": task.seed, "turn": len(chats)})
            actions.append(action)
            result = await session.step(action)
            if result.terminated or result.truncated:
                healthy = True
                return chats if result.reward == 1.0 else []
            observation = result.observation
    except (EnvError, ExpertError) as error:
        say(f"{task.key}: {error}", err=True)
        return []
    finally:
        await pool.release(session, healthy=healthy)


if __name__ == "__main__":
    main()
