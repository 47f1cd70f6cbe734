"""First lines of a confined program: set its limits, run it, and report both ends. Imports nothing of Quartet.

Python runs this text with `-c STARTED COMPLETE CPU_SECONDS MEMORY_BYTES PROCESSES OUTPUT_BYTES`. The first two are
numbers of descriptors: it writes to `STARTED`, which the program does not get, and after the program's last line a
secret to `COMPLETE`. The standard input begins with the secret, which has 32 bytes. The program's own input follows.
"""

import os
import resource
import sys
import types


def run(started: int, complete: int, *limits: int) -> None:
    """Run the file `program.py` as the main module."""
    os.write(started, b"started")
    os.close(started)
    os.set_inheritable(complete, False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # their threads reserve many addresses
    secret = os.read(0, 32)
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
    os.write(complete, secret)


run(*map(int, sys.argv[1:]))
