"""Run directories: created once and locked by one supervisor at a time. At a resume, only the settings in
`RESUMABLE_SETTINGS` may differ."""

from pathlib import Path
from shlex import quote

from quartet.config import Recipe
from quartet.crash_points import crash_point
from quartet.errors import ConfigError, SetupError
from quartet.files.disk import sync, usable_output, whole_file
from quartet.files.ledger_files import has_database
from quartet.files.lock import Holder, ProcessLock, holder
from quartet.recipe.file import CONFIG, read_resolved, refuse_changes, to_toml
from quartet.recipe.parts import with_parts
from quartet.run.run_files import LOCK, clear_run, is_run

MOST_NAMES = 4
"""Maximum number of file names that the error for a folder with other files lists."""


def check_run_dir(recipe: Recipe, run_dir: Path, *, resume: bool, fresh: bool = False) -> None:
    """Raise `ConfigError` if `run_dir` cannot be used as requested.

    With `resume` the folder must hold a run whose `config.toml` fits the recipe. With `fresh` (start over) it may hold
    a run. Otherwise it must be empty or missing. A folder that holds other files and no run is always an error.
    """
    if resume and fresh:
        raise ConfigError("--resume and --fresh contradict each other", "give one of them")
    config_path = run_dir / CONFIG
    if not fresh and not config_path.is_file() and has_database(run_dir):
        raise ConfigError(
            f"the run's {config_path} is missing, so this recipe cannot be compared with the run's",
            "copy it from a backup or the original of this folder, start over with --fresh, or name another folder",
        )
    if resume and not config_path.is_file():
        raise ConfigError(f"nothing to resume at {run_dir}", "leave --resume out to start a new run")
    if resume:
        refuse_changes(stored_recipe(run_dir), recipe)
    elif config_path.exists() and not fresh:
        raise ConfigError(
            f"{run_dir} already holds a run",
            f"continue it with `quartet train {quote(str(config_path))} --run-dir {quote(str(run_dir))} --resume`, "
            "start over with --fresh, or name another folder",
        )
    else:
        _refuse_foreign_folder(run_dir)


def stored_recipe(run_dir: Path) -> Recipe:
    """Return the recipe of a run. Parts that have gained settings since the run began have their defaults."""
    return with_parts(read_resolved(run_dir / CONFIG), run_dir)[0]


def prepare(recipe: Recipe, run_dir: Path, *, resume: bool, fresh: bool = False) -> None:
    """Create the folder and write the resolved recipe. Raises `ConfigError` as `check_run_dir` does."""
    check_run_dir(recipe, run_dir, resume=resume, fresh=fresh)
    with usable_output(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
    with RunLock(run_dir):  # so that the files of an active run are not cleared
        if fresh:
            clear_run(run_dir)
        _write_config(run_dir / CONFIG, recipe)


def _write_config(path: Path, recipe: Recipe) -> None:
    """Write the resolved recipe atomically; a resume compares its recipe with this file.

    With full durability the file and the name of the run's folder survive power loss.
    """
    durable = recipe.ledger.durability == "full"
    with whole_file(path) as fresh:
        fresh.write_text(to_toml(recipe))
        if durable:
            sync(fresh)
        crash_point("config.before")
    crash_point("config.after")
    for folder in (path.parent, path.parent.parent) if durable else ():
        sync(folder)


def _refuse_foreign_folder(folder: Path) -> None:
    """Raise `ConfigError` if the folder is neither empty nor a run, so that a run is not mixed with other files."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, not a folder", "name another folder for the run")
    if not folder.is_dir() or is_run(folder) or not (found := sorted(entry.name for entry in folder.iterdir())):
        return
    named = ", ".join(found[:MOST_NAMES]) + (", …" if len(found) > MOST_NAMES else "")
    raise ConfigError(f"{folder} is not a run and not empty: it holds {named}", "name a new folder or an empty one")


class RunLock(ProcessLock):
    """Lock of the process that supervises a run."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(
            run_dir / LOCK,
            lambda process: SetupError(
                f"{run_dir} is in use by process {process}",
                f"stop it with `quartet stop {quote(str(run_dir))}`, or use another folder",
            ),
        )


def supervisor(run_dir: Path) -> Holder | None:
    """Return the live supervisor of a run, or None. It may run on another machine or in another container."""
    return holder(run_dir / LOCK)
