"""Demonstrations by the scripted experts: what the policy sees in a turn, and the expert's action.

    python -m recipes.pixels.demonstrate --seeds 1200 --output runs/pixels.msgpack

One file holds all of them, with encoded pictures. Only successful attempts are kept.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from quartet.config import Recipe
from quartet.env import make_environment, suite_families
from quartet.env.base import EnvPool
from quartet.env.miniwob.env import MiniWobSession
from quartet.errors import EnvError
from quartet.files.disk import whole_file
from quartet.on_progress import OnProgress, no_progress
from quartet.policy.prompt import turn_text
from quartet.recipe.file import load_recipe
from quartet.registry import build
from quartet.terminal.progress import Watched
from quartet.terminal.say import say
from quartet.types import Task

from .experts import expert_action

LOG = logging.getLogger(__name__)
RECIPE = Path(__file__).with_name("recipe.toml")
MAX_ATTEMPTS = 3


class Demonstration(Struct, frozen=True, array_like=True):
    """One turn of a successful attempt."""

    family: str
    turn: int
    text: str
    """The policy's text input: `quartet.policy.prompt.turn_text`."""
    picture: bytes
    response: str


async def demonstrate(
    recipe: Recipe, families: Iterable[str], seeds: range, on_progress: OnProgress = no_progress
) -> list[list[Demonstration]]:
    """Attempt every seed of every family once, in pages of one browser; return the turns of each attempt, none if it
    failed. Raise `EnvError` if the browser fails."""
    tasks = [Task(env="miniwob", family=family, seed=seed) for seed in seeds for family in families]
    pool = make_environment(recipe.env).pool(recipe.env)
    attempts: list[list[Demonstration]] = [[] for _ in tasks]
    queue = iter(enumerate(tasks))

    async def work() -> None:
        for index, task in queue:
            attempts[index] = await _attempt_with_retries(recipe, pool, task)
            on_progress(index + 1, len(tasks))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(recipe.env.sessions):
                group.create_task(work())
    finally:
        await pool.close()
    return attempts


async def _attempt_with_retries(recipe: Recipe, pool: EnvPool, task: Task) -> list[Demonstration]:
    """Attempt a task, again in a new session after a failure of the browser, as training does."""
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return await _attempt(recipe, pool, task)
        except EnvError:
            LOG.warning("session lost, restarting %s", task.key, exc_info=True)
    return await _attempt(recipe, pool, task)


async def _attempt(recipe: Recipe, pool: EnvPool, task: Task) -> list[Demonstration]:
    """Return the turns of one attempt; none if it does not succeed."""
    session, healthy = await pool.acquire(), False
    turns: list[Demonstration] = []
    written: list[str] = []
    assert isinstance(session, MiniWobSession)
    actions, parts = build(recipe.rollout.actions), recipe.rollout.actions.settings["parts"]
    try:
        observation = await session.reset(task)
        for turn in range(recipe.rollout.max_turns):
            action = await expert_action(session, task.family, observation.goal, turn, parts)
            response = actions.write([action])
            text, picture = turn_text(observation, written), observation.pictures[0].data
            turns.append(Demonstration(task.family, turn, text, picture, response))
            result = await session.act([action])
            if result.terminated:
                healthy = True
                return turns if result.info["success"] else []
            observation = result.observation
            written.append(response)
        healthy = True
        return []
    finally:
        await pool.release(session, healthy=healthy)


def read_demonstrations(path: Path) -> list[Demonstration]:
    """Return the demonstrations in a file that `python -m recipes.pixels.demonstrate` wrote."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Demonstration])


def write_demonstrations(path: Path, demonstrations: list[Demonstration]) -> None:
    """Write demonstrations to a file, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as fresh:
        fresh.write_bytes(msgspec.msgpack.encode(demonstrations))


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=1200, show_default=True, help="Tasks of each family.")
@click.option("--first-seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=Path("runs/pixels.msgpack"), show_default=True)
def main(seeds: int, first_seed: int, output: Path) -> None:
    """Let the experts attempt all families of the recipe, and write their successful turns."""
    recipe = load_recipe(RECIPE)
    families = suite_families(recipe.env)
    with Watched("demonstrating") as watched:
        attempts = asyncio.run(demonstrate(recipe, families, range(first_seed, first_seed + seeds), watched))
    kept = Counter(attempt[0].family for attempt in attempts if attempt)
    say("\n".join(f"{family:20}{kept[family]:6} of {seeds} succeeded" for family in families))
    write_demonstrations(output, [turn for attempt in attempts for turn in attempt])


if __name__ == "__main__":
    main()
