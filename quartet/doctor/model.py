"""Check the recipe's names and its model's files."""

from collections.abc import Iterator
from pathlib import Path

from quartet.doctor.base import Doctor, Finding, Place, lacks, ok, refused
from quartet.errors import ConfigError
from quartet.runtime.check.recipe import check_recipe


class Model(Doctor):
    """Check the recipe's names and its model's files."""

    def examine(self, place: Place) -> Iterator[Finding]:
        if place.recipe is None:
            return
        try:
            check_recipe(place.recipe)
        except ConfigError as error:
            yield refused(error)
            return
        folder = Path(place.recipe.model.path)
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        if weights:
            yield ok(f"the recipe is valid; its model has {weights / 1e6:,.0f} MB of weights")
        else:
            yield lacks(f"{folder} has no *.safetensors", "use a folder written by `save_pretrained`")
