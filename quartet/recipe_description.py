"""What a recipe is, read off its own files: the comment at its head, the knobs it changes, its README's claim."""

import json
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from quartet.config import Section
from quartet.recipe_file import load_recipe


class ChangedKnob(Struct, frozen=True, kw_only=True):
    """One knob that a recipe sets to something else than its default. Values are written as in TOML."""

    name: str
    value: str
    default: str | None
    """None for a knob without a default."""


class Description(Struct, frozen=True, kw_only=True):
    """A recipe for people."""

    name: str
    file: str
    environment: str
    summary: str
    """The comment at the head of the file."""
    claim: str
    """The first paragraph of the README beside it, in Markdown; empty where there is none."""
    result: str
    """What became of the claim: the next paragraph that begins in bold, in Markdown; empty where there is none."""
    readme: str
    knobs: list[ChangedKnob]

    def to_dict(self) -> dict[str, Any]:
        return to_builtins(self)


def describe(path: Path) -> Description:
    """Raises `ConfigError` for a recipe that is not valid."""
    recipe, readme = load_recipe(path), path.parent / "README.md"
    env, told = recipe.env, _paragraphs(readme.read_text()) if readme.is_file() else []
    return Description(
        name=recipe.name,
        file=str(path),
        environment=" ".join(filter(None, (env.name, env.suite, ", ".join(env.families)))),
        summary=_head_comment(path.read_text()),
        claim=told[0] if told else "",
        result=next((part for part in told[1:] if part.startswith("**")), ""),
        readme=str(readme) if readme.is_file() else "",
        knobs=knobs_set(recipe),
    )


def _head_comment(text: str) -> str:
    lines = takewhile(lambda line: line.startswith("#"), text.splitlines())
    return " ".join(line.lstrip("# ").strip() for line in lines)


def _paragraphs(markdown: str) -> list[str]:
    """All but headings, links reduced to their words."""
    paragraphs = [part.strip() for part in markdown.split("\n\n") if part.strip() and not part.startswith("#")]
    return [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", part) for part in paragraphs]


def knobs_set(section: Section, prefix: str = "") -> list[ChangedKnob]:
    """Every knob of a recipe that is not at its default, and those that have none."""
    changed: list[ChangedKnob] = []
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            changed += knobs_set(value, f"{prefix}{name}.")
        elif info.is_required() or value != info.default:
            default = None if info.is_required() else json.dumps(info.default, ensure_ascii=False)
            changed.append(
                ChangedKnob(name=prefix + name, value=json.dumps(value, ensure_ascii=False), default=default)
            )
    return changed
