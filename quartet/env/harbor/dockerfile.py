"""Dockerfiles whose steps run without Docker: shell commands in place of layers, programs of this machine in place of
the base image."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from quartet.errors import ConfigError

CONTEXT = "/context"
"""Place of the task's folder `environment` while its Dockerfile's steps run."""
WITHOUT_EFFECT = ("LABEL", "EXPOSE", "CMD", "ENTRYPOINT", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK")
"""Instructions that change no file. `CMD` and `ENTRYPOINT` start nothing here."""


class Step(Struct, frozen=True):
    """A command that builds the files of a task."""

    workdir: str
    command: str
    variables: dict[str, str]


class Dockerfile(Struct, frozen=True):
    """The steps of a Dockerfile, and the state in which commands run after them."""

    steps: list[Step]
    workdir: str
    variables: dict[str, str]


def read_dockerfile(file: Path) -> Dockerfile:
    """Read a Dockerfile of one stage: `FROM`, `WORKDIR`, `ENV`, `COPY` and `RUN`. Raise `ConfigError` for others."""
    try:
        return _read(file)
    except ValueError as error:  # an unmatched quote, or text that is not UTF-8
        raise ConfigError(f"{file} cannot be read: {error}", "mend the task, or leave it out") from error


def _read(file: Path) -> Dockerfile:
    steps, workdir, variables, stages = list[Step](), "/", dict[str, str](), 0
    for instruction, rest in _instructions(file):
        commands = list[str]()
        if "$" in rest and instruction in ("WORKDIR", "ENV", "COPY"):
            raise ConfigError(f"{file}: {instruction} {rest:.40} uses a variable", "write its value, or leave it out")
        match instruction:
            case "FROM":
                stages += 1
            case "WORKDIR":
                workdir = str(PurePosixPath(workdir) / rest)
                commands = [f"mkdir -p {shlex.quote(workdir)}"]
            case "ENV":
                variables = variables | _assigned(rest)
            case "COPY":
                commands = _copies(file.parent, workdir, rest)
            case "RUN" if not rest.startswith(("[", "<<", "--")):
                commands = [rest]
            case _ if instruction not in WITHOUT_EFFECT:
                raise ConfigError(f"{file}: {instruction} {rest:.40} is not supported", "it needs Docker")
        place = workdir if instruction == "RUN" else "/"
        steps += [Step(place, command, variables) for command in commands]
    if stages != 1:
        raise ConfigError(f"{file} has {stages} stages (FROM)", "only one stage is supported")
    return Dockerfile(steps, workdir, variables)


def _instructions(file: Path) -> Iterator[tuple[str, str]]:
    """Yield each instruction in capitals and what follows it, without comments and line ends."""
    kept = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\s*\n", " ", "\n".join(kept)).splitlines():
        if words := line.strip().split(maxsplit=1):
            yield words[0].upper(), words[1] if words[1:] else ""


def _assigned(text: str) -> dict[str, str]:
    """Return the variables of `NAME=VALUE ...` or of the old form `NAME VALUE`."""
    name, _, value = text.partition(" ")
    if "=" not in name:
        return {name: value.strip()}
    return {name: value for name, _, value in (word.partition("=") for word in shlex.split(text))}


def _copies(context: Path, workdir: str, text: str) -> list[str]:
    """Return the commands of `COPY SOURCE... TARGET`. Raise `ConfigError` for options and missing sources."""
    *patterns, target = shlex.split(text) or [""]
    if not patterns or text.startswith(("--", "[")):
        raise ConfigError(f"{context}: COPY {text} is not supported", "write COPY SOURCE TARGET, without options")
    commands = []
    for pattern in patterns:
        sources = sorted(context.glob(pattern.lstrip("/") or ".")) if pattern not in (".", "./") else [context]
        if not sources:
            raise ConfigError(f"{context} has no {pattern}, which its Dockerfile copies", "mend the task")
        several = len(patterns) > 1 or len(sources) > 1
        commands += [_copy(context, source, workdir, target, several=several) for source in sources]
    return commands


def _copy(context: Path, source: Path, workdir: str, target: str, *, several: bool) -> str:
    """Return the command that copies a file, or what a folder contains, as Docker does."""
    into = source.is_dir() or several or target.endswith(("/", "."))
    goal = PurePosixPath(workdir) / target
    origin = PurePosixPath(CONTEXT) / source.relative_to(context)
    start, end = (f"{origin}/.", f"{goal}/") if source.is_dir() else (str(origin), f"{goal}/" if into else str(goal))
    folder = shlex.quote(str(goal if into else goal.parent))
    return f"mkdir -p {folder} && cp -R --preserve=mode,links {shlex.quote(start)} {shlex.quote(end)}"
