"""Files of TextWorld's games, made by its program `tw-make` and kept in the user's cache."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from quartet.env.extra import import_extra
from quartet.errors import ConfigError, SetupError

EXTRA = "textworld"
MAKE_TIMEOUT_SECONDS = 300.0


def game_file(arguments: Sequence[str]) -> Path:
    """Return the file of the game that these arguments of `tw-make` describe; make it if it is not there. Raise
    `ConfigError` for wrong arguments, `SetupError` without the program."""
    version = import_extra("textworld", EXTRA).__version__
    name = hashlib.sha256("\0".join([version, *arguments]).encode()).hexdigest()[:24]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quartet" / "textworld"
    if (file := folder / f"{name}.z8").exists():
        return file
    program = shutil.which("tw-make", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise SetupError("the program tw-make of TextWorld is missing", f"pip install 'quartet-rl[{EXTRA}]'")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as making:
        output = Path(making) / f"{name}.z8"
        command = [sys.executable, program, *arguments, "--output", str(output), "--silent"]
        made = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_TIMEOUT_SECONDS)
        if made.returncode:
            raise ConfigError(
                f"tw-make {' '.join(arguments)}: {made.stderr.strip().rpartition(chr(10))[2]}",
                "write arguments of `tw-make` in env.games",
            )
        for suffix in (".json", ".z8"):  # the game last, since its existence means that all is there
            output.with_suffix(suffix).replace(folder / f"{name}{suffix}")
    return file
