"""Making the blocks of a fleet for a real Prometheus, once for each size and version."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from tests.bench.fleet import FIRST, HOUR, LAST, VERSION, Fleet
from tests.bench.openmetrics import chunk
from tests.programs import find

_DONE = "made.json"
_FREE_BYTES_PER_GPU = 250_000
_MOST_AT_ONCE = 20_000

Say = Callable[[str], None]


class NoRoom(RuntimeError):
    """The disk has not enough room for the data."""


def blocks(fleet: Fleet, root: Path, say: Say) -> Path:
    """Return the folder with the fleet's blocks, made anew where it is missing or of old.

    The text of a chunk (half an hour; 0.16 MB for each GPU) is on disk while it is loaded, of
    smaller fleets two at a time. Raises NoRoom.
    """
    folder = root / "-".join(filter(None, (str(fleet.gpus), fleet.variant)))
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
    at_once = 2 if fleet.gpus <= _MOST_AT_ONCE else 1
    with ThreadPoolExecutor(at_once) as pool:
        loads = [
            pool.submit(_load, fleet, start, end, folder / f"{start}.om", data)
            for start, end in pairwise(instants)
        ]
        for number, load in enumerate(loads, start=1):
            load.result()
            say(f"{fleet.gpus:,} GPUs: {number} of {len(loads)} chunks made")
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
        subprocess.run(  # noqa: S603 - our own words
            [find("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q", text, data],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    finally:
        text.unlink(missing_ok=True)
