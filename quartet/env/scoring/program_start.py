"""First lines of a confined program: set its limits, run it, and report both ends. Imports nothing of Quartet.

Python runs this text with `-c STARTED CPU_SECONDS MEMORY_BYTES PROCESSES OUTPUT_BYTES`. `STARTED` is the number of a
descriptor, to which it reports that it began, and which the program does not get. The standard input begins with a
secret of 32 bytes, which is printed after the program's last line, followed by the program's own input.
"""

import os
import resource
import sys
import types


def run(started: int, *limits: int) -> None:
    """Run the file `program.py` as the main module."""
    os.write(started, b"started")
    os.close(started)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # their threads reserve many addresses
    secret = os.read(0, 32).decode()
    cpu_seconds, memory, processes, output = limits
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (output, output))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    with open("program.py", "rb") as file:  # noqa: PTH123  (fewer imports)
        program = compile(file.read(), "program.py", "exec")
    sys.argv = ["program.py"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(program, main.__dict__)
    print(secret, file=sys.__stdout__, flush=True)


run(*map(int, sys.argv[1:]))
