"""Sessions of the small text worlds: pages as lines of elements, and responses in Quartet's grammar."""

from collections.abc import Callable

from quartet.actions.grammar import ActionError, parse_action
from quartet.env.performing import ActionFailedError
from quartet.env.worlds.base import Line, Move, World
from quartet.errors import EnvError
from quartet.types import Action, Keyboard, Observation, Pointer, StepResult, Task
from quartet.types.frame import Element

INPUT = "input"
ONLY = "only click and type work here"


def observe(world: World, error: str = "") -> Observation:
    """Return the page of the present state. Elements are numbered from 1."""
    lines, number = list[str](), 0
    for line in world.page():
        number += line.is_element
        reference = f" [{number}]" if line.is_element else ""
        value = f' = "{line.value}"' if line.value else ""
        lines.append(f"{line.kind} {line.name}{reference}{value}")
    return Observation(goal=world.goal, text="\n".join(lines), error=error)


def written(world: World, move: Move) -> str:
    """Return a move as a response."""
    names = [line.name for line in elements(world)]
    target = f"{move.name} [{names.index(move.name) + 1}]"
    return f"click {target}" if move.text is None else f'type {target} "{move.text}"'


def elements(world: World) -> list[Line]:
    """Return the elements of the page in the order of their numbers."""
    return [line for line in world.page() if line.is_element]


class WorldSession:
    """One session. The reward is 1 at the end of a solved task, and 0 otherwise."""

    def __init__(self, make: Callable[[Task], World]) -> None:
        self._make = make
        self._world: World | None = None

    async def reset(self, task: Task) -> Observation:
        """Start an episode. Raise `ConfigError` for an unknown family."""
        self._world = self._make(task)
        return observe(self._world)

    async def step(self, action: str) -> StepResult:
        """Make the move of a response; one that is no possible move changes nothing and gets an error."""
        world = self._world
        if world is None:
            raise EnvError("a world was stepped before its first reset", "call reset(task) first")
        try:
            solved = world.move(_move(world, parse_action(action)))
        except (ActionError, ActionFailedError) as error:
            return StepResult(observation=observe(world, str(error)), reward=0.0, terminated=False)
        info = {} if solved is None else {"success": solved}
        return StepResult(
            observation=observe(world), reward=float(solved or 0), terminated=solved is not None, info=info
        )

    async def close(self) -> None:
        self._world = None


def _move(world: World, action: Action) -> Move:
    """Return the move of an action. Raise `ActionFailedError` if the page has no such move."""
    match action:
        case Pointer(gesture="click", places=[Element(ref)]):
            text = None
        case Keyboard(text=str(text), place=Element(ref)):
            pass
        case _:
            raise ActionFailedError(ONLY)
    choice = elements(world)
    if not 1 <= int(ref) <= len(choice):
        raise ActionFailedError(f"no element [{ref}]")
    line = choice[int(ref) - 1]
    if (line.kind == INPUT) != (text is not None):
        raise ActionFailedError(f"{'type into' if line.kind == INPUT else 'click'} [{ref}]")
    return Move(line.name, text)
