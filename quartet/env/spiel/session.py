"""Session of a game of OpenSpiel; its methods are plain functions, which run in a thread of the session."""

import random
from collections.abc import Callable
from typing import Any

from quartet.actions.error import ActionError
from quartet.env.gym.actions import NamedActions
from quartet.env.turns import TurnOrder
from quartet.errors import ConfigError
from quartet.types import Observation, Outcome, StepResult, TakenAction, Task, Text

Opponent = Callable[[Any], int]
"""Player of the seats without a policy: a function from a state to a move."""
MAX_DRAWS = 100
"""Maximum number of games that a reset begins to find one in which a policy moves."""


class OpenSpielSession:
    """One session. Rewards are the game's utilities as shares of the largest one, from -1 to 1."""

    def __init__(
        self, load: Callable[[str], Any], opponent: Callable[[Any, random.Random], Opponent], *, players: int, view: str
    ) -> None:
        """Make a session. `load` makes a game of a family, and `opponent` the player of its other seats; `players` is
        the number of policies, and `view` the name of what they see."""
        self._load, self._make_opponent = load, opponent
        self._policies, self._view = players, view

    def reset(self, task: Task) -> Observation:
        """Start a game; the seed draws chance, the opponent's moves, and the seat of a single policy. A game that ends
        before a policy moves is drawn again."""
        self._task, self._draw = task, random.Random(f"{task.family}/{task.seed}")
        self._game = self._load(task.family)
        count = self._game.num_players()
        if not (self._policies == 1 or self._policies == count):
            raise ConfigError(f"{task.family} has {count} players", "set env.players to 1, or to this number")
        self._seats = list(range(count)) if self._policies > 1 else [task.seed % count]
        for _ in range(MAX_DRAWS):
            self._begin()
            if not self._state.is_terminal():
                return self._observe()
        raise ConfigError(
            f"{task.family} ended before the first move of player {self._seats[0]} in each of {MAX_DRAWS} draws",
            "choose another game, or larger parameters of this one",
        )

    def step(self, action: str) -> StepResult:
        """Make the move that the response names. After the end of the game, return its result again."""
        if self._state.is_terminal():
            return self._finished(TakenAction(action=Text(text=action), outcome=Outcome.ENDED))
        player = self._state.current_player()
        try:
            index, name = self._reader().read(action)
        except ActionError as error:
            return self._refused(player, action, str(error))
        self._state.apply_action(self._state.legal_actions()[index])
        self._moves += 1
        self._advance()
        taken = TakenAction(action=Text(text=action), canonical=name)
        if self._state.is_terminal():
            return self._finished(taken)
        return StepResult(observation=self._observe(), reward=0.0, terminated=False, actions=[taken])

    async def close(self) -> None:
        """Release nothing."""

    def _begin(self) -> None:
        """Begin a game, up to the first move of a policy."""
        self._opponent = self._make_opponent(self._game, self._draw)
        self._state = self._game.new_initial_state()
        self._order, self._moves = TurnOrder(self._task.family, self._policies), 0
        self._advance()

    def _advance(self) -> None:
        """Play chance and the opponent until a policy moves or the game ends."""
        while not self._state.is_terminal():
            player = self._state.current_player()
            if self._state.is_chance_node():
                moves, chances = zip(*self._state.chance_outcomes(), strict=True)
                self._state.apply_action(self._draw.choices(moves, chances)[0])
            elif player not in self._seats:
                self._state.apply_action(self._opponent(self._state))
            else:
                self._order.expect(player, self._moves)
                return

    def _reader(self) -> NamedActions:
        return NamedActions([self._state.action_to_string(action) for action in self._state.legal_actions()])

    def _observe(self, error: str = "") -> Observation:
        player = self._state.current_player()
        if self._state.is_terminal():
            return Observation(goal="", text=str(self._state))
        view = self._state.observation_string if self._view == "observation" else self._state.information_state_string
        text = f"{view(player).rstrip()}\nMoves: {self._reader().usage}."
        return Observation(goal=f"Play {self._task.family} as player {player}.", text=text, error=error)

    def _refused(self, player: int, action: str, error: str) -> StepResult:
        """Return the result of an illegal move. With several policies it loses, since the turn is the next player's."""
        taken = TakenAction(action=Text(text=action), outcome=Outcome.PARSE_ERROR, error=error)
        if self._policies > 1:
            others = self._policies - 1
            return self._ended([-1.0 if seat == player else 1 / others for seat in self._seats], taken)
        return StepResult(observation=self._observe(error), reward=0.0, terminated=False, actions=[taken])

    def _finished(self, taken: TakenAction) -> StepResult:
        """Return the end of a game that was played to its end."""
        largest = max(abs(self._game.max_utility()), abs(self._game.min_utility()))
        return self._ended([utility / largest for utility in self._state.returns()], taken)

    def _ended(self, rewards: list[float], taken: TakenAction) -> StepResult:
        """Return the end of a game with the reward of the policy, or the rewards of all in the order of their turns."""
        reward, info = 0.0, {"rewards": [rewards[player] for player in self._order.sort(self._seats)]}
        if self._policies == 1:
            reward = rewards[self._seats[0]]
            info = {"success": reward > 0}
        return StepResult(observation=self._observe(), reward=reward, terminated=True, info=info, actions=[taken])
