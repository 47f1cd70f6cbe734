"""Command that writes the scripted experts' actions as chat-format JSONL for a cold start, or texts for a tokenizer.

    python -m recipes.miniwob.demonstrate --families demonstrated --seeds 0:60 --output demos.jsonl
    python -m recipes.miniwob.demonstrate --families all --seeds 0:100 --texts texts.jsonl
    python -m recipes.miniwob.demonstrate --families all --seeds 0:20          # only reports success

The command fails for demonstrations of undemonstrated families, and for held-out seeds.
"""

import asyncio
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from quartet import config
from quartet.env.base import Env
from quartet.env.miniwob.suite import SUITES, family
from quartet.errors import ConfigError, QuartetError
from quartet.on_progress import OnProgress, no_progress
from quartet.policy.prompt import turn_text
from quartet.terminal.say import say
from quartet.types import Task

from .attempt import SUITE, Attempt, attempt_all, in_browser

FIRST_HELD_OUT_SEED: int = config.Evaluation().first_seed
DEMONSTRATED = [one.name for one in SUITES[SUITE] if one.demonstrated]
UNDEMONSTRATED = [one.name for one in SUITES[SUITE] if not one.demonstrated]
GROUPS = {"all": DEMONSTRATED + UNDEMONSTRATED, "demonstrated": DEMONSTRATED, "undemonstrated": UNDEMONSTRATED}


async def make_demonstrations(
    families: list[str], seeds: range, output: Path, sessions: int = 4, on_progress: OnProgress = no_progress
) -> list[Attempt]:
    """Write one JSONL line per turn of every successful attempt; return all attempts, including failed ones.

    Raise `ConfigError` for an undemonstrated family or a held-out seed, `EnvError` if the browser fails.
    """
    kept_back = [family for family in families if family not in DEMONSTRATED]
    if kept_back:
        raise ConfigError(
            f"no demonstrations of {', '.join(kept_back)}: these families measure learning without demonstrations",
            f"use --families demonstrated, that is {','.join(DEMONSTRATED)}",
        )
    attempts = await attempt_all(make_tasks(families, seeds), sessions, on_progress)
    _write_lines(output, (line for attempt in attempts if attempt.success for line in chat_lines(attempt)))
    return attempts


async def write_texts(
    families: list[str], seeds: range, output: Path, sessions: int = 4, on_progress: OnProgress = no_progress
) -> list[str]:
    """Write the first turn's text of every task, one {"text", "family", "seed"} per line, and return the texts."""
    tasks = make_tasks(families, seeds)
    texts = await in_browser(tasks, sessions, _first_text, on_progress)
    pairs = zip(tasks, texts, strict=True)
    _write_lines(output, ({"text": text, "family": task.family, "seed": task.seed} for task, text in pairs))
    return texts


def make_tasks(families: list[str], seeds: range) -> list[Task]:
    """Return the tasks of all seeds of all families. Raise `ConfigError` for an unknown family or held-out seeds."""
    for name in families:
        family(SUITE, name)
    if not seeds or seeds[0] < 0 or seeds[-1] >= FIRST_HELD_OUT_SEED:
        raise ConfigError(
            f"seeds {seeds.start}:{seeds.stop} are empty, negative or held out",
            f"use training seeds, which are below {FIRST_HELD_OUT_SEED}; for example --seeds 0:60",
        )
    return [Task(env="miniwob", family=family, seed=seed) for family in families for seed in seeds]


def chat_lines(attempt: Attempt) -> list[dict[str, Any]]:
    """Return one chat of two messages per turn: the policy's input and its expected answer."""
    return [
        {
            "messages": [{"role": "user", "content": turn.prompt}, {"role": "assistant", "content": turn.action}],
            "family": attempt.task.family,
            "seed": attempt.task.seed,
            "turn": index,
        }
        for index, turn in enumerate(attempt.turns)
    ]


def report(attempts: list[Attempt]) -> list[str]:
    """Return one line per family (successes, mean turns and prompt characters), each followed by its failures."""
    lines = []
    for name in dict.fromkeys(attempt.task.family for attempt in attempts):
        mine = [attempt for attempt in attempts if attempt.task.family == name]
        turns = statistics.mean(len(attempt.turns) for attempt in mine)
        characters = statistics.mean(len(turn.prompt) for attempt in mine for turn in attempt.turns or [])
        solved = sum(attempt.success for attempt in mine)
        lines.append(f"{name:24}{solved:4}/{len(mine)}  {turns:5.1f} turns  {characters:6.0f} prompt characters")
        lines += [f"    seed {a.task.seed}: {a.error or 'wrong ending'}" for a in mine if not a.success]
    return lines


async def _first_text(env: Env, task: Task) -> str:
    return turn_text(await env.reset(task), [])


def _write_lines(output: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write the file atomically, so that a reader never sees a partial file."""
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(output.name + ".partial")
    partial.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    partial.replace(output)


class SeedRange(click.ParamType):
    """Range parameter: `0:60` is range(0, 60)."""

    name = "FIRST:END"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        first, colon, end = str(value).partition(":")
        if not (colon and first.isdigit() and end.isdigit()):
            self.fail(f"{value!r} is not of the form 0:60", param, ctx)
        return range(int(first), int(end))


@click.command()
@click.option("--families", default="demonstrated", help="all, demonstrated, undemonstrated, or names with commas.")
@click.option("--seeds", type=SeedRange(), default="0:60", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write demonstrations here.")
@click.option("--texts", type=click.Path(path_type=Path), help="Write first-turn texts here.")
@click.option("--sessions", default=4, show_default=True, help="Pages of the one browser.")
def main(families: str, seeds: range, output: Path | None, texts: Path | None, sessions: int) -> None:
    """Solve MiniWoB++ tasks with scripted experts: write demonstrations or page texts, or only report success."""
    names = GROUPS.get(families) or families.split(",")
    try:
        if texts is not None:
            written = asyncio.run(write_texts(names, seeds, texts, sessions))
            say(f"{len(written)} texts, {statistics.mean(map(len, written)):.0f} characters each, in {texts}")
        elif output is not None:
            say("\n".join(report(asyncio.run(make_demonstrations(names, seeds, output, sessions)))))
        else:
            say("\n".join(report(asyncio.run(attempt_all(make_tasks(names, seeds), sessions)))))
    except QuartetError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
