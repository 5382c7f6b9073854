"""Making the blocks of a fleet for a real Prometheus, once for each size and version."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.fleet import FIRST, HOUR, LAST, VERSION, Fleet
from tests.bench.openmetrics import chunk
from tests.programs import find

_DONE = "made.json"
_FREE_BYTES_PER_GPU = 300_000

Say = Callable[[str], None]


class NoRoom(RuntimeError):
    """The disk has not enough room for the data."""


def blocks(fleet: Fleet, root: Path, say: Say) -> Path:
    """Return the folder with the fleet's blocks, made anew where it is missing or of old.

    The text of one chunk (half an hour) is on disk at a time. Raises NoRoom.
    """
    folder = root / str(fleet.gpus)
    made = folder / _DONE
    wanted = {"version": VERSION, "gpus": fleet.gpus}
    if made.exists() and wanted.items() <= json.loads(made.read_text(encoding="ascii")).items():
        return folder / "data"
    shutil.rmtree(folder, ignore_errors=True)
    data = folder / "data"
    data.mkdir(parents=True)
    _check_room(fleet, folder)
    started = time.monotonic()
    instants = [FIRST, *HOUR.slots(), int(HOUR.end_seconds), LAST]
    for number, (start, end) in enumerate(zip(instants, instants[1:], strict=False), start=1):
        say(f"{fleet.gpus:,} GPUs: making chunk {number} of {len(instants) - 1}")
        _load(fleet, start, end, folder / "chunk.om", data)
    seconds = round(time.monotonic() - started, 1)
    made.write_text(json.dumps({**wanted, "seconds": seconds}), encoding="ascii")
    say(f"{fleet.gpus:,} GPUs: made in {seconds} s")
    return data


def _check_room(fleet: Fleet, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    needed = fleet.gpus * _FREE_BYTES_PER_GPU
    if free < needed:
        raise NoRoom(
            f"{fleet.gpus:,} GPUs need {needed / 1e9:.0f} GB under {folder}, "
            f"{free / 1e9:.0f} GB are free; --data names another folder"
        )


def _load(fleet: Fleet, start: int, end: int, text: Path, data: Path) -> None:
    """Write one chunk as text and turn it into blocks."""
    try:
        with text.open("w", encoding="ascii", buffering=1 << 20) as file:
            file.writelines(chunk(fleet, start, end))
        subprocess.run(
            [find("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q", text, data],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    finally:
        text.unlink(missing_ok=True)
