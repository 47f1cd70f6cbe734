"""Environments of Gymnasium, with observations and actions as text; MiniGrid and BabyAI among them."""

from typing import Any, Literal

from quartet.config.section import Positive, Section
from quartet.env.base import Env, Environment
from quartet.env.extra import import_extra
from quartet.env.gym.session import GymSession
from quartet.env.gym.text import ansi, minigrid, values
from quartet.errors import ConfigError, SetupError
from quartet.registry import PLACE_OF_MODULES
from quartet.shipped import import_module

OF_EXTRA = {"gymnasium", "minigrid"}
"""Packages of the extra that register ids."""
DESCRIPTIONS = {"auto": None, "ansi": ansi, "values": values, "minigrid": minigrid}


class Gymnasium(Environment):
    """Environments of Gymnasium by their ids, with text in place of arrays: the ids are the task families."""

    class Settings(Section):
        ids: list[str]
        """Ids of the environments, for example `minigrid:BabyAI-GoToLocal-v0`. The module before the colon is imported
        first, since it registers the id."""
        options: dict[str, Any] = {}
        """Keyword arguments of `gymnasium.make`."""
        action_names: list[str] = []
        """Names of the actions of a discrete space, in order. By default those of the environment's enumeration
        `actions`, if it has one, else numbers. Arrays are written as JSON."""
        text: Literal["auto", "ansi", "values", "minigrid"] = "auto"
        """Form of the observation: the environment's render mode `ansi`, the numbers (`values`), or the objects of
        MiniGrid's view. `auto` takes `ansi` if the environment has it, `minigrid` for MiniGrid, else `values`."""
        success_reward: float | None = None
        """Least sum of an episode's rewards that is a success. By default `info["is_success"]` decides, else the id's
        registered `reward_threshold`, such as 475 of `CartPole-v1`. Without both, a terminated episode whose last
        reward is above 0 is one."""
        turn_limit: Positive | None = None
        """Turn limit of every family in evaluations; training applies it with `control.horizon = "suite"`. By default
        the environment's own."""

    settings: Settings
    observation_format = 2  # 1 left out numbers of arrays of more than 1000, and wrapped long rows
    deterministic = True
    extra = "gymnasium"
    grammar = "the name or number of an action, such as `forward`"
    source = "Towers et al. 2024, Gymnasium: A Standard Interface for Reinforcement Learning Environments"
    first_settings = {
        "env": {"ids": ["minigrid:MiniGrid-Empty-5x5-v0"], "screenshots": False},
        "rollout": {"max_turns": 16, "max_tokens": 8},
    }

    def modules(self) -> list[str]:
        registering = {name.rpartition(":")[0].partition(".")[0] for name in self.settings.ids}
        return ["gymnasium", *sorted(registering & OF_EXTRA - {"gymnasium"})]

    def families(self) -> list[str]:
        return self.settings.ids

    def session(self) -> Env:
        settings = self.settings
        text = DESCRIPTIONS[settings.text]
        chosen: Any = GymSession(self._make, settings.action_names, text, settings.success_reward)
        return chosen  # its plain functions are called in a thread

    def max_turns(self, family_name: str) -> int | None:
        return self.settings.turn_limit or self._spec(family_name).max_episode_steps

    def _make(self, family: str) -> Any:
        spec, registration = self._spec(family), import_extra("gymnasium.envs.registration", self.extra)
        entry = spec.entry_point
        creator = registration.load_env_creator(entry) if isinstance(entry, str) else entry
        ansi = "ansi" in getattr(creator, "metadata", {}).get("render_modes", [])
        return registration.make(spec, **({"render_mode": "ansi"} if ansi else {}) | self.settings.options)

    def _spec(self, family: str) -> Any:
        """Return the registered specification. Raise `ConfigError` for an unknown id."""
        gymnasium = import_extra("gymnasium", self.extra)
        module, _, name = family.rpartition(":")
        if module.partition(".")[0] in OF_EXTRA:
            import_extra(module, self.extra)
        elif module:
            _import_own(module)
        try:
            return gymnasium.spec(name)
        except gymnasium.error.Error as error:
            raise ConfigError(f"env.ids: {error}", "write an id such as minigrid:BabyAI-GoToLocal-v0") from error


def _import_own(module: str) -> None:
    """Import the user's module, which registers ids. Raise `SetupError` if it cannot be imported."""
    try:
        import_module(module)
    except ImportError as error:
        raise SetupError(
            f"env.ids: cannot import the module {module!r}: {error}", f"check that {PLACE_OF_MODULES}"
        ) from error
