"""Do ARPO's forks need more environment steps than independent rollouts, if the first press decides?"""

from benchmarks.strategies.arpo import Main as Late


class Main(Late):
    """The arms and claims of `arpo`. All forks share the decisive press, so the claims should be refuted."""

    suite = "locks-first"
