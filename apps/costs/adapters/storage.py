"""Keep cost files in a folder or in object storage, named and checked by their SHA-256."""

import errno
import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from django.core.files import File
from django.core.files.storage import FileSystemStorage, Storage
from msgspec import Struct

from apps.costs.domain.months import sha256_of

_FILE_MODE, _FOLDER_MODE = 0o640, 0o750
_BLOCK = 1 << 20
_DRAFT = ".partial-"
_LOCKED_DRAFT = re.compile(r"\.partial-of-(.*)-[^-]+")
# A page asks the bucket too, and holds a thread meanwhile.
_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS = 3, 20, 2


class StorageAway(OSError):
    """Object storage does not answer, or refuses; `strerror` says which, without its address."""


class Stored(Struct, frozen=True):
    """A file that was written; `size` in bytes."""

    name: str
    size: int
    sha256: str


class Draft(File):  # type: ignore[type-arg]
    """A file that is written, and not yet in the storage. `length` in bytes."""

    def __init__(self, binary: BinaryIO, path: Path) -> None:
        super().__init__(binary, name=path.name)
        self.path = path
        self.length = binary.seek(0, os.SEEK_END)
        binary.flush()
        os.fsync(binary.fileno())
        binary.seek(0)
        self.sha256 = _sha256(binary)
        binary.seek(0)

    def temporary_file_path(self) -> str:
        """Return what a folder takes by another name instead of by a copy."""
        return str(self.path)


def folder_storage(folder: Path) -> Storage:
    """Return the storage of a folder, which is made."""
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    return FileSystemStorage(
        location=folder,
        file_permissions_mode=_FILE_MODE,
        directory_permissions_mode=_FOLDER_MODE,
        allow_overwrite=True,
    )


@lru_cache(maxsize=4)
def bucket_storage(bucket: str, **options: str) -> Storage:
    """Return the storage of an S3-compatible bucket; empty options are those of the environment.

    Without keys it signs as the machine or pod may: by its role or its projected token.
    """
    # botocore's modules cost time and memory, and who has a folder needs none.
    from botocore.config import Config
    from storages.backends.s3 import S3Storage

    given: dict[str, Any] = {name: value for name, value in options.items() if value}
    client = Config(
        # Servers of one's own seldom have a host name for each bucket.
        s3={"addressing_style": "path" if "endpoint_url" in given else None},
        signature_version="s3v4",
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
    )
    storage: Storage = S3Storage(
        bucket_name=bucket, default_acl=None, file_overwrite=True, client_config=client, **given
    )
    return storage


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Raise what goes wrong with object storage as StorageAway."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in {"botocore", "boto3", "s3transfer"}:
            raise
        response = getattr(error, "response", None) or {}
        code = response.get("Error", {}).get("Code") or type(error).__name__
        raise StorageAway(errno.EIO, f"object storage does not take or give it ({code})") from error


@contextmanager
def drafted(
    storage: Storage, write: Callable[[BinaryIO], None], *, owner: str = ""
) -> Iterator[Draft]:
    """Write a file that is gone at the end, unless `store` gave it to the storage.

    In a folder it is written beside, so that a writer who is killed leaves no half of one under
    a name. It is locked meanwhile: `abandoned` tells by that whose writer is gone.
    """
    prefix = f"{_DRAFT}of-{owner}-"
    folder = _drafts_folder(storage)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=prefix, delete=False) as out:
        path, binary = Path(out.name), cast("BinaryIO", out)
        # A few network file systems know no locks: there the sweep of old files has to do.
        with suppress(OSError):
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            write(binary)
            yield Draft(binary, path)
        finally:
            path.unlink(missing_ok=True)


def _drafts_folder(storage: Storage) -> Path:
    if isinstance(storage, FileSystemStorage):
        return Path(storage.location)
    return Path(tempfile.gettempdir())


def abandoned(storage: Storage, *, before: datetime) -> list[str]:
    """Delete drafts of writers that are gone; return the owners.

    A lock ends with the process that holds it, however that ends. Drafts that were written to
    since `before` are left alone: one that was made just now has no lock yet.
    """
    owners = []
    for path in sorted(_drafts_folder(storage).glob(f"{_DRAFT}of-*")):
        found = _LOCKED_DRAFT.fullmatch(path.name)
        if found is None:
            continue
        # Locked still, or of a file system without locks, or another process deletes it too.
        with suppress(OSError), path.open("r+b") as binary:
            if os.fstat(binary.fileno()).st_mtime < before.timestamp():
                fcntl.flock(binary, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                owners.append(found[1])
    return owners


def store(storage: Storage, draft: Draft, name: str) -> Stored:
    """Give a file its name in the storage, where it takes the place of another. Raises OSError."""
    with _storage_errors():
        storage.save(name, draft)
    return Stored(name, draft.length, draft.sha256)


def opened(storage: Storage, name: str, sha256: str = "") -> BinaryIO | None:
    """Return a file from its start, None where it is missing or has not the hash that is given.

    Raises OSError.
    """
    with _storage_errors():
        try:
            binary = cast("BinaryIO", storage.open(name))
        except FileNotFoundError:
            return None
        if sha256 and _sha256(binary) != sha256:
            binary.close()
            return None
        binary.seek(0)
    return binary


def is_there(storage: Storage, name: str) -> bool:
    """Say whether a file is stored. Raises OSError."""
    with _storage_errors():
        return storage.exists(name)


def _sha256(binary: BinaryIO) -> str:
    return sha256_of(iter(partial(binary.read, _BLOCK), b""))


def removed(storage: Storage, name: str) -> None:
    """Delete a file, if it is there. Raises OSError."""
    with _storage_errors():
        storage.delete(name)


def swept(
    storage: Storage, ours: re.Pattern[str], known: Collection[str], *, before: datetime
) -> int:
    """Delete unknown files of a storage's top that were not written to since `before`.

    Of those alone whose name is like `ours`: a bucket or folder may hold what is not the portal's.
    What a killed writer left is among them. Returns how many there were. Raises OSError.
    """
    count = 0
    with _storage_errors():
        for name in sorted(storage.listdir("")[1]):
            unknown = name not in known and (ours.fullmatch(name) or name.startswith(_DRAFT))
            if unknown and storage.get_modified_time(name) < before:
                storage.delete(name)
                count += 1
    return count
