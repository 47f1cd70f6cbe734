"""The key of a task: the same key means the same task, in every run."""

import json

from hypothesis import given
from hypothesis import strategies as st

from quartet.types import Task

values = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
params = st.dictionaries(
    st.text(max_size=3), values | st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=2), values)
)


def task(**params: object) -> Task:
    return Task(env="bandit", family="named", seed=3, params=params)


def test_without_parameters_it_is_as_it_always_was():
    assert task().key == "bandit/named/3"


def test_parameters_are_part_of_it():
    assert task(turns=2).key == 'bandit/named/3/{"turns":2}'
    assert len({task().key, task(turns=2).key, task(turns=3).key, task(turns="2").key, task(delay=2).key}) == 5


@given(params)
def test_it_does_not_depend_on_the_order_of_parameters_nor_on_a_trip_through_the_database(drawn):
    def backwards(value):
        return {name: backwards(value[name]) for name in reversed(value)} if isinstance(value, dict) else value

    stored = json.loads(json.dumps(drawn))
    assert (
        Task(env="e", family="f", seed=1, params=backwards(drawn)).key
        == Task(env="e", family="f", seed=1, params=stored).key
    )
