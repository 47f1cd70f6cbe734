"""Becomes a vLLM server that ends with the process that started it: `python -m ...child PARENT_PID ARGUMENTS`."""

import os
import sys

from quartet.die_with import die_with

SERVER = "vllm.entrypoints.openai.api_server"
"""The `vllm` command does not run from every wheel: that for CPUs has another distribution's name."""

if __name__ == "__main__":
    die_with(int(sys.argv[1]))  # outlives exec
    os.execv(sys.executable, [sys.executable, "-m", SERVER, *sys.argv[2:]])
