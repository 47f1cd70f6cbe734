"""Initial policies that are kept for further experiments, each with a record of what made it."""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import click
import msgspec

from benchmarks.locks.start import Form, PlainChat, make_start, start_chats, start_recipe
from quartet.config import Recipe

MADE_BY = "made_by.json"
"""File beside the policy: settings, examples, modules and libraries that made it, with hashes or versions."""
MODULES = (
    *("quartet.train.linear", "quartet.train.sft"),
    *(f"quartet.policy.{name}" for name in ("examples", "load", "make", "model", "renderer")),
    *(f"quartet.policy.{name}" for name in ("save", "tokenizer", "weights")),
)
LIBRARIES = ("tokenizers", "torch", "transformers")


def kept_start(folder: Path, suite: str, form: Form = "turns") -> Path:
    """Return the initial policy for the suite and the form of prompts in `folder`, as `kept` does."""
    chats, recipe = start_chats(suite, form), start_recipe(Path("/"))
    return kept(folder, ["benchmarks.locks.start"], chats, recipe, lambda: make_start(folder, suite, form))


def kept(
    folder: Path, makers: Sequence[str], chats: Sequence[PlainChat], recipe: Recipe, make: Callable[[], object]
) -> Path:
    """Return the initial policy in `folder`, which the modules `makers` make there from chats unless it is there.

    Raises `click.ClickException` if something else made the policy: runs from another start cannot be compared.
    """
    policy, record, made_by = folder.absolute() / "policy", folder / MADE_BY, _made_by(makers, chats, recipe)
    if not policy.exists():
        make()
        record.write_bytes(msgspec.json.format(msgspec.json.encode(made_by)))
    elif others := _others(record, made_by):
        raise click.ClickException(
            f"the initial policy in {folder} was made by other code, settings or libraries: {', '.join(others)}. "
            "Delete that folder to make the policy anew, name another folder, or check out the commit that made it"
        )
    return policy


def _made_by(makers: Sequence[str], chats: Sequence[PlainChat], recipe: Recipe) -> dict[str, str]:
    sources = {name: inspect.getsource(import_module(name)).encode() for name in (*makers, *MODULES)}
    inputs = {"examples": msgspec.json.encode(chats), "settings": recipe.model_dump_json().encode()} | sources
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in inputs.items()}
    return hashes | {name: version(name) for name in LIBRARIES}


def _others(record: Path, made_by: dict[str, str]) -> list[str]:
    """Return what differs between a record and `made_by`."""
    if not record.exists():
        return [f"it has no {MADE_BY}"]
    recorded = msgspec.json.decode(record.read_bytes(), type=dict[str, str])
    return sorted({name for name, _ in recorded.items() ^ made_by.items()})
