"""Secrets in environment variables. A recipe names the variables, so that it holds no secrets."""

import os

from quartet.errors import SetupError


def secret(setting: str, variable: str) -> str:
    """Return the value of the environment variable that `setting` of the recipe names; empty if it names none.

    Raise `SetupError` if the variable is not set.
    """
    if variable and variable not in os.environ:
        raise SetupError(f"{setting}: {variable} is not set", f"export {variable}=…")
    return os.environ[variable] if variable else ""
