"""The browser's installer, on a made-up machine: only the commands in its folder exist there."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "install_browser.sh"
COMMANDS = {
    "id": "echo 0",
    "dpkg": "exit 1",
    "apt-cache": '[ "$2" != chromium-headless-shell ]',
    "apt-get": 'case "$*" in *chromium-headless-shell*) exit 100;; *" chromium "*) cp "$0" "${0%/*}/chromium";; esac',
}


@pytest.mark.slow
def test_a_package_that_the_release_lacks_keeps_no_other_from_being_installed(tmp_path):
    for name, line in COMMANDS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "cp").symlink_to(str(shutil.which("cp")))
    installed = subprocess.run(
        ["/bin/sh", SCRIPT], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert f"using {tmp_path / 'chromium'}" in installed.stdout
    assert "no package chromium-headless-shell" in installed.stderr
