"""ARPO's probability of a fork, in closed form and as a frequency, and which calls of a child are not forked."""

from math import sqrt

import pytest

from quartet.rollout.brancher.arpo import ArpoBrancher
from quartet.rollout.brancher.entropy import EntropyBrancher
from quartet.types import Call, FinishReason, Sampling, TokenColumns


def call_of(*entropies: float, seed: int = 0, borrowed: int = 0) -> Call:
    n = len(entropies)
    response = TokenColumns(token_ids=[1] * n, logprobs=[-1.0] * n, versions=[0] * n, entropies=list(entropies))
    return Call(
        prompt_ids=[5, 6],
        response=response,
        borrowed=borrowed,
        sampling=Sampling(seed=seed),
        finish_reason=FinishReason.STOP,
    )


def brancher(**settings) -> ArpoBrancher:
    return ArpoBrancher(ArpoBrancher.Settings(**settings))


@pytest.mark.parametrize(
    ("weight", "now", "first", "expected"),
    [(0, 3.0, 1.0, 0.5), (0.2, 2.0, 1.0, 0.7), (0.2, 1.0, 2.0, 0.3), (1, 9.0, 1.0, 1.0), (1, 0.0, 1.0, 0.0)],
    ids=["no_weight", "rise", "fall", "certain", "never"],
)
def test_the_probability_is_linear_in_the_rise_and_clipped(weight, now, first, expected):
    part = brancher(weight_per_nat=weight)
    assert part.fork_probability(call_of(now), call_of(first)) == pytest.approx(expected)


def test_only_the_first_tokens_count_and_a_borrowed_first_call_keeps_its_entropy():
    part = brancher(weight_per_nat=0.1, tokens=2)
    first = call_of(1.0, 1.0, borrowed=4)
    assert part.fork_probability(call_of(1.0, 3.0, 99.0), first) == pytest.approx(0.5 + 0.1 * (2.0 - 1.0))


@pytest.mark.parametrize("now", [1.0, 2.0, 0.0])
def test_forks_are_as_frequent_as_their_probability(now):
    part, calls, children = brancher(children=2), 2000, 2
    first = call_of(1.0)
    probability = part.fork_probability(call_of(now), first)
    forks = sum(part.forks(call_of(now, seed=seed), [first]) for seed in range(calls))
    deviation = sqrt(calls * children * probability * (1 - probability))
    assert abs(forks - calls * children * probability) < 4 * deviation


@pytest.mark.parametrize("now", [0.5, 9.0])
def test_a_child_does_not_fork_before_the_call_at_which_it_was_forked(now):
    first = call_of(1.0)
    parents, children = call_of(now), call_of(now, borrowed=2)
    certain = brancher(probability=1.0, weight_per_nat=0, children=3)
    uncertain = EntropyBrancher(EntropyBrancher.Settings(min_entropy_nats=0.5, children=2))
    assert (certain.forks(parents, [first]), certain.forks(children, [first])) == (3, 0)
    assert (uncertain.forks(parents, [first]), uncertain.forks(children, [first])) == (2, 0)


def test_half_a_probability_adds_half_a_rollout():
    """With p = 0.5, the tree of a call has 0.5 further rollouts; with forks of children it had p / (1 - p) = 1."""
    part, first, trees = brancher(weight_per_nat=0), call_of(1.0), 2000
    seeds = iter(range(10 * trees))

    def further(borrowed: int) -> int:
        forks = part.forks(call_of(1.0, seed=next(seeds), borrowed=borrowed), [first])
        return forks + sum(further(borrowed=2) for _ in range(forks))

    assert abs(sum(further(borrowed=0) for _ in range(trees)) / trees - 0.5) < 4 * sqrt(0.25 / trees)


def test_a_repeated_call_finds_the_same_forks():
    part, first = brancher(children=3), call_of(1.0)
    found = [[part.forks(call_of(1.5, seed=seed), [first]) for seed in range(50)] for _ in range(2)]
    assert found[0] == found[1] and len(set(found[0])) > 1
