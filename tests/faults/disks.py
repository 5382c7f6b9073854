"""A disk of a few MB that a test fills, and frees again."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from tests.programs import find

_BLOCK = 4096


class SmallDisk(Struct):
    """A file system of its own at `folder`."""

    folder: Path

    @property
    def is_full(self) -> bool:
        """Whether a test filled it."""
        return self._ballast.exists()

    def fill(self, *, but: int = 0) -> None:
        """Leave room for so many blocks of 4 KiB."""
        room = os.statvfs(self.folder)
        with self._ballast.open("wb", buffering=0) as ballast:
            os.posix_fallocate(ballast.fileno(), 0, (room.f_bavail - but) * room.f_frsize)

    def make_room(self) -> None:
        """Take away what filled it."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@contextmanager
def small_disk(megabytes: int) -> Iterator[SmallDisk]:
    """Mount such a disk, which root may: CI runs as root, and others skip the test."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    folder = Path(tempfile.mkdtemp(prefix="gpuportal-disk-"))
    # Servers of other accounts have to reach it.
    options = f"size={megabytes}m,mode=0755"
    mount = [str(find("mount")), "-t", "tmpfs", "-o", options, "gpuportal-tests", str(folder)]
    subprocess.run(mount, check=True)  # noqa: S603 - our own words
    try:
        yield SmallDisk(folder)
    finally:
        # A server may still be ending: it keeps what it has open.
        subprocess.run([str(find("umount")), "--lazy", str(folder)], check=True)  # noqa: S603 - our own words
        folder.rmdir()
