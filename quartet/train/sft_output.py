"""The folder that `quartet sft` writes: which folders it must not replace, and whether it replaces a policy."""

from collections.abc import Iterator
from pathlib import Path

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.files.ledger_files import has_database
from quartet.policy.adapter import is_adapter, read_config
from quartet.policy.save import make_place


def make_output(recipe: Recipe) -> None:
    """Check that `sft.output` can be written. Call this before the training.

    Raise `ConfigError` if it is a policy that the recipe reads or is in the folder of a run's policies. Raise the
    errors of `make_place` too.
    """
    output = Path(recipe.sft.output).resolve()
    _refuse_read(recipe, output)
    make_place(output)


def replaces_policy(recipe: Recipe) -> bool:
    """Return whether `sft.output` is a policy already, which the new one replaces. Raise the `ConfigError` of
    `make_output`."""
    if not recipe.sft.output:
        return False
    output = Path(recipe.sft.output).resolve()
    _refuse_read(recipe, output)
    return (output / "config.json").is_file()


def _refuse_read(recipe: Recipe, output: Path) -> None:
    if setting := next((name for name, folder in _read_folders(recipe) if folder.resolve() == output), None):
        raise ConfigError(f"sft.output = {output} would replace the policy of {setting}", "name another folder")
    for folder in output.parents:
        if folder.name == "policies" and has_database(folder.parent):
            raise ConfigError(f"sft.output = {output} is in the folder of a run's policies", "name another folder")


def _read_folders(recipe: Recipe) -> Iterator[tuple[str, Path]]:
    """Yield each setting that names a policy, with the folder of the policy, and that of the base of an adapter."""
    sources = {f"policies.{name}.source": one.source for name, one in recipe.policies.items() if one.source}
    teacher = recipe.credit.settings.get("teacher")
    sources = {"model.path": recipe.model.path} | sources | ({"credit.teacher": teacher} if teacher else {})
    for setting, source in sources.items():
        folder = Path(source)
        yield setting, folder
        if is_adapter(folder):
            yield f"{setting}, as the base of its adapter", Path(read_config(folder).base_model_name_or_path)
