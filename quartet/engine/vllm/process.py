"""vLLM server as a child process: command line, start, end."""

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import quartet
from quartet.config import Recipe
from quartet.engine.remote.server import InferenceServer
from quartet.engine.vllm.access import KEY_VARIABLE, RequireKey
from quartet.engine.vllm.extension import QuartetExtension
from quartet.errors import EngineError, SetupError
from quartet.free_port import HOST, free_port
from quartet.policy.weights import weight_shapes
from quartet.registry import own_settings

POLL_SECONDS = 0.25
STOP_SECONDS = 4.0
READ_THE_LOG = "read the log; engine.arguments are passed to vLLM"
_ERROR = re.compile(r"\b\w+Error: .*")
EXTENSION = f"{QuartetExtension.__module__}.{QuartetExtension.__name__}"
MIDDLEWARE = f"{RequireKey.__module__}.{RequireKey.__name__}"
REQUIRED_ARGUMENTS = (
    "--enable-scale-out",  # the route with token ids and versions
    *("--logprobs-mode", "processed_logprobs"),  # log-probs of the distribution sampled from
    *("--generation-config", "vllm"),  # ignores sampling defaults of the model's folder, such as top-k
    *("--worker-extension-cls", EXTENSION),
)
REQUIRED_ENVIRONMENT = {"VLLM_SERVER_DEV_MODE": "1"}
"""Variable that enables the routes for pausing requests and exchanging weights."""


class VllmProcess:
    """vLLM server in a child process with its own process group. The server ends when Quartet's process ends, even if
    Quartet's process is killed."""

    def __init__(self, recipe: Recipe, folder: Path, max_context_tokens: int, log: Path, devices: str = "") -> None:
        """Start a server with the policy in `folder` on the GPUs `devices`; empty leaves the choice to vLLM. The server
        responds once `wait_until_up` has returned."""
        self._log = log
        self.api_key = secrets.token_urlsafe(32)
        self._timeout_seconds = own_settings(recipe.engine).start_timeout_seconds
        port = free_port()
        self.url = f"http://{HOST}:{port}"
        # Add only this package to the path, not the packages installed beside it: vLLM may run in another environment.
        self._path = tempfile.TemporaryDirectory(prefix="quartet-vllm-")
        (Path(self._path.name) / "quartet").symlink_to(Path(quartet.__file__).parent)
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = _environment(recipe, self._path.name) | {KEY_VARIABLE: self.api_key}
        environment |= {"CUDA_VISIBLE_DEVICES": devices} if devices else {}
        with log.open("ab") as output:
            self._process = _start(_command(recipe, folder, max_context_tokens, port), output, environment)

    async def wait_until_up(self, server: InferenceServer) -> None:
        """Wait until the server responds.

        Raises `SetupError` (the run ends, since a restart would not help) if the process ends or the wait times out.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                while not await server.is_up():
                    self.check()
                    await asyncio.sleep(POLL_SECONDS)
        except (TimeoutError, EngineError) as error:
            reason = str(error) or f"vLLM did not answer within {self._timeout_seconds:g} s"
            await self.close()
            raise SetupError(f"{reason}; see {self._log}", _advice(reason)) from error

    def check(self) -> None:
        """Raise `EngineError` with the last line of the server's log if the server has ended."""
        code = self._process.poll()
        if code is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            raise EngineError(f"vLLM ended with code {code}: {lines[-1] if lines else 'its log is empty'}")

    def last_error(self) -> str:
        """Return the newest error in the server's log that is not a consequence of its end; empty if there is none."""
        found = _ERROR.findall(self._log.read_text(errors="replace"))
        return next((error for error in reversed(found) if not error.startswith("EngineDead")), "")

    async def close(self) -> None:
        """End the server and all processes that it started."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        self._path.cleanup()


def _start(command: list[str], output: IO[bytes], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the process. Raises `SetupError` if the interpreter cannot be executed."""
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, process_group=0
        )
    except OSError as error:
        raise SetupError(
            f"engine.python: {command[0]} does not start ({error.strerror})",
            "set engine.python to a Python that has vLLM",
        ) from error


def _command(recipe: Recipe, folder: Path, max_context_tokens: int, port: int) -> list[str]:
    engine, own = recipe.engine, own_settings(recipe.engine)
    return [
        *(own.python or sys.executable, "-m", "quartet.engine.vllm.child", str(os.getpid())),
        *("--model", str(folder), "--served-model-name", "main", "--host", HOST, "--port", str(port)),
        *implementation(folder),
        *("--dtype", engine.dtype, "--max-model-len", str(max_context_tokens), "--max-num-seqs", str(engine.max_slots)),
        *("--tensor-parallel-size", str(own.tensor_parallel)),
        *REQUIRED_ARGUMENTS,
        *("--middleware", MIDDLEWARE),
        "--enable-prefix-caching" if engine.prefix_cache_megabytes else "--no-enable-prefix-caching",
        *(["--trust-remote-code"] if recipe.model.trust_remote_code else []),
        *own.arguments,
    ]


def implementation(folder: Path) -> list[str]:
    """Return the arguments that select a model implementation in vLLM which uses all weights of a policy.

    In vLLM's own Qwen implementation the attention's output projection has no bias, so a policy's bias is silently
    dropped, and the canary fails. The implementation derived from `transformers` has this bias.
    """
    biased = any(name.endswith("self_attn.o_proj.bias") for name in weight_shapes(folder))
    return ["--model-impl", "transformers"] if biased else []


def _environment(recipe: Recipe, path: str) -> dict[str, str]:
    """Return the child's environment variables; those that the user has set for vLLM override the defaults."""
    threads = str(recipe.engine.threads)
    defaults = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
    paths = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))
    fixed = {"PYTHONPATH": paths, "OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1"}
    return defaults | os.environ | REQUIRED_ENVIRONMENT | fixed


def _advice(reason: str) -> str:
    if "No module named 'vllm'" in reason or "No module named vllm" in reason:
        return "pip install 'quartet-rl[vllm]', or name an interpreter that has it in engine.python"
    return READ_THE_LOG
