"""Detection of network file systems, on which SQLite's locks are not safe."""

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
    """Raise `SetupError` if `folder` is on a network file system. Systems without `/proc` are not checked.

    `mounts` is the mount table, by default the system's.
    """
    if mounts is None:
        if not _MOUNTS.is_file():
            return
        mounts = _MOUNTS.read_text()
    point, kind = _mount_of(folder.resolve(), mounts)
    if kind in NETWORK_TYPES:
        raise SetupError(
            f"{folder} is on {point}, a network file system ({kind}): SQLite's locks are not safe there",
            "put the run on a local disk with --run-dir, or its ledger on a server with ledger.url = 'postgresql://…'",
        )


def _mount_of(folder: Path, mounts: str) -> tuple[str, str]:
    """Return mount point and type of the longest mount point that holds the folder; the last of equals wins."""
    best = ("/", "")
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best
