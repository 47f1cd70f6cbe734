"""Temporary folder that is removed once all processes that hold it have ended, even if they were killed."""

import logging
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

LOG = logging.getLogger(__name__)
EXIT_TIMEOUT_SECONDS = 5.0

WATCH = 'cat; rm -rf -- "$0" 2>/dev/null || { chmod -R u+rwX -- "$0"; rm -rf -- "$0"; }'
"""Shell command that waits until every holder has closed its end of a pipe, then removes the folder, even if it has
folders whose owner may not read or change them."""


class ScratchFolder:
    """Folder that exists while this process, or a process that inherited `hold_fd`, is alive."""

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        watched_fd, self.hold_fd = os.pipe()
        try:
            # The shell has its own session, so that a signal to this process's group does not end it.
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", WATCH, str(self.path)],
                stdin=watched_fd,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(watched_fd)

    def remove(self) -> None:
        """Release the folder and wait until the other holders have ended; safe to call twice."""
        if self.hold_fd >= 0:
            os.close(self.hold_fd)
            self.hold_fd = -1
        with suppress(subprocess.TimeoutExpired):
            self._shell.wait(EXIT_TIMEOUT_SECONDS)
        shutil.rmtree(self.path, ignore_errors=True)  # in case the shell was killed
        if self.path.exists():
            LOG.warning("temporary folder %s could not be removed", self.path)
