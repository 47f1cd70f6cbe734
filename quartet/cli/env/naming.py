"""Environments on the command line: their names, the settings that they require, and the agent loop with which a
command describes them."""

import json
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from quartet.errors import ConfigError


def environment_name(name: str) -> str:
    """Return the name for a recipe. `doors` becomes `doors:Houses` if doors.py in the current folder defines only the
    environment `Houses`.

    Raise `ConfigError` for a path, for a name that a registered environment has too, or if the module defines no
    environment, or several.
    """
    from quartet.env.base import Environment
    from quartet.registry import find, names
    from quartet.shipped import import_module

    path = Path(f"{name}.py")
    if "/" in name and path.exists():
        raise ConfigError(f"{name} is a path, not a module", f"run the command in {path.parent} with {path.stem}")
    if ":" in name or not path.exists():
        return name
    if name in names("env"):
        # A script of that name, such as dataset.py, is no environment, and a plugin's own module is the registered one.
        if "quartet.env" in path.read_text() and find("env", name).__module__ != name:
            raise ConfigError(f"an environment {name!r} is registered, and {path} is another", f"write {name}:CLASS")
        return name
    own = vars(import_module(name)).values()
    classes = [one for one in own if isinstance(one, type) and issubclass(one, Environment) and one.__module__ == name]
    if len(classes) != 1:
        found = ", ".join(one.__name__ for one in classes) or "none"
        raise ConfigError(f"{name}.py must define one Environment, but has {found}", f"write {name}:CLASS")
    return f"{name}:{classes[0].__name__}"


def first_loop(env: str) -> dict[str, object]:
    """Return the section `rollout` with the agent loop of a first recipe for an environment; empty for the default
    loop, which some environments refuse."""
    from quartet.env.base import Environment
    from quartet.registry import find

    environment = find("env", env)
    assert issubclass(environment, Environment)
    rollout = environment.first_settings.get("rollout", {})
    return {"loop": rollout["loop"]} if "loop" in rollout else {}


def require_settings(env: str, overrides: Sequence[str], section: str = "env") -> None:
    """Raise `ConfigError` if the overrides lack a setting that the environment requires. Its advice has the options of
    a first recipe. `section` is the first word of the overrides."""
    from quartet.env.base import Environment
    from quartet.registry import find

    environment = find("env", env)
    assert issubclass(environment, Environment)
    fields = environment.Settings.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    given = {override.partition("=")[0].strip() for override in overrides}
    if not (lacking := [f"{section}.{name}" for name in required if f"{section}.{name}" not in given]):
        return
    first = {name: value for name, value in environment.first_settings.get("env", {}).items() if name in fields}
    values = dict.fromkeys(required, "VALUE") | first
    options = (
        quote(f"{section}.{name}={value if isinstance(value, str) else json.dumps(value)}")
        for name, value in values.items()
    )
    raise ConfigError(
        f"the environment {env!r} needs {' and '.join(lacking)}",
        f"give its settings, for instance {' '.join(f'--set {option}' for option in options)}",
    )
