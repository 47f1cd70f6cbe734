"""Tasks in the format of Harbor: built without Docker, confined, solved, and scored by their own tests."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from quartet import config
from quartet.env import make_environment
from quartet.env.check.run import check_environment
from quartet.env.environment.harbor import ALL, EXAMPLE, Harbor
from quartet.env.guarded import GuardedEnv
from quartet.env.harbor.dockerfile import read_dockerfile
from quartet.env.harbor.sandbox import Sandbox
from quartet.env.harbor.session import HarborSession
from quartet.env.harbor.task import read_task
from quartet.errors import ConfigError, EnvError, RewardError
from quartet.recipe.file import parse_recipe
from quartet.types import Outcome, StepResult, Task, ToolCall

TASKS = Path(EXAMPLE)
PYTHON = os.environ.get("QUARTET_HARBOR_PYTHON", "")
LOADER = """
import sys
from harbor.models.task.task import Task
for folder in sys.argv[1:]:
    assert Task.is_valid_dir(folder), folder
    task = Task(folder)
    print(task.paths.test_path.name, task.config.verifier.timeout_sec, task.instruction.strip())
"""
pytestmark = pytest.mark.slow


def made(tasks: Path = TASKS, name: str = "count-lines", **settings: object) -> tuple[HarborSession, Task]:
    """Return a session, and the task of the folder `name`."""
    env = config.Env(name="harbor", tasks=str(tasks), held_out=str(tasks), **settings)
    environment = make_environment(env)
    assert isinstance(environment, Harbor)
    session = environment.session()
    assert isinstance(session, HarborSession)
    names = sorted(file.parent.name for file in tasks.glob("*/task.toml"))
    return session, Task(env="harbor", family=ALL, seed=names.index(name))


def bash(session: HarborSession, command: str) -> StepResult:
    return session.act([ToolCall(name="bash", arguments={"command": command})])


def printed(session: HarborSession, command: str) -> str:
    return bash(session, command).observation.messages[0].content


def running(duration: str) -> bool:
    """Return whether this machine runs a `sleep` of a duration."""
    done = subprocess.run(["pgrep", "-fx", f"sleep {duration}"], capture_output=True, check=False)
    return done.returncode == 0


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds. Fail after a minute."""
    ends_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.02)


def copied(folder: Path, **files: str | bytes) -> Path:
    """Return a folder with one task, `count-lines`, some files of which are replaced."""
    task = shutil.copytree(TASKS / "count-lines", folder / "count-lines")
    for name, text in files.items():
        content = text.encode() if isinstance(text, str) else text
        (task / name.replace("__", "/").replace("_", ".")).write_bytes(content)
    return folder


async def test_the_solution_is_rewarded_and_doing_nothing_is_not():
    session, task = made()
    seen = session.reset(task)
    assert [message.content for message in seen.messages] == [
        "Write the number of lines of `poem.txt` to the file `answer.txt` beside it."
    ]
    assert [tool.function.name for tool in seen.tools] == ["bash"]
    assert printed(session, "pwd; ls; echo $LANGUAGE_OF_POEM, $GREETING") == "/app\npoem.txt\nen, good morning\n"
    bash(session, "wc -l < poem.txt > answer.txt")
    ended = session.step("It is done.")
    assert (ended.terminated, ended.reward, ended.info) == (True, 1.0, {"success": True})
    session.reset(task)
    assert printed(session, "ls") == "poem.txt\n"  # nothing of the episode before
    ended = session.step("done")
    assert (ended.terminated, ended.reward, ended.info) == (True, 0.0, {"success": False})
    await session.close()


@pytest.mark.campaign
async def test_it_passes_all_checks(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="harbor", tasks=str(TASKS), held_out=str(TASKS), sessions=2, turn_limit=3)
    results = await check_environment(env, range(2), lambda _: None)
    assert [result for result in results if not result.passed] == []


async def test_named_rewards_and_a_solution_of_several_files():
    session, task = made(name="mend-total")
    session.reset(task)
    assert printed(session, "bash total.sh") == "54\n"
    bash(session, "sed -i 's/NR > 1 //' total.sh")
    assert session.step("done").rewards == {"reward": 1.0}
    await session.close()


async def test_a_hanging_command_is_killed_and_the_episode_goes_on():
    session, task = made(command_timeout_seconds=1.0)
    session.reset(task)
    for command in ("echo begun; sleep 600", "sleep 600 & wait", "trap '' TERM; while true; do sleep 1; done"):
        result = bash(session, command)
        assert result.actions[0].outcome is Outcome.TIMEOUT and not result.terminated
        assert "killed after 1 s" in result.observation.messages[0].content
    assert printed(session, "echo still here") == "still here\n"
    await session.close()


async def test_a_killed_command_leaves_no_process_on_the_host():
    session, task = made(command_timeout_seconds=5.0)
    session.reset(task)
    duration = f"600.{os.getpid()}"
    hanging = asyncio.create_task(asyncio.to_thread(bash, session, f"setsid sleep {duration} & sleep {duration}"))
    await asyncio.to_thread(wait, lambda: running(duration) or hanging.done())
    assert running(duration)
    assert (await hanging).actions[0].outcome is Outcome.TIMEOUT
    await asyncio.to_thread(wait, lambda: not running(duration))  # the kernel ends them after Bubblewrap
    await session.close()


async def test_many_commands_of_a_response_cannot_make_a_step_too_long():
    session, task = made(command_timeout_seconds=1.0)
    session.reset(task)
    calls = [ToolCall(name="bash", arguments={"command": command}) for command in ("echo a", "sleep 60", "sleep 60")]
    result = session.act([*calls, *calls])
    outcomes = [action.outcome for action in result.actions]
    assert outcomes == [Outcome.DONE, Outcome.TIMEOUT, *[Outcome.ENDED] * 4] and not result.terminated
    await session.close()


async def test_a_command_reaches_neither_the_host_nor_the_tests():
    session, task = made()
    session.reset(task)
    secret = Path(__file__).resolve()
    assert "No such file" in printed(session, f"cat {secret}")
    assert "No such file" in printed(session, "cat /tests/test.sh")
    assert "Read-only file system" in printed(session, "touch /usr/bin/mine")
    assert printed(session, "cat /proc/net/dev | grep -c :").startswith("1\n")  # the loopback device only
    assert "rm: cannot remove" in printed(session, "rm -rf /tests /logs/verifier; rmdir /logs")
    forged = "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 1 > /logs/reward.txt"
    bash(session, forged)
    assert session.step("done").reward == 0.0
    await session.close()


async def test_output_is_cut_and_files_are_limited():
    session, task = made(output_characters=200)
    session.reset(task)
    text = printed(session, "seq 1 100000")
    assert len(text) < 260 and text.startswith("1\n2\n") and text.endswith("100000\n") and "[...]" in text
    assert "exit status" in printed(session, "exit 3")
    assert "exit status" in printed(session, "head -c 400000000 /dev/zero > /app/large")
    assert int(printed(session, "stat -c %s /app/large")) <= 256 << 20
    await session.close()


async def test_memory_and_processes_of_a_command_are_limited():
    session, task = made()
    session.reset(task)
    for place in ("/tests", "/solution", "/context", "/logs/verifier", "/dev/shm"):
        assert "No space left" in printed(session, f"head -c 70000000 /dev/zero > {place}/large; rm -f {place}/large")
    assert "Read-only file system" in printed(session, "touch /dev/large")
    assert printed(session, "echo > /dev/null; ulimit -u") == "1024\n"
    await session.close()


@pytest.mark.parametrize("place", ["/etc", "above the programs"])
async def test_a_command_cannot_put_a_link_where_the_next_one_gets_a_mount(tmp_path, place):
    programs = tmp_path / "above" / "programs"
    programs.mkdir(parents=True)
    place = str(programs.parent) if place != "/etc" else place
    session, task = made(programs=[str(programs)])
    session.reset(task)
    outside = tmp_path / "outside"
    outside.mkdir()
    for link in (f"/oldroot{outside}", "/newroot/app"):
        assert "busy" in printed(session, f"mv {place} {place}-moved; ln -s {link} {place}")
        assert printed(session, "ls") == "poem.txt\n"
    assert list(outside.iterdir()) == []
    assert printed(session, "echo mine > /etc/mine; ls /etc/mine") == "/etc/mine\n"
    assert "mine" in printed(session, "ls /etc")
    assert "Read-only file system" in printed(session, "echo /app/mine.so > /etc/ld.so.preload")
    await session.close()


async def test_a_command_that_empties_its_output_has_still_started():
    session, task = made()
    session.reset(task)
    assert printed(session, "echo before; echo x > /dev/stderr; echo after") == "x\nafter\n"
    assert printed(session, "printf '' > /dev/stdout") == ""
    assert printed(session, "ls /proc/self/fd | wc -l") == "4\n"  # three streams and the folder that ls reads
    await session.close()


async def test_an_agent_whose_files_start_nothing_gets_0_and_no_error():
    session, task = made()
    session.reset(task)
    bash(session, "echo 4 > answer.txt; chmod 000 /")
    result = bash(session, "ls")
    assert result.actions[0].outcome is Outcome.REFUSED and not result.terminated
    assert "could not be started" in result.observation.messages[0].content
    assert session.step("done").reward == 0.0
    await session.close()


async def test_a_missing_folder_of_the_task_is_reported():
    session, task = made()
    session.reset(task)
    bash(session, "rm -r /app")
    text = printed(session, "pwd")
    assert "the folder /app is missing" in text and text.endswith("\n/\n")
    await session.close()


async def test_a_command_that_is_too_long_is_refused_and_a_long_solution_still_proves_its_task(tmp_path):
    solution = f"#!/bin/bash\n# {'x' * (128 << 10)}\necho 4 > answer.txt\n"
    session, task = made(copied(tmp_path, solution__solve_sh=solution))
    session.reset(task)
    result = bash(session, f"echo {'ä' * (64 << 10)}")
    assert result.actions[0].outcome is Outcome.REFUSED and "131,071 bytes" in result.actions[0].error
    assert len(printed(session, f"echo {'x' * (131_071 - 5)}")) > 1000
    await session.close()


async def test_built_files_share_a_folder_and_episodes_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session, task = made()
    for seed in (0, 1, 0):
        session.reset(msgspec.structs.replace(task, seed=seed))
    await session.close()
    [images] = tmp_path.iterdir()
    assert sorted(file.name for file in images.glob("*/app/*")) == ["poem.txt", "total.sh"]


async def test_a_session_closed_during_its_reset_leaves_no_files(tmp_path, monkeypatch):
    (tmp_path / "files").mkdir()
    tasks = copied(tmp_path, environment__Dockerfile="FROM x\nWORKDIR /app\nCOPY poem.txt .\nRUN sleep 2\n")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "files"))
    session, task = made(tasks)
    resetting = asyncio.create_task(asyncio.to_thread(session.reset, task))
    await asyncio.to_thread(wait, lambda: len(list((tmp_path / "files").iterdir())) == 2)  # images, and one being built
    await session.close()
    with pytest.raises(EnvError, match="closed during its reset"):
        await resetting
    assert [folder.name[:21] for folder in (tmp_path / "files").iterdir()] == ["quartet-harbor-images"]


async def test_a_session_closed_during_a_command_ends_it_before_its_files_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session, task = made(command_timeout_seconds=60.0)
    session.reset(task)
    duration = f"601.{os.getpid()}"
    commands = [ToolCall(name="bash", arguments={"command": text}) for text in (f"sleep {duration}", "echo second")]
    acting = asyncio.create_task(asyncio.to_thread(session.act, commands))
    await asyncio.to_thread(wait, lambda: running(duration) or acting.done())
    await session.close()
    with pytest.raises(EnvError, match="during its step"):
        await acting
    await asyncio.to_thread(wait, lambda: not running(duration))
    assert [folder.name[:21] for folder in tmp_path.iterdir()] == ["quartet-harbor-images"]


async def test_a_host_that_starts_nothing_is_an_error_and_no_zero(monkeypatch):
    session, task = made()
    session.reset(task)
    monkeypatch.setattr("quartet.env.harbor.mounts.ISOLATED", ("--no-such-option",))
    with pytest.raises(EnvError, match=r"could not be started: .*no-such-option"):
        session.step("done")
    await session.close()


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        ('call bash {"command": "ls', Outcome.PARSE_ERROR),
        ('call sh {"command": "ls"}', Outcome.REFUSED),
        ('call bash {"command": 3}', Outcome.REFUSED),
        ('call bash {"command": "ls", "user": "root"}', Outcome.REFUSED),
    ],
)
async def test_a_malformed_call_is_an_error_that_the_policy_reads(call, outcome):
    session, task = made()
    session.reset(task)
    result = session.step(call)
    assert result.actions[0].outcome is outcome and not result.terminated
    assert "write call bash" in result.observation.messages[0].content
    await session.close()


async def test_the_last_turn_is_scored_as_the_answer_is():
    session, task = made(turn_limit=2)
    session.reset(task)
    assert not bash(session, "echo 4 > answer.txt").terminated
    ended = bash(session, "ls")
    assert ended.terminated and ended.reward == 1.0
    await session.close()


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        ("exit 1", "wrote no reward and ended with status 1"),
        ("echo broken >&2", "broken"),
        ("sleep 60", "did not end within 1 s"),
        ("echo nan > /logs/verifier/reward.txt", "not a finite number"),
        ("echo half > /logs/verifier/reward.txt", "not a finite number"),
        ('echo \'{"a": "x"}\' > /logs/verifier/reward.json', "not a finite number"),
        ("echo 1 > /logs/verifier/reward.json", "no named rewards"),
        ("ln -s /etc/passwd /logs/verifier/reward.txt", "wrote no reward"),
        ("mkfifo /logs/verifier/reward.txt", "wrote no reward"),
    ],
)
async def test_tests_without_a_reward_are_an_error_and_no_zero(tmp_path, test, problem):
    tasks = copied(tmp_path, tests__test_sh=f"#!/bin/bash\n{test}\n")
    session, task = made(tasks, require_solution=False, test_timeout_seconds=1.0)
    guarded = GuardedEnv(session)  # pyright: ignore[reportArgumentType]  (plain functions, called in a thread)
    await guarded.reset(task)
    with pytest.raises(RewardError, match=problem):
        await guarded.step("done")
    await guarded.close()


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"solution__solve_sh": "#!/bin/bash\necho 5 > answer.txt\n"}, "the solution of count-lines gets the reward 0"),
        ({"tests__test_sh": "#!/bin/bash\n"}, "wrote no reward"),
        ({"environment__Dockerfile": "FROM x\nWORKDIR /app\nRUN apt-get install -y nothing-of-the-kind"}, "apt-get"),
        ({"environment__Dockerfile": "FROM x\nWORKDIR /app\nRUN rm -r /app"}, "cd: /app: No such file"),
        ({"task_toml": "[environment]\nworkdir = '/missing'"}, "cd: /missing: No such file"),
        ({"environment__Dockerfile": "FROM x\nWORKDIR /app\nRUN mkfifo pipe"}, "pipe` is a named pipe"),
        ({"environment__Dockerfile": f"FROM x\nRUN echo {'x' * (128 << 10)}"}, "131,071 bytes"),
    ],
)
async def test_a_task_that_cannot_be_solved_here_fails_its_resets(tmp_path, files, problem):
    session, task = made(copied(tmp_path, **files))
    for _ in range(2):
        with pytest.raises(EnvError, match=problem):
            session.reset(task)
    await session.close()


async def test_a_failure_that_may_pass_does_not_condemn_the_task_and_a_wrong_solution_does(tmp_path):
    tasks = copied(tmp_path, tests__test_sh="#!/bin/bash\nsleep 60\n")
    tests = tasks / "count-lines" / "tests" / "test.sh"
    session, task = made(tasks, test_timeout_seconds=5.0)
    with pytest.raises(EnvError, match="did not end within 5 s"):
        session.reset(task)
    tests.write_text("#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n")
    assert session.reset(task).messages
    await session.close()
    session, task = made(tasks, test_timeout_seconds=5.0)
    for reward in (0, 1):
        tests.write_text(f"#!/bin/bash\necho {reward} > /logs/verifier/reward.txt\n")
        with pytest.raises(EnvError, match="gets the reward 0"):
            session.reset(task)
    await session.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_files_that_cannot_be_copied_leave_nothing_behind(tmp_path, monkeypatch):
    origin, scratch = tmp_path / "origin", tmp_path / "scratch"
    origin.mkdir()
    scratch.mkdir()
    os.mkfifo(origin / "pipe")
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    held = descriptors()
    with pytest.raises(EnvError, match="is a named pipe"):
        Sandbox(100, (), origin)
    assert list(scratch.iterdir()) == [] and descriptors() == held


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"task_toml": "[[steps]]\nname = 'one'"}, "several steps"),
        ({"task_toml": "[environment]\nos = 'windows'"}, "runs on windows"),
        ({"task_toml": "[verifier]\nenvironment_mode = 'separate'"}, "tests in a container of its own"),
        ({"task_toml": "[environment.env]\nKEY = '${KEY}'"}, "reads the variable KEY from the host"),
        ({"task_toml": "[verifier]\ntimeout_sec = 'long'"}, "is no task of Harbor"),
        ({"environment__Dockerfile": "FROM x\nUSER me"}, "USER me is not supported"),
        ({"environment__Dockerfile": "FROM x\nCOPY --from=y a b"}, "is not supported"),
        ({"environment__Dockerfile": "FROM x\nFROM y"}, "2 stages"),
        ({"environment__Dockerfile": "FROM x\nCOPY missing.txt ."}, "has no missing.txt"),
        ({"environment__Dockerfile": "FROM x\nCOPY"}, "COPY  is not supported"),
        ({"environment__Dockerfile": "FROM x\nENV PATH=/app/bin:$PATH"}, "uses a variable"),
        ({"environment__Dockerfile": "FROM x\nWORKDIR $APP"}, "uses a variable"),
        ({"environment__Dockerfile": "FROM x\nENV A='b"}, "cannot be read: No closing quotation"),
        ({"environment__Dockerfile": b"FROM x\nRUN echo \xe4"}, "cannot be read: 'utf-8'"),
        ({"instruction_md": b"\xe4"}, "is no task of Harbor: 'utf-8'"),
    ],
)
def test_a_task_that_needs_docker_is_refused_or_left_out(tmp_path, files, problem):
    tasks = copied(tmp_path, **files)
    with pytest.raises(ConfigError, match=problem):
        make_environment(config.Env(name="harbor", tasks=str(tasks))).families()
    shutil.copytree(TASKS / "mend-total", tasks / "mend-total")
    chosen = config.Env(name="harbor", tasks=str(tasks), held_out=str(TASKS), unsupported="skip")
    assert make_environment(chosen).num_train_tasks(ALL) == 1


def test_a_prebuilt_image_needs_its_dockerfile(tmp_path):
    tasks = copied(tmp_path, task_toml="[environment]\ndocker_image = 'poems:1'")
    assert read_task(tasks / "count-lines").workdir == "/app"
    (tasks / "count-lines" / "environment" / "Dockerfile").unlink()
    with pytest.raises(ConfigError, match=r"no environment/Dockerfile \(its image is poems:1\)"):
        read_task(tasks / "count-lines")


def test_a_dockerfile_becomes_commands(tmp_path):
    (tmp_path / "Dockerfile").write_text(
        "FROM a AS b\nworkdir /x\nWORKDIR y\nENV A=1 B='2 3'\nENV C 4\nRUN one \\\n  two\n"
    )
    read = read_dockerfile(tmp_path / "Dockerfile")
    assert (read.workdir, read.variables) == ("/x/y", {"A": "1", "B": "2 3", "C": "4"})
    assert [step.command for step in read.steps] == ["mkdir -p /x", "mkdir -p /x/y", "one    two"]


def test_a_recipe_that_cannot_work_is_refused():
    data = {"name": "t", "model": {"path": "."}, "env": {"name": "harbor", "tasks": str(TASKS)}}
    with pytest.raises(ConfigError, match="does not show the results"):
        parse_recipe(data, source="test")
    with pytest.raises(ConfigError, match="the history latest does not show the results"):
        parse_recipe({**data, "rollout": {"loop": "screens", "history": "latest"}}, source="test")
    with pytest.raises(ConfigError, match="commands and tests may take 70 s"):
        parse_recipe({**data, "rollout": {"loop": "append"}}, source="test")
    longer = {**data["env"], "step_timeout_seconds": 120.0}
    with pytest.raises(ConfigError, match="may take 120 s, but a reset only 120"):
        parse_recipe({**data, "rollout": {"loop": "append"}, "env": longer}, source="test")
    parse_recipe({**data, "rollout": {"loop": "append"}, "env": {**longer, "require_solution": False}}, source="test")


@pytest.mark.parametrize("programs", [[], [str(TASKS.parent)]])
@pytest.mark.parametrize("key", ["tasks", "held_out"])
def test_tasks_in_a_folder_that_commands_read_are_refused(tmp_path, programs, key):
    readable = str(TASKS) if programs else "/usr/share"
    env = {"name": "harbor", "tasks": str(tmp_path), "programs": programs, "step_timeout_seconds": 130.0}
    data = {"name": "t", "model": {"path": "."}, "rollout": {"loop": "append"}, "env": {**env, key: readable}}
    with pytest.raises(ConfigError, match="could read the tests and solutions"):
        parse_recipe(data, source="test")


def test_a_link_to_a_task_that_commands_read_is_refused(tmp_path):
    (tmp_path / "linked").symlink_to(TASKS / "mend-total")
    chosen = config.Env(name="harbor", tasks=str(tmp_path), held_out=str(tmp_path), programs=[str(TASKS)])
    with pytest.raises(ConfigError, match="linked lies in"):
        make_environment(chosen).families()


@pytest.mark.campaign
@pytest.mark.skipif(not PYTHON, reason="`make test-adapters` installs harbor")
def test_the_package_reads_the_tasks_as_we_do():
    folders = sorted(TASKS.iterdir())
    done = subprocess.run([PYTHON, "-c", LOADER, *map(str, folders)], capture_output=True, text=True, check=True)
    ours = [read_task(folder) for folder in folders]
    assert done.stdout.splitlines() == [
        f"test.sh {task.config.verifier.timeout_sec} {task.instruction}" for task in ours
    ]
