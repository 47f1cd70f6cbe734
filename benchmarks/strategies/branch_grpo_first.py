"""Do trees need more tokens than independent rollouts, if the first press decides?"""

from benchmarks.strategies.branch_grpo import Main as Late


class Main(Late):
    """The arms and claims of `branch_grpo`. All leaves of a tree share the decisive press, so the claims should be
    refuted."""

    decisive = 0
