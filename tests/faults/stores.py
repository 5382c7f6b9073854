"""Databases of a test's own that this process works on, and what interrupts that."""

import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from django.db import InterfaceError, OperationalError, connection, connections
from msgspec import Struct, field
from pytest_django import DjangoDbBlocker

from apps.usage.models import CollectionWindow
from gpuportal import env
from tests.faults.disks import SmallDisk
from tests.faults.wire import Wire
from tests.servers import StoppedPostgres


@contextmanager
def database(
    url: str, blocker: DjangoDbBlocker, options: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Let this process work on another database meanwhile, with options of its own."""
    made = env.database(url)
    made["OPTIONS"] |= dict(options or {})
    before = connections.settings["default"], connections["default"]
    connections.settings["default"] = connections.configure_settings({"default": made})["default"]
    connections["default"] = connections.create_connection("default")
    _forget_queries()
    try:
        with blocker.unblock():
            yield
    finally:
        connections["default"].close()
        _forget_queries()
        connections.settings["default"], connections["default"] = before


def _forget_queries() -> None:
    """Forget the queries that were made for another kind of database."""
    for name, module in list(sys.modules.items()):
        if name.startswith("apps."):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def give_up_connection() -> None:
    """Do as a worker does after each task: the next one connects anew where that is needed."""
    connection.close_if_unusable_or_obsolete()


class Stops(Struct):
    """Stops PostgreSQL in each step, a `stride` of parts later in each try of it.

    `meanwhile` is called the first time, while the server is away; `after` once it is there again.
    """

    server: StoppedPostgres
    wire: Wire
    first: int
    stride: int
    is_late: bool = False
    meanwhile: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    count: int = 0
    _next: int = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self._next = self._next + self.stride if self._next else self.first
        self.wire.cut(self._next, self.server.stop_at_once, is_late=self.is_late)
        try:
            yield
            # What is not told of is no failed step, and has to be whole.
            assert not self.wire.was_cut
            self._next = 0
        except (OperationalError, InterfaceError):
            assert self.wire.was_cut
            self._bring_back()
        finally:
            self.wire.heal()

    def _bring_back(self) -> None:
        give_up_connection()
        self.count += 1
        if self.count == 1:
            self.meanwhile()
            give_up_connection()
        self.server.start()
        self.wire.heal()
        if self.count == 1:
            self.after()


class Locks(Struct):
    """Locks an SQLite database in each step, a `stride` of statements later in each try of it.

    Only between transactions: within one the step itself has the lock. `meanwhile` is called the
    first time, while it is locked.
    """

    file: Path
    first: int
    stride: int
    meanwhile: Callable[[], None] = lambda: None
    count: int = 0
    _next: int = 0
    _seen: int = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self._next = self._next + self.stride if self._next else self.first
        self._seen = 0
        with closing(sqlite3.connect(self.file, isolation_level=None)) as other:

            def locking(execute: Any, *call: Any) -> Any:
                if not connection.in_atomic_block:
                    self._seen += 1
                    if self._seen == self._next:
                        other.execute("BEGIN EXCLUSIVE")
                return execute(*call)

            try:
                with connection.execute_wrapper(locking):
                    yield
            except OperationalError as error:
                if "database is locked" not in str(error):
                    raise
            if not other.in_transaction:
                self._next = 0
                return
            self.count += 1
            if self.count == 1:
                self.meanwhile()


class Fills(Struct):
    """Fills the disk of a database in each step, a `stride` of statements later in each try of it.

    `reasons` are those that hours got. `meanwhile` is called while the disk is full.
    """

    disk: SmallDisk
    first: int
    stride: int
    meanwhile: Callable[[], None] = lambda: None
    errors: list[str] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)
    _next: int = 0
    _seen: int = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self._next = self._next + self.stride if self._next else self.first
        self._seen = 0
        try:
            with connection.execute_wrapper(self._filling):
                yield
        except OperationalError as error:
            if not re.search("No space left on device|disk is full", str(error)):
                raise
            self.errors.append(str(error))
        if not self.disk.is_full:
            self._next = 0
            return
        rows = CollectionWindow.objects.exclude(error="").order_by("hour")
        self.reasons |= set(rows.values_list("error", flat=True))
        self.meanwhile()
        self.disk.make_room()

    def _filling(self, execute: Any, *call: Any) -> Any:
        self._seen += 1
        if self._seen == self._next:
            self.disk.fill()
        return execute(*call)
