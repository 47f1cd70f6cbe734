"""Check that Ray is installed, if the recipe places its modules on a Ray cluster."""

from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, lacks, ok
from quartet.errors import SetupError
from quartet.runtime.check.recipe import check_ray


class RayPackage(Doctor):
    """Check that Ray is installed, if the recipe places its modules on a Ray cluster."""

    before_training = True

    def examine(self, place: Place) -> Iterator[Finding]:
        if place.recipe is None or place.recipe.runtime.kind != "ray":
            return
        try:
            check_ray(place.recipe)
        except SetupError as error:
            yield lacks(error.what, error.advice)
        else:
            yield ok("Ray is installed")
