"""Folders of tasks in the format of Harbor: task.toml, instruction.md, environment/, tests/ and solution/."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from quartet.env.harbor.dockerfile import Dockerfile, read_dockerfile
from quartet.errors import ConfigError

CANARY = re.compile(r"\A(?:(?:<!--.*canary.*-->|#.*canary.*)\n|\s*\n)+", re.IGNORECASE)
"""Lines before an instruction that mark the data of a benchmark; agents do not read them."""


class Environment(Struct, frozen=True, kw_only=True):
    """The table [environment]; fields of task.toml that are not listed in these classes are ignored."""

    docker_image: str | None = None
    os: str = "linux"
    workdir: str | None = None
    env: dict[str, str] = {}
    memory_mb: int | None = None
    build_timeout_sec: float = 600.0
    gpus: int | None = None
    tpu: Any = None
    mcp_servers: list[Any] = []


class Verifier(Struct, frozen=True, kw_only=True):
    """The table [verifier]."""

    timeout_sec: float = 600.0
    env: dict[str, str] = {}
    environment_mode: str | None = None
    environment: Any = None


class Solution(Struct, frozen=True, kw_only=True):
    """The table [solution]."""

    env: dict[str, str] = {}


class Config(Struct, frozen=True, kw_only=True):
    """The content of task.toml."""

    environment: Environment = Environment()
    verifier: Verifier = Verifier()
    solution: Solution = Solution()
    steps: list[Any] = []


class HarborTask(Struct, frozen=True, kw_only=True):
    """A task that can be played here."""

    folder: Path
    instruction: str
    config: Config
    dockerfile: Dockerfile

    @property
    def workdir(self) -> str:
        """Folder in which commands of the agent and of the tests begin."""
        return self.config.environment.workdir or self.dockerfile.workdir

    @property
    def variables(self) -> dict[str, str]:
        return self.dockerfile.variables | self.config.environment.env


def read_task(folder: Path) -> HarborTask:
    """Read a task's folder. Raise `ConfigError` if it is incomplete, or needs what is not available without Docker."""
    try:
        config = msgspec.convert(tomllib.loads((folder / "task.toml").read_text()), Config)
        instruction = CANARY.sub("", (folder / "instruction.md").read_text()).strip()
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{folder} is no task of Harbor: {error}", "it needs task.toml and instruction.md") from error
    if lacking := next(_lacking(folder, config), ""):
        raise ConfigError(f"the task {folder.name} cannot be played without Docker: it {lacking}", "leave it out")
    dockerfile = read_dockerfile(folder / "environment" / "Dockerfile")
    return HarborTask(folder=folder, instruction=instruction, config=config, dockerfile=dockerfile)


def _lacking(folder: Path, config: Config) -> Iterator[str]:
    """Yield the properties because of which a task cannot be played."""
    environment, verifier = config.environment, config.verifier
    if config.steps:
        yield "has several steps"
    if environment.os.lower() != "linux":
        yield f"runs on {environment.os}"
    if not (folder / "environment" / "Dockerfile").is_file():
        yield f"has no environment/Dockerfile (its image is {environment.docker_image or 'not named either'})"
    if any((folder / "environment").glob("docker-compose.*")):
        yield "needs several containers (docker-compose)"
    if environment.gpus or environment.tpu:
        yield "needs an accelerator"
    if environment.mcp_servers:
        yield "needs MCP servers"
    if verifier.environment is not None or verifier.environment_mode == "separate":
        yield "tests in a container of its own"
    if not (folder / "tests" / "test.sh").is_file():
        yield "has no tests/test.sh"
    for name, value in (environment.env | verifier.env | config.solution.env).items():
        if "${" in value:
            yield f"reads the variable {name} from the host"
