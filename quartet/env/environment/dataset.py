"""Rows of a data set as tasks: the policy answers one row, and reward functions score the response."""

import asyncio
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from quartet import config
from quartet.config import Recipe, Reward
from quartet.config.choice import SeveralOf
from quartet.config.section import Fraction, LocalPath, Positive, Section
from quartet.env.base import Env, Environment, EnvPool
from quartet.env.dataset.answers import known_extractor
from quartet.env.dataset.prompt import DEFAULT, Prompts
from quartet.env.dataset.rows import FIRST_HELD_OUT_SEED, Row, Rows, drawn, read_rows
from quartet.env.dataset.session import DatasetPool, DatasetSession
from quartet.env.earlier_turns import require_earlier_turns
from quartet.env.scoring.scorer import scorers
from quartet.errors import ConfigError, nearest
from quartet.registry import find, names, own_settings
from quartet.shipped import recipes_folder
from quartet.types import Message, Task

EXAMPLE = recipes_folder() / "dataset_math" / "problems.jsonl"
"""Data set of a first recipe."""
ALL = "rows"
"""The only family of a data set without `family_column`."""


class Dataset(Environment):
    """Rows of a data set: JSONL, JSON, Parquet, or a folder of `datasets`. One response answers one row."""

    class Settings(Section):
        data: LocalPath
        """File of rows (`.jsonl`, `.json`, `.parquet`), or folder of such files, of datasets' `save_to_disk`, or of a
        snapshot of the Hugging Face Hub. The split `train` is used for training."""
        held_out: LocalPath = ""
        """File or folder of rows for evaluation. If empty, the split `test` or `validation` of the folder, else a share
        of the rows, which training then leaves out."""
        held_out_share: Fraction = 0.1
        """Share of rows for evaluation if there is no other source of them; chosen by a hash of the row's content."""
        prompt: str = DEFAULT
        """Jinja template of the user's message, with the columns of the row as variables. The default is the column
        `prompt`, which may hold a text or a list of messages."""
        system: str = ""
        """System prompt; empty for none."""
        reward: SeveralOf[Reward] = []
        """Rewards whose components are summed: names of parts, or `module:function`. Empty only for a credit that reads
        no rewards, such as `majority_vote`."""
        answer: Annotated[str, AfterValidator(known_extractor)] = "text"
        """Part of the response that is its answer: `text` (all of it), `number` (the last number), `boxed` (the last
        `\\boxed{}`), or a pattern, whose last match or its first group is the answer. A pattern runs in the environment
        host without a time limit: one with nested repetitions, such as `(\\w+\\s?)+`, can stop all its sessions."""
        success_reward: float = 1.0
        """Least total reward of a success."""
        family_column: str = ""
        """Column whose values are the task families, for example a level or a subject; empty for a single family."""
        tries: Positive = 1
        """Maximum number of responses to a row; `rollout.max_turns` must allow them. Only the last is rewarded."""
        feedback: str = "That is not right. Try again."
        """Message after a response without success, if there are more tries."""

    settings: Settings
    first_settings = {
        "env": {"data": str(EXAMPLE), "prompt": "What is {{ question }}?", "reward": "number", "screenshots": False},
        "rollout": {"max_turns": 1, "max_tokens": 256},
    }

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        credit: Any = find("credit", recipe.credit.name)
        if not cls.has_reward(settings) and credit.reads_rewards(own_settings(recipe.credit)):
            raise ConfigError(
                "env.reward is missing, so every response would be worth the same",
                f"name one of {', '.join(names('reward'))}, or module:function",
            )
        longest = max(settings.reward, key=lambda reward: reward.timeout_seconds, default=None)
        if longest and longest.timeout_seconds >= recipe.env.step_timeout_seconds:
            raise ConfigError(
                f"the reward {longest.name} may take {longest.timeout_seconds:g} s, but a step only "
                f"env.step_timeout_seconds = {recipe.env.step_timeout_seconds:g}",
                "raise env.step_timeout_seconds: responses also wait for a free process of the reward",
            )
        if recipe.evaluation.first_seed < FIRST_HELD_OUT_SEED:
            raise ConfigError(
                f"rows are held out for seeds from {FIRST_HELD_OUT_SEED:,} on, but evaluation.first_seed is lower",
                f"leave it at {FIRST_HELD_OUT_SEED:,} or above",
            )
        if settings.tries > 1:
            require_earlier_turns(recipe, "earlier answers, but env.tries is above 1")
        if recipe.rollout.max_turns < settings.tries:
            raise ConfigError(
                f"env.tries = {settings.tries}, but rollout.max_turns = {recipe.rollout.max_turns}", "raise the latter"
            )

    @classmethod
    def has_reward(cls, settings: Any) -> bool:
        """Return whether responses are scored."""
        return bool(settings.reward)

    def families(self) -> list[str]:
        self._prompts()  # a template that cannot be filled is an error before a run starts
        return sorted(self._rows)

    def load_code(self, env: config.Env) -> None:
        for scorer in scorers(self.settings.reward, env.start_timeout_seconds):
            asyncio.run(scorer.check())

    def num_train_tasks(self, family_name: str) -> int:
        return len(self._rows[family_name].training)

    def num_held_out_tasks(self, family_name: str) -> int:
        return len(self._rows[family_name].held_out)

    def first_prompt(self, family_name: str) -> list[Message]:
        return self._prompts().messages(self._rows[family_name].training[0])

    def max_turns(self, family_name: str) -> int:
        return self.settings.tries

    def pool(self, env: config.Env) -> EnvPool:
        prompts, own_scorers = self._prompts(), scorers(self.settings.reward, env.start_timeout_seconds)

        def session() -> Env:
            answers = DatasetSession(
                self.row,
                prompts,
                own_scorers,
                answer=self.settings.answer,
                success_reward=self.settings.success_reward,
                tries=self.settings.tries,
                feedback=self.settings.feedback,
            )
            return self.around(env, answers)

        return DatasetPool(session, env.sessions, own_scorers)

    def around(self, env: config.Env, answers: DatasetSession) -> Env:
        """Return the session of the environment, given the one that shows rows and scores answers."""
        return answers

    def row(self, task: Task) -> Row:
        """Return the row of a task. Raise `ConfigError` for an unknown family."""
        if task.family not in self._rows:
            raise ConfigError(f"unknown family {task.family!r}", nearest(task.family, self._rows))
        return drawn(*self._rows[task.family], task.seed)

    def _prompts(self) -> Prompts:
        """Return the template. Raise `ConfigError` if the first training row of a family does not fill it."""
        prompts = Prompts(self.settings.prompt, self.settings.system)
        for rows in self._rows.values():
            prompts.messages(rows.training[0])
        return prompts

    @cached_property
    def _rows(self) -> dict[str, Rows]:
        """The rows of each family. It is an error if a family has no row to train on or to evaluate, or more training
        rows than seeds."""
        families = self._families_of_rows()
        for family, rows in families.items():
            if len(rows.training) > FIRST_HELD_OUT_SEED:
                raise ConfigError(
                    f"the family {family!r} has {len(rows.training):,} rows for training, but only "
                    f"{FIRST_HELD_OUT_SEED:,} can be drawn",
                    "give env.data fewer rows, or divide them into families with env.family_column",
                )
        return families

    def _families_of_rows(self) -> dict[str, Rows]:
        settings = self.settings
        held_out = Path(settings.held_out) if settings.held_out else None
        rows = read_rows(Path(settings.data), held_out, settings.held_out_share)
        if not settings.family_column:
            return {ALL: rows}
        training, evaluation = (_by_family(part, settings.family_column) for part in rows)
        if lacking := sorted(training.keys() ^ evaluation.keys()):
            what = "training" if lacking[0] in evaluation else "evaluation"
            raise ConfigError(
                f"the family {lacking[0]!r} has no row for {what}", "change env.held_out_share, or give env.held_out"
            )
        return {family: Rows(training[family], evaluation[family]) for family in training}


def _by_family(rows: list[Row], column: str) -> dict[str, list[Row]]:
    families: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if column not in row:
            raise ConfigError(f"a row lacks env.family_column = {column!r}", f"columns: {', '.join(sorted(row))}")
        families[str(row[column])].append(row)
    return families
