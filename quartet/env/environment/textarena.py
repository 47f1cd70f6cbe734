"""Text games of TextArena, for one player or for several that act in turn."""

from typing import Any

from quartet.config import Recipe
from quartet.config.section import Positive, Section
from quartet.env.base import Env, Environment
from quartet.env.extra import import_extra
from quartet.env.own_random import OwnRandom
from quartet.env.turns import TurnOrder, check_players
from quartet.errors import ConfigError, RewardError, nearest
from quartet.types import Observation, Outcome, StepResult, TakenAction, Task, Text


class TextArena(Environment):
    """Text games of TextArena by their ids, which are the task families."""

    class Settings(Section):
        ids: list[str]
        """Ids of games, for example `GuessTheNumber-v0`."""
        options: dict[str, Any] = {}
        """Keyword arguments of `textarena.make`."""
        players: Positive = 1
        """Number of players. Several players need the loop `alternate`, and a game in which they strictly take turns;
        an invalid move then ends the game. A single player may repeat an invalid move once."""
        history: bool = True
        """Show in every observation all that the player has read so far; false shows only what is new, for the loop
        `append`."""
        turn_limit: Positive | None = None
        """Turn limit of every family in evaluations; training applies it with `control.horizon = "suite"`. By default
        the game's own, if its id has one."""

    settings: Settings
    deterministic = True
    extra = "textarena"
    grammar = "a move in square brackets, such as `[5]`"
    source = "Guertler et al. 2025, TextArena"
    first_settings = {
        "env": {"ids": ["GuessTheNumber-v0"], "screenshots": False},
        "rollout": {"max_turns": 12, "max_tokens": 64},
        "control": {"horizon": ["suite"]},
    }

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        check_players(settings.players, recipe)
        if not settings.history and recipe.rollout.loop.name != "append":
            raise ConfigError(
                f"the loop {recipe.rollout.loop.name!r} shows no earlier observations", "set env.history = true"
            )

    def modules(self) -> list[str]:
        return ["textarena"]

    def families(self) -> list[str]:
        return self.settings.ids

    def session(self) -> Env:
        chosen: Any = TextArenaSession(self)
        return chosen  # its plain functions are called in a thread

    def max_turns(self, family_name: str) -> int | None:
        return self.settings.turn_limit or self._registry(family_name)[family_name].kwargs.get("max_turns")

    def make(self, family: str) -> Any:
        """Make a game without wrappers of its observations. Raise `ConfigError` for an unknown id."""
        self._registry(family)
        return import_extra("textarena", self.extra).make(f"{family}-raw", **self.settings.options)

    def _registry(self, family: str) -> dict[str, Any]:
        import_extra("textarena", self.extra)
        registry = import_extra("textarena.envs.registration", self.extra).ENV_REGISTRY
        if f"{family}-raw" not in registry:
            raise ConfigError(f"env.ids: unknown game {family!r}", nearest(family, registry))
        return registry


class TextArenaSession:
    """One session: a step is the move of the player whose turn it is."""

    def __init__(self, environment: TextArena) -> None:
        self._environment, self._players = environment, environment.settings.players

    def reset(self, task: Task) -> Observation:
        """Start a game with the task's seed."""
        self._task, self._game, self._random = task, self._environment.make(task.family), OwnRandom(task.seed)
        with self._random.drawing():
            try:
                self._game.reset(num_players=self._players, seed=task.seed)
            except AssertionError as error:
                raise ConfigError(f"{task.family}: {error}", "set env.players to the players of the game") from error
        if self._players > 1:
            self._game.state.error_allowance = 0  # a second attempt would be taken for the next player's move
        self._read: list[list[str]] = [[] for _ in range(self._players)]
        self._order, self._moves = TurnOrder(task.family, self._players), 0
        return self._observe()

    def step(self, action: str) -> StepResult:
        """Make a move. An invalid move is an error, which ends the game when it is repeated; with several players it
        loses at once, since the turn is the next player's."""
        state, player = self._game.state, self._game.state.current_player_id
        errors = state.error_count
        with self._random.drawing():
            done, _ = self._game.step(action)
        invalid = state.error_count > errors or bool(state.game_info[player]["invalid_move"])
        self._moves += not invalid
        if invalid and self._players > 1 and not done:  # games for more than two eliminate the player and go on
            return self._lost(player, action)
        reason = state.game_info[player].get("reason") or ""
        seen = Observation(goal="", text=reason) if done else self._observe(invalid=invalid)
        taken = TakenAction(action=Text(text=action), canonical=action, outcome=Outcome.REFUSED, error=seen.error)
        if not invalid:
            taken = TakenAction(action=Text(text=action), canonical=action)
        if not done:
            return StepResult(observation=seen, reward=0.0, terminated=False, actions=[taken])
        reward, info = self._outcome()
        return StepResult(observation=seen, reward=reward, terminated=True, info=info, actions=[taken])

    async def close(self) -> None:
        """Release nothing."""

    def _lost(self, player: int, action: str) -> StepResult:
        """Return the end of a game of several players by an invalid move."""
        others = 1 / (self._players - 1)
        rewards = [-1.0 if seat == player else others for seat in self._order.sort(range(self._players))]
        seen = Observation(goal="", text=f"Player {player} made an invalid move and lost.")
        taken = TakenAction(action=Text(text=action), canonical=action, outcome=Outcome.REFUSED)
        return StepResult(observation=seen, reward=0.0, terminated=True, info={"rewards": rewards}, actions=[taken])

    def _outcome(self) -> tuple[float, dict[str, Any]]:
        """Return the reward of a single player, or the rewards of all in the order of their turns."""
        rewards, _ = self._game.close()
        if rewards is None:
            raise RewardError(f"{self._task.family} ended without rewards", "report it to TextArena")
        if self._players == 1:
            return float(rewards[0]), {"success": rewards[0] >= 1}
        return 0.0, {"rewards": [float(rewards[player]) for player in self._order.sort(range(self._players))]}

    def _observe(self, *, invalid: bool = False) -> Observation:
        """Return what the player reads whose turn it is; the complaint about an invalid move is the error."""
        player, messages = self._game.get_observation()
        self._order.expect(player, self._moves)
        texts = [text if sender < 0 else f"Player {sender}: {text}" for sender, text, _ in messages]
        error = texts.pop() if invalid and texts else ""
        read = self._read[player]
        read += texts
        shown = read if self._environment.settings.history else texts
        return Observation(goal="", text="\n".join(shown), error=error)
