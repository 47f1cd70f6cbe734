"""Check that the packages of the recipe's environment are installed."""

from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, ok, refused
from quartet.env import make_environment
from quartet.env.extra import require_modules
from quartet.errors import SetupError


class EnvironmentPackages(Doctor):
    """Check that the packages of the recipe's environment are installed."""

    before_training = True

    def examine(self, place: Place) -> Iterator[Finding]:
        if place.recipe is None:
            return
        environment = make_environment(place.recipe.env)
        if not (modules := environment.modules()):
            return
        try:
            require_modules(modules, environment.extra)
        except SetupError as error:
            yield refused(error)
        else:
            yield ok(f"the environment {place.recipe.env.name!r} has {', '.join(modules)}")
