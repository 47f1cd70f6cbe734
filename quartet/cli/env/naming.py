"""Environments on the command line: their names, and the agent loop with which a command describes them."""

from pathlib import Path

from quartet.errors import ConfigError


def environment_name(name: str) -> str:
    """Return the name for a recipe. `doors` becomes `doors:Houses` if doors.py in the current folder defines only the
    environment `Houses`.

    Raise `ConfigError` for a path, or if the module defines no environment, or several.
    """
    from quartet.env.base import Environment
    from quartet.registry import names
    from quartet.shipped import import_module

    path = Path(f"{name}.py")
    if "/" in name and path.exists():
        raise ConfigError(f"{name} is a path, not a module", f"run the command in {path.parent} with {path.stem}")
    if ":" in name or name in names("env") or not path.exists():
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
