"""Temporary folders whose content its owner cannot read."""

import os
import subprocess
import sys

PROGRAM = """
import os
from quartet.env.scratch import ScratchFolder
if os.getuid() == 0:
    os.setuid(65534)  # root may remove any folder
made = ScratchFolder("quartet-test-")
(made.path / "closed" / "inner").mkdir(parents=True)
(made.path / "closed" / "inner").chmod(0)
(made.path / "closed").chmod(0)
made.remove()
print(made.path.exists())
"""


def test_folders_without_rights_are_removed_too():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": "/tmp"},
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
