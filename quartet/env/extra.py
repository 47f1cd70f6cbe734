"""Import of packages that an environment needs and that an extra of Quartet installs."""

import importlib
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from quartet.errors import SetupError


def import_extra(module: str, extra: str) -> Any:
    """Import a module of an extra. Raise `SetupError` that names the extra if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _lack(module, extra, str(error)) from error


def require_modules(modules: Sequence[str], extra: str) -> None:
    """Raise `SetupError` that names the extra if one of its modules is not installed. The modules are not imported,
    which may take seconds; the packages around them are."""
    for module in modules:
        try:
            found = module in sys.modules or find_spec(module) is not None
        except ImportError:  # a package around it is missing
            found = False
        if not found:
            raise _lack(module, extra, f"No module named {module!r}")


def _lack(module: str, extra: str, reason: str) -> SetupError:
    return SetupError(f"the environment needs the module {module!r}: {reason}", f"pip install 'quartet-rl[{extra}]'")
