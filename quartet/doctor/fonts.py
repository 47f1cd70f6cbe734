"""Check for fonts: without fonts, text on pages has no size."""

import shutil
import subprocess
from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, lacks, note, ok

ADVICE = "install fonts (Debian: apt-get install fonts-dejavu-core)"
TIMEOUT_SECONDS = 30.0


class Fonts(Doctor):
    """Check for fonts: without fonts, text on pages has no size."""

    before_training = True

    def examine(self, place: Place) -> Iterator[Finding]:
        if not place.needs_browser:
            return
        if (program := shutil.which("fc-list")) is None:
            yield note("fonts cannot be counted: there is no fc-list", "apt-get install fontconfig")
            return
        command = [program, ":", "family"]
        try:
            listed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            yield note(
                f"fonts cannot be counted: {program} did not end within {TIMEOUT_SECONDS:g} s",
                "run `fc-cache` once, which makes the cache of fonts; then check again",
            )
            return
        families = {line.strip() for line in listed.stdout.splitlines() if line.strip()}
        yield ok(f"{len(families)} font families") if families else lacks("there are no fonts", ADVICE)
