"""Look-ups: what each family asks, which relations are held out, and what counts as an answer."""

import pytest

from quartet import config
from quartet.env import make_environment, make_pool
from quartet.env.environment.lookups import (
    FACTS,
    FAMILIES,
    KEYS,
    TABLES,
    LookupsEnv,
    chain,
    is_right,
    number_of,
    page,
    pairs,
)
from quartet.errors import ConfigError, EnvError
from quartet.types import Observation, Task

LOOKUPS = config.Env(name="lookups", sessions=2)
SEEDS = range(300)


def task(family: str, seed: int = 0) -> Task:
    return Task(env="lookups", family=family, seed=seed)


def asked(family: str) -> set[tuple[str, ...]]:
    """Return the relations of a family's questions, the fact first."""
    return {tuple(reversed(page(task(family, seed)).goal.split()[:-1])) for seed in SEEDS}


def test_pairs_of_composition_are_new_and_their_relations_are_not():
    assert asked("iid") == {*pairs("iid")}
    assert asked("composition") == {*pairs("composition")}
    assert not asked("iid") & asked("composition")
    for place in (0, 1):
        assert {pair[place] for pair in asked("composition")} == {pair[place] for pair in asked("iid")}


def test_every_zero_shot_pair_has_a_relation_that_iid_lacks_and_the_skills_have_all():
    known = {relation for pair in asked("iid") for relation in pair}
    assert asked("zero_shot") == {*pairs("zero_shot")}
    assert all(set(pair) - known for pair in asked("zero_shot"))
    assert asked("parametric") == {(fact,) for fact in FACTS}
    assert asked("contextual") == {(table,) for table in TABLES}
    assert len(asked("iid") | asked("composition") | asked("zero_shot")) == len(FACTS) * len(TABLES)


def test_facts_are_the_same_in_all_tasks_and_tables_differ():
    answers: dict[str, set[str]] = {}
    for seed in SEEDS:
        seen = page(task("iid", seed))
        answers.setdefault(seen.goal, set()).add(chain(seen)[-1])
        _, fact, person = seen.goal.split()
        assert chain(seen)[1] == number_of(fact, person)
    assert max(map(len, answers.values())) > 2, "the same question has other answers with other tables"
    assert all(page(task("parametric", seed)).text == "" for seed in SEEDS)


def test_a_table_has_two_lines_for_each_of_its_numbers():
    lines = page(task("iid")).text.split("\n")
    assert len(lines) == 2 * KEYS
    assert sorted(line[0] for line in lines) == sorted(2 * [*{line[0] for line in lines}])


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_expert_answers_and_its_neighbour_does_not(family: str):
    env = await make_pool(LOOKUPS).acquire()
    for seed in range(5):
        expert = make_environment(LOOKUPS).expert(family, seed)
        assert expert
        said = expert(await env.reset(task(family, seed)))
        right = await env.step(said)
        assert (right.reward, right.terminated, right.info) == (1.0, True, {"success": True})
        await env.reset(task(family, seed))
        wrong = await env.step(said + "anna")
        assert (wrong.reward, wrong.terminated, wrong.info) == (0.0, True, {})


def test_the_last_word_or_digit_is_the_answer():
    seen = Observation(goal="colour 3", text="3red\n4blue\n3pear\n4fig")
    assert [is_right(seen, said) for said in ("3red", "It is Red.", "red", "3 pear", "red 3", "4blue", "")] == [
        *(True, True, True),
        *(False, False, False, False),
    ]


async def test_an_unknown_family_and_an_answer_before_a_question_are_errors():
    with pytest.raises(ConfigError, match="Did you mean 'zero_shot'"):
        await LookupsEnv().reset(task("zeroshot"))
    with pytest.raises(EnvError, match="before the first reset"):
        await LookupsEnv().step("3")
