"""Find parts by name: a file of the package, an entry point of an installed package, or `module:Class`.

A kind of part is a folder of the package. Each file of the folder except `base.py` is one part, named after the file.
An installed package adds parts with entry points of the group `quartet.KIND`. A plugin (a module that the recipe
imports) adds parts with `register`. No file needs to be changed to add a part.
"""

import importlib
import logging
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from pydantic import ValidationError

from quartet.config.choice import Choice
from quartet.errors import ConfigError, nearest
from quartet.kinds import KINDS
from quartet.part import Part
from quartet.shipped import import_module

LOG = logging.getLogger(__name__)
T = TypeVar("T")
P = TypeVar("P", bound=type[Part])

PLACE_OF_MODULES = "the module is installed, on PYTHONPATH, or in the current folder"
"""Places where a module is found."""
registered: dict[tuple[str, str], type[Part]] = {}
"""Parts of plugins, by kind and name."""
imported_plugins: dict[str, None] = {}
"""Modules that `import_plugins` has imported, in order."""
_found: dict[tuple[str, str], type[Part]] = {}
"""Parts that `find` returned, by kind and by name or `module:Class`."""


def register(kind: str, name: str) -> Callable[[P], P]:
    """Return a decorator that registers a plugin's class as the part `name`.

    The decorator raises `ConfigError` for an unknown kind, a class without its interface, or a name that another class
    already has.
    """

    def add(part: P) -> P:
        _check_interface(part, kind, f"{part.__module__}:{part.__qualname__}")
        if name in _files(kind) or registered.get((kind, name), part) is not part:
            raise ConfigError(f"a {kind} named {name!r} already exists", "give yours another name")
        registered[kind, name] = part
        return part

    return add


def import_plugins(modules: Sequence[str]) -> None:
    """Import the modules that a recipe lists as `plugins`. Raises `ConfigError` for one that cannot be imported."""
    for name in modules:
        if not name or name.startswith(".") or "/" in name:
            raise ConfigError(f"plugins: {name!r} is no module", "write its dotted name, without a path and `.py`")
        try:
            import_module(name)
            imported_plugins[name] = None
        except ImportError as error:
            raise ConfigError(
                f"plugins: {name!r} cannot be imported: {error}", "install it in this environment"
            ) from error


def names(kind: str) -> list[str]:
    """Return the names of all parts of a kind, sorted, without importing them."""
    own = [name for registered_kind, name in registered if registered_kind == kind]
    return sorted({*_files(kind), *own, *_entry_points(kind)})


def find(kind: str, name: str) -> type[Part]:
    """Import the part `name` of a kind.

    Raises `ConfigError` if the name is unknown, ambiguous, or does not refer to a part of this kind. The error suggests
    the nearest name, or lists the paths that installed packages give to an ambiguous name.
    """
    if ":" in name:
        part = _found[kind, name] = _check_interface(_at_path(name, kind), kind, name)
        return part
    part, paths = registered.get((kind, name)), _entry_points(kind).get(name, [])
    if part is None and name in _files(kind):
        part = _only_part(f"{KINDS[kind].folder}.{name}", kind)
    others = [path for path in paths if part is None or path != f"{part.__module__}:{part.__qualname__}"]
    if len(others) > (part is None):
        raise ConfigError(
            f"more than one {kind} has the name {name!r}: installed packages add {' and '.join(others)}",
            "write the intended module:Class instead, or uninstall a package",
        )
    if part is None and not others:
        hint = (
            f"For one of your own, write {_form(kind)}; {PLACE_OF_MODULES}. For a plugin's part, list the "
            "plugin's module in `plugins`; for a package's part, install the package."
        )
        raise ConfigError(f"unknown {kind} {name!r}", f"{nearest(name, names(kind))} {hint}")
    part = _found[kind, name] = part or _check_interface(load_class(others[0], kind), kind, others[0])
    return part


def found_parts() -> Iterator[tuple[str, type[Part]]]:
    """Yield (kind, part) of every part that `find` found before, such as all parts that a recipe has chosen."""
    yield from ((kind, part) for (kind, _), part in list(_found.items()))


def all_parts() -> Iterator[tuple[str, str, type[Part]]]:
    """Import and yield (kind, name, part) of every named part, and then of the parts that `find` has loaded by their
    paths.

    Parts that cannot be imported are logged and skipped.
    """
    for kind in KINDS:
        for name in names(kind):
            try:
                yield kind, name, find(kind, name)
            except Exception as error:  # noqa: BLE001  (code of other packages may raise anything)
                LOG.warning("%s %r cannot be imported: %s", kind, name, error)
    yield from ((kind, name, part) for (kind, name), part in list(_found.items()) if ":" in name)


def build(choice: Choice, *arguments: Any) -> Any:
    """Construct the part that a recipe chooses, with its validated settings and then `arguments`."""
    part: Any = find(choice.kind, choice.name)
    return part(own_settings(choice), *arguments)


def own_settings(choice: Choice) -> Any:
    """Return the validated settings of the part that a recipe chooses, as its `Settings`. Raises `ConfigError`."""
    model = find(choice.kind, choice.name).Settings
    try:
        return model.model_validate(choice.settings)
    except ValidationError as error:
        raise ConfigError(
            f"invalid settings of the {choice.kind} {choice.name!r}: {error}",
            f"`quartet parts {choice.kind}` lists its settings and their values",
        ) from error


def lookup(kind: str, name: str, registry: Mapping[str, T]) -> T:
    """Return `registry[name]`, or raise `ConfigError` that suggests the nearest name."""
    if name not in registry:
        raise ConfigError(f"unknown {kind} {name!r}", nearest(name, registry))
    return registry[name]


def _files(kind: str) -> list[str]:
    folder = importlib.import_module(lookup("kind of part", kind, KINDS).folder)
    return [module.name for module in pkgutil.iter_modules(folder.__path__) if module.name != "base"]


def _entry_points(kind: str) -> Mapping[str, list[str]]:
    """Return the paths of the parts that installed packages add, by name."""
    return _entry_points_on(tuple(sys.path)).get(kind, {})


@cache
def _entry_points_on(path: tuple[str, ...]) -> Mapping[str, Mapping[str, list[str]]]:
    """Return the entry points found on `path`, by kind and name. Cached, because reading the metadata of all packages
    takes tens of milliseconds."""
    points, kinds = entry_points(), dict[str, dict[str, list[str]]]()
    for kind in KINDS:
        for name, value in sorted({(point.name, point.value) for point in points.select(group=f"quartet.{kind}")}):
            kinds.setdefault(kind, {}).setdefault(name, []).append(value)
    return kinds


def load_class(path: str, kind: str) -> Any:
    """Return the class at `module:Class`. Raises `ConfigError`, which names the `kind`, if it cannot be imported."""
    module_name, _, class_name = path.partition(":")
    try:
        return getattr(import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # the last two: the name is no module name
        raise ConfigError(f"no {kind} at {path!r}: {error}", f"write {_form(kind)}; {PLACE_OF_MODULES}") from error


def _form(kind: str) -> str:
    """Return the form of a path to a part."""
    return "module:function" if kind in KINDS and KINDS[kind].functions else "module:Class"


def _at_path(path: str, kind: str) -> Any:
    """Return the class at `module:Class`; for kinds with `functions`, the part that calls `module:function`."""
    caller = lookup("kind of part", kind, KINDS).functions
    if not caller or path == caller:
        return load_class(path, kind)
    return type(path, (load_class(caller, kind),), {"path": path, "__doc__": f"Call `{path}`."})


def _only_part(module_name: str, kind: str) -> type[Part]:
    """Return the part that a file of the package defines. Raises `ConfigError` unless there is exactly one."""
    base, found = load_class(KINDS[kind].base, kind), []
    for value in vars(importlib.import_module(module_name)).values():
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module_name:
            found.append(value)
    if len(found) != 1:
        raise ConfigError(
            f"{module_name} defines {len(found)} classes of kind {kind!r}",
            "define exactly one class of this kind per file",
        )
    return found[0]


def _check_interface(part: Any, kind: str, path: str) -> type[Part]:
    base = load_class(lookup("kind of part", kind, KINDS).base, kind)
    if not (isinstance(part, type) and issubclass(part, base)):
        raise ConfigError(f"{path} is not a {kind}", f"make it a subclass of {KINDS[kind].base}")
    return part
