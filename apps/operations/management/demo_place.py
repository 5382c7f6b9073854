"""Where the demo keeps its data, one database for each scenario."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SQLITE_ENDINGS = ("", "-wal", "-shm")
_QUEUES = "queue"


class PlaceTaken(Exception):
    """The place holds something else, or another demo is at work there; says what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a demo and its database.

    `database` is the SQLite file of the settings, which lies where `manage.py` finds it too;
    None where `DATABASE_URL` names another one, which is left where it is.
    """

    var: Path
    database: Path | None

    @property
    def folder(self) -> Path:
        return self.var / "demo"

    @property
    def _note(self) -> Path:
        return self.folder / "current.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the place for one demo at a time. Raises PlaceTaken."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock.seek(0)
                raise PlaceTaken(
                    f"a demo is running from {self.var} (process {lock.read().strip()}): stop it "
                    "with Ctrl-C, or give this one a GPUPORTAL_VAR_DIR of its own"
                ) from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def current(self) -> dict[str, str]:
        """Return what the database holds: its `scenario` and `origin`; empty when unknown."""
        if self.database is not None and not self.database.exists():
            return {}
        try:
            noted = json.loads(self._note.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return {str(key): str(value) for key, value in noted.items()}

    def note(self, *, scenario: str, origin: str) -> None:
        """Write down what the database holds from now on."""
        text = json.dumps({"scenario": scenario, "origin": origin})
        self._note.write_text(text, encoding="utf-8")

    def make_room(self, scenario: str) -> None:
        """Put another scenario's database aside and bring this one's back, if there is one.

        Must be called before the database is opened. Raises PlaceTaken where the database is
        not ours to move.
        """
        held = self.current().get("scenario")
        if held == scenario:
            return
        if self.database is None:
            if held is not None:
                raise PlaceTaken(
                    f"DATABASE_URL holds the demo of {held!r}: start that one (SCENARIO={held}), "
                    f"or name an empty database for {scenario!r}"
                )
            return
        if held is not None:
            self._move(self.database, self._aside(held))
            self._note.replace(self._aside(held).with_suffix(".json"))
        aside = self._aside(scenario)
        if aside.exists() and not self.database.exists():
            self._move(aside, self.database)
            aside.with_suffix(".json").replace(self._note)

    def _aside(self, scenario: str) -> Path:
        return self.folder / f"{scenario}.db"

    def _move(self, source: Path, target: Path) -> None:
        for ending in _SQLITE_ENDINGS:
            part = source.with_name(source.name + ending)
            if part.exists():
                part.replace(target.with_name(target.name + ending))
