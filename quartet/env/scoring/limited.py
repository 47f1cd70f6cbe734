"""Computation in a forked process with limits, for code that a response can make too long, too large or too deep."""

import mmap
import multiprocessing
import os
import resource
import signal
import struct
from collections.abc import Callable
from contextlib import suppress

from quartet.die_with import die_with
from quartet.errors import RewardError
from quartet.fault import fault_of

FORK = multiprocessing.get_context("fork")
"""Processes that share the imported libraries, whose own limits are signals, which cannot end a long power."""
RESPONSE_AT_FAULT = (-signal.SIGXCPU, -signal.SIGABRT, -signal.SIGSEGV)
"""Exit statuses of a process that a response such as `9^{9^{9}}` made too long, too large or too deep."""
VALUE = struct.Struct("?d")
"""Flag that the function has returned, then its value, which may be NaN."""
MAX_PROBLEM_BYTES = 1000


def limited(compute: Callable[[], float], processor_seconds: int) -> float | None:
    """Return the value of a function that runs in a forked process for at most `processor_seconds`.

    Return None if the response made it too long, too large or too deep, or ended the process before it had a value.
    The process writes no files and no output, ends with this one and, unless it is root's, starts no other process.
    Raise `RewardError` if the function raises another exception, or if a signal from elsewhere ends the process.
    """
    # The process may run code of the response, so it sends back no pickles.
    with mmap.mmap(-1, VALUE.size + MAX_PROBLEM_BYTES) as shared:
        process = FORK.Process(target=_run, args=(compute, processor_seconds, shared, os.getpid()))
        process.start()
        process.join()
        returned, value = VALUE.unpack_from(shared)
        problem = shared[VALUE.size :].rstrip(b"\0").decode(errors="replace")
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)  # what it left behind
    if problem:
        raise RewardError(problem, "report it to the package that compares answers")
    if process.exitcode is not None and process.exitcode < 0 and process.exitcode not in RESPONSE_AT_FAULT:
        raise RewardError(f"was ended by signal {-process.exitcode}", "look for a process that is short of memory")
    return value if returned and not process.exitcode else None


def _run(compute: Callable[[], float], processor_seconds: int, shared: mmap.mmap, parent: int) -> None:
    """Limit this process, store the value of the function or the summary of its exception, and end the process."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(parent)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):  # with the limit of files below, output to a log would be an error
        os.dup2(nowhere, output)
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds + 1))
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    try:
        VALUE.pack_into(shared, 0, True, compute())
    except (SystemExit, MemoryError, RecursionError):
        pass
    except Exception as error:  # noqa: BLE001  (raised again in the caller)
        problem = f"raised {fault_of(error).summary}".encode(errors="replace")[:MAX_PROBLEM_BYTES]
        shared[VALUE.size : VALUE.size + len(problem)] = problem
    os._exit(0)  # without the end of the interpreter, which would flush output that the limit refuses
