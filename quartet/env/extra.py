"""Import of packages that an environment needs and that an extra of Quartet installs."""

import importlib
from typing import Any

from quartet.errors import SetupError


def import_extra(module: str, extra: str) -> Any:
    """Import a module of an extra. Raise `SetupError` that names the extra if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SetupError(
            f"the environment needs the module {module!r}: {error}", f"pip install 'quartet-rl[{extra}]'"
        ) from error
