"""Check that vLLM is installed in the recipe's interpreter, if the recipe starts a vLLM server."""

import subprocess
import sys
from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, lacks, ok
from quartet.registry import own_settings

FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
TIMEOUT_SECONDS = 60.0


class VllmInterpreter(Doctor):
    """Check that vLLM is installed in the recipe's interpreter, if the recipe starts a vLLM server."""

    before_training = True

    def examine(self, place: Place) -> Iterator[Finding]:
        if place.recipe is None or place.recipe.engine.name != "vllm":
            return
        settings = own_settings(place.recipe.engine)
        if settings.url:
            return
        python = settings.python or sys.executable
        try:
            run = subprocess.run([python, "-c", FIND], capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        except OSError as error:
            yield lacks(
                f"engine.python = {python!r} cannot be started: {error.strerror}", "name an interpreter that has vLLM"
            )
            return
        except subprocess.TimeoutExpired:
            yield lacks(
                f"engine.python = {python!r} did not say within {TIMEOUT_SECONDS:g} s whether it has vLLM",
                f"run `{python} -c 'import vllm'` to see what it waits for, such as a slow disk; then check again",
            )
            return
        if run.returncode == 0:
            yield ok(f"{python} has vLLM")
        else:
            yield lacks(
                f"{python} has no vLLM, which engine.name = 'vllm' starts",
                "pip install 'quartet-rl[vllm]', or set engine.python to an interpreter that has it",
            )
