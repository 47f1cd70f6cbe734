"""A process of its own for a function, forked from the server of which `quartet train` forks its modules. A new Python
would import PyTorch and Transformers again, which takes about five processor seconds."""

import os
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType

from quartet.runtime.start_process import warm_up

TIMEOUT_SECONDS = 300
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


def start_warm(
    log: Path, function: Callable[..., object], *arguments: object, variables: Mapping[str, str] = NO_VARIABLES
) -> BaseProcess:
    """Start a function of a module, with `variables` added to the environment and with its output added to `log`."""
    warm_up()
    environment = os.environ | variables
    process = get_context("forkserver").Process(target=_call, args=(log, environment, function, arguments))
    process.start()
    return process


def run_warm(
    log: Path, function: Callable[..., object], *arguments: object, variables: Mapping[str, str] = NO_VARIABLES
) -> int:
    """Start a function as `start_warm` does, and return the exit code of its process."""
    process = start_warm(log, function, *arguments, variables=variables)
    process.join(TIMEOUT_SECONDS)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{function} has not ended after {TIMEOUT_SECONDS} s\n{log.read_text()}")
    return process.exitcode


def _call(
    log: Path, environment: Mapping[str, str], function: Callable[..., object], arguments: tuple[object, ...]
) -> None:
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)
