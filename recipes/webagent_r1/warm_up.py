"""Write demonstrations of recipes/miniwob as chats with this recipe's history, for the imitation before training.

    python -m recipes.webagent_r1.warm_up --output runs/warm_up.jsonl

The demonstrations were recorded for the loop `latest`, whose turns repeat the earlier actions as text. Here these lines
are taken out again, so that each turn has the page alone, and the recipe's history decides what a prompt shows of the
turns before.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from quartet.actions.taken import taken_action
from quartet.errors import ConfigError
from quartet.exchange.chat import ChatLine, ChatWriter
from quartet.exchange.lines import read_lines
from quartet.exchange.record import Provenance, TrajectoryRecord
from quartet.policy.chat import decode_chat
from quartet.recipe.file import load_recipe
from quartet.rollout.episode import actions_of
from quartet.terminal.say import say
from quartet.types import Observation, Purpose, Status, Task, Trajectory, Turn

HERE = Path(__file__).parent
DEMONSTRATIONS = HERE.parent / "miniwob" / "start.jsonl"


def trajectories(demonstrations: Path) -> Iterator[Trajectory]:
    """Yield the trajectories of a file that has one line per turn. Raise `ConfigError` for a line of another form."""
    task, turns = Task(env="miniwob", family="", seed=0), list[Turn]()
    decode = partial(decode_chat, kind=ChatLine)
    for number, line in read_lines(demonstrations, decode, "chat that names its task", "write one turn per line"):
        if line.turn == 0 and turns:
            yield _success(task, turns)
            turns = []
        task = Task(env="miniwob", family=line.family, seed=line.seed)
        read, said = (message.content for message in line.messages)
        try:
            seen = page(read, actions_of(turns))
        except ValueError as error:
            raise ConfigError(f"{demonstrations}:{number}: {error}", "record it with the loop 'latest'") from error
        turns.append(Turn(observation=seen, call_index=len(turns), response=said, actions=[taken_action(said)]))
    if turns:
        yield _success(task, turns)


def page(text: str, actions: Sequence[str]) -> Observation:
    """Return the observation of a turn from its text, the inverse of `turn_text`. Raise `ValueError` if the text does
    not end with the earlier actions."""
    earlier = "".join(f"\ndid {action}" for action in actions)
    if not text.endswith(earlier):
        raise ValueError(f"the text does not end with the {len(actions)} earlier actions")
    goal, _, shown = text.removesuffix(earlier).partition("\n")
    return Observation(goal=goal, text=shown)


def write(demonstrations: Path, output: Path) -> int:
    """Write the chats, and return the number of trajectories."""
    recipe, count = load_recipe(HERE / "recipe.toml"), 0
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        writer = ChatWriter(file, recipe)
        for count, trajectory in enumerate(trajectories(demonstrations), 1):
            origin = Provenance(
                run="warm_up",
                purpose=Purpose.DEMONSTRATION,
                rollout_id=count,
                group_id=count,
                attempt=1,
                created_at=0.0,
            )
            writer.write(TrajectoryRecord.of(trajectory, origin, None))
    return count


def _success(task: Task, turns: list[Turn]) -> Trajectory:
    return Trajectory(task=task, status=Status.COMPLETED, calls=[], turns=turns, rewards={"task": 1.0}, success=True)


@click.command()
@click.option("--demonstrations", type=click.Path(path_type=Path, exists=True), default=DEMONSTRATIONS)
@click.option("--output", type=click.Path(path_type=Path), required=True, help="File of chats to write.")
def main(demonstrations: Path, output: Path) -> None:
    """Write demonstrations as chats with the recipe's history."""
    say(f"{write(demonstrations, output)} trajectories in {output}")


if __name__ == "__main__":
    main()
