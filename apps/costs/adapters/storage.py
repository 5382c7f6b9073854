"""Keep cost files on disk, named and checked by their SHA-256."""

import os
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from apps.costs.domain.months import sha256_of

_MODE = 0o640
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that was written; `size` in bytes."""

    path: Path
    size: int
    sha256: str


def stored(
    folder: Path, name_of: Callable[[str], str], write: Callable[[BinaryIO], None]
) -> Stored:
    """Write a file into a folder, which is made, and name it by what `name_of` its SHA-256 is.

    It is written beside first, so that a writer who is killed leaves no half of one under the
    name. Raises OSError, and whatever `write` does; then nothing is left.
    """
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".partial-", delete=False) as out:
        beside, binary = Path(out.name), cast("BinaryIO", out)
        try:
            write(binary)
            size = binary.seek(0, os.SEEK_END)
            binary.flush()
            os.fsync(binary.fileno())
            binary.seek(0)
            sha = _sha256(binary)
            beside.chmod(_MODE)
            path = folder / name_of(sha)
            beside.replace(path)
        except BaseException:
            removed(beside)
            raise
    return Stored(path, size, sha)


def opened(path: Path, sha256: str) -> BinaryIO | None:
    """Return a file from its start, None where it is missing or is not what it was."""
    try:
        binary = path.open("rb")
    except FileNotFoundError:
        return None
    if _sha256(binary) != sha256:
        binary.close()
        return None
    binary.seek(0)
    return binary


def _sha256(binary: BinaryIO) -> str:
    return sha256_of(iter(partial(binary.read, _BLOCK), b""))


def removed(path: Path) -> None:
    """Delete a file, if it is there."""
    with suppress(FileNotFoundError):
        path.unlink()


def swept(folder: Path, known: Collection[str], *, before: datetime) -> int:
    """Delete unknown files of a folder that were not written to since `before`.

    What a killed writer left is among them. Returns how many there were.
    """
    count = 0
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        if path.name in known or not path.is_file():
            continue
        if datetime.fromtimestamp(path.stat().st_mtime, UTC) < before:
            removed(path)
            count += 1
    return count
