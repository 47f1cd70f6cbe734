"""The experiment on atomic skills: what the initial policy imitates, the measure of answers, and runs of equal size."""

import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.lookups import lessons, start
from benchmarks.lookups.answers import ANSWER_TOKENS, QUESTIONS, Answers
from benchmarks.lookups.run import ANSWERS_PER_BATCH
from benchmarks.lookups.start import lookups_start, start_chats
from benchmarks.strategies.atomic import IMITATION, RL, STEPS, Main
from quartet.config import Evaluation
from quartet.env.environment.lookups import FACTS, FAMILIES, TABLES, chain, is_right, page
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.types import Observation, Task

FIRST_SEED = Evaluation().first_seed


def take_one_step(patch: pytest.MonkeyPatch) -> None:
    """Let each lesson and the imitation end after a step."""
    patch.setattr(start, "STEPS", 1)
    patch.setattr(start, "EXAMPLES", 200)
    patch.setattr(lessons, "CHATS", 50)
    patch.setattr(lessons, "LESSONS", ((1, 2, 1), (2, 4, 1)))


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an initial policy that took one step and knows nothing."""
    with pytest.MonkeyPatch.context() as patch:
        take_one_step(patch)
        patch.setattr(start, "LEAST_SHARE", 0.0)
        return lookups_start(tmp_path_factory.mktemp("starts") / "lookups")


def test_the_start_imitates_right_answers_to_questions_of_one_skill(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(start, "EXAMPLES", 400)
    relations: set[str] = set()
    for one in start_chats():
        question, answer = (message["content"] for message in one["messages"])
        goal, _, text = question.partition("\n")
        relation, _ = goal.split()  # a question that needs both skills has two relations
        relations.add(relation)
        assert is_right(Observation(goal=goal, text=text), answer)
        assert bool(text) == (relation in TABLES), "a table for a question about a table"
    assert relations == {*FACTS, *TABLES}


@pytest.mark.parametrize(("tables", "numbers"), [(1, 2), (1, 5), (2, 4)])
def test_a_lesson_asks_for_lines_of_the_first_table_in_any_order(tables: int, numbers: int):
    question, answer = (one["content"] for one in lessons.question(random.Random(0), tables, numbers)["messages"])
    goal, *lines = question.split("\n")
    relation, *asked = goal.split()
    found = re.findall(r"(\d)([a-z]+)", answer)
    assert [number for number, _ in found] == asked and len({*asked}) == numbers
    assert all(word in TABLES[relation] for _, word in found)
    assert {f"{number}{word}" for number, word in found} <= {*lines} and len(lines) == tables * numbers


class Reader:
    """Model that continues every prompt of some families with the expert's answer, and ends the others at once."""

    def __init__(self, tokenizer: Any, families: tuple[str, ...]) -> None:
        self._tokenizer, self._said = tokenizer, dict[str, list[int]]()
        for family in families:
            for seed in range(FIRST_SEED, FIRST_SEED + QUESTIONS):
                seen = page(Task(env="lookups", family=family, seed=seed))
                ids = tokenizer("".join(chain(seen)), add_special_tokens=False)["input_ids"]
                self._said[f"{seen.goal}\n{seen.text}"] = [*ids, tokenizer.eos_token_id]

    def __call__(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        logits = torch.zeros(len(input_ids), 1, len(self._tokenizer))
        for row, ids in enumerate(input_ids.tolist()):
            prompt, _, said = self._tokenizer.decode(ids).partition("<|assistant|>")
            answer = self._said.get(prompt.removeprefix("<|user|>").removesuffix("<|end|>"), [])
            done = len(self._tokenizer(said, add_special_tokens=False)["input_ids"])
            logits[row, 0, answer[done] if done < len(answer) else self._tokenizer.eos_token_id] = 1.0
        return SimpleNamespace(logits=logits)


def test_right_answers_are_counted_by_family(untrained: Path):
    tokenizer = load_tokenizer(untrained)
    measure: Any = Answers(tokenizer, FIRST_SEED)
    shares = measure(Reader(tokenizer, ("parametric", "zero_shot")))
    assert shares == {family: float(family in ("parametric", "zero_shot")) for family in FAMILIES}


def test_a_start_that_lacks_a_skill_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    take_one_step(monkeypatch)
    with pytest.raises(RuntimeError, match=r"too few questions of its skills, \{'parametric': 0\."):
        lookups_start(tmp_path / "lookups")


@pytest.mark.slow
def test_imitation_and_reinforcement_measure_every_figure_with_equal_tokens(untrained: Path):
    experiment = Main()
    experiment.budget_tokens = 2 * ANSWERS_PER_BATCH * ANSWER_TOKENS
    for arm in (IMITATION, RL):
        measured = experiment.run([*Main.settings(arm), f"model.path={untrained}", "sft.steps=2"], 0)
        assert measured.tokens == experiment.budget_tokens
        assert set(measured.figures) == set(Main.figures)
    assert Main.budget_tokens == STEPS * ANSWERS_PER_BATCH * ANSWER_TOKENS
