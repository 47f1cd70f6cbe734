"""Arguments and options that several commands share, with one name, one help text and one completion."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from quartet.errors import ConfigError, nearest

RUNS_FOLDER = Path("runs")
"""Default folder of runs of `quartet train`."""


class RunFolder(click.ParamType):
    """Folder of an existing run. Another value, such as a folder of something else, raises `ConfigError`, which names
    the nearest run or the runs in the folder."""

    name = "run"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.is_dir():
            _refuse_folder_of_runs(path)
            if _is_run(path):
                return path
        known = [str(run) for run in _runs()]
        raise ConfigError(
            f"{path} is not a run" if path.is_dir() else f"no run at {path}",
            nearest(str(path), known) if known else "give the folder of a run that `quartet train` made",
        )

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        runs = [CompletionItem(str(run)) for run in _runs() if str(run).startswith(incomplete)]
        return runs or [CompletionItem(incomplete, type="dir")]


class RunsOf(click.ParamType):
    """A run, or a folder of runs. Converts to the list of these runs."""

    name = "run or folder of runs"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> list[Path]:
        return runs_inside(Path(value)) or [RunFolder().convert(value, param, ctx)]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return RunFolder().shell_complete(ctx, param, incomplete)


class RecipeName(click.ParamType):
    """A recipe's file, or the name of a shipped recipe; `load_recipe` distinguishes them."""

    name = "recipe"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return Path(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from quartet.shipped import shipped_recipes

        names = [CompletionItem(name) for name in shipped_recipes() if name.startswith(incomplete)]
        return [*names, CompletionItem(incomplete, type="file")]


class PolicyOrRun(click.ParamType):
    """A folder, or the name of a policy. For any other value raises `ConfigError` with the nearest name."""

    name = "policy or run"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from quartet.shipped import named_policies

        path, named = Path(value), named_policies()
        if path.is_dir():
            return path
        if str(value) not in named:
            from quartet.policy.download import DOWNLOADS

            known = [*named, *map(str, _runs())]
            advice = f"quartet model get {value}" if str(value) in DOWNLOADS else nearest(str(value), known)
            raise ConfigError(f"{path} is neither a folder nor the name of a policy", advice)
        return named[str(value)]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from quartet.shipped import named_policies

        names = [CompletionItem(name) for name in named_policies() if name.startswith(incomplete)]
        return [*names, CompletionItem(incomplete, type="dir")]


class Amount(click.FloatRange):
    """Number in a range. It refuses `nan`, which a range alone accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def _runs() -> Iterator[Path]:
    return (file.parent for file in sorted(RUNS_FOLDER.glob("*/config.toml")))


def _is_run(folder: Path) -> bool:
    """Return whether the folder has a recipe, spans, a ledger or the lock file, which a starting run has first."""
    if (folder / "config.toml").is_file() or (folder / "spans").is_dir():
        return True
    from quartet.run.run_files import is_run

    return is_run(folder)


def runs_inside(folder: Path) -> list[Path]:
    """Return the runs in a folder of runs, sorted by name; an empty list for a run and for any other path."""
    if not folder.is_dir() or (folder / "config.toml").is_file():
        return []
    from quartet.ledger.database import has_database

    runs = [file.parent for file in sorted(folder.glob("*/config.toml"))]
    return [] if has_database(folder) else [run for run in runs if has_database(run)]


def _refuse_folder_of_runs(folder: Path) -> None:
    """Raise `ConfigError` for a folder that is not a run but contains runs; the error names them."""
    inside = [] if (folder / "config.toml").is_file() else sorted(folder.glob("*/config.toml"))
    if not inside:
        return
    from quartet.ledger.database import has_database

    if not has_database(folder):
        raise ConfigError(
            f"{folder} is not a run", f"give a run inside it: {', '.join(file.parent.name for file in inside)}"
        )


RUN = click.argument("run", type=RunFolder())
RUNS = click.argument("runs", type=RunFolder(), nargs=-1, required=True)
RUNS_OR_FOLDERS = click.argument("runs", type=RunsOf(), nargs=-1, required=True)
RECIPE = click.argument("recipe", type=RecipeName())
SET = click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one setting; may be repeated.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print only the result, as one JSON object.")
