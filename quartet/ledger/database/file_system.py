"""SQLite's locks need a local file system."""

from pathlib import Path

from quartet.errors import SetupError

_MOUNTS = Path("/proc/self/mounts")
NETWORK_TYPES = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "lustre",
        "glusterfs",
        "beegfs",
        "gpfs",
        "ocfs2",
        "gfs2",
        "fuse.sshfs",
        "fuse.glusterfs",
    )
)


def refuse_network_file_system(folder: Path, mounts: str | None = None) -> None:
    """Raise `SetupError` when `folder` lies on a network file system; systems without `/proc` are not looked at.

    `mounts` is the table of mounts, by default the system's.
    """
    if mounts is None:
        if not _MOUNTS.is_file():
            return
        mounts = _MOUNTS.read_text()
    point, kind = _mount_of(folder.resolve(), mounts)
    if kind in NETWORK_TYPES:
        raise SetupError(
            f"{folder} lies on {point}, a network file system ({kind}): SQLite's locks are not safe there",
            "put the run on a local disk with --run-dir, or its ledger on a server with ledger.url = 'postgresql://…'",
        )


def _mount_of(folder: Path, mounts: str) -> tuple[str, str]:
    """Mount point and type of the longest mount point that holds the folder; the last of equals hides the others."""
    best = ("/", "")
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best
