"""Run a vLLM server that ends with its parent process: `python -m ...child PARENT_PID ARGUMENTS`."""

import os
import sys

from quartet.die_with import die_with

SERVER = "vllm.entrypoints.openai.api_server"
"""Module of the server. It is run directly, because the command `vllm` fails in the CPU wheel, whose distribution has
another name."""

if __name__ == "__main__":
    die_with(int(sys.argv[1]))  # this setting of the process survives exec
    os.execv(sys.executable, [sys.executable, "-m", SERVER, *sys.argv[2:]])
