"""Processes that are killed for good (SIGKILL), at a statement or at a request.

They work on a database that commits, a copy for each case: what a killed one leaves is what others
find. A case forks this process, so that everything is loaded and its settings hold.
"""

import os
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from msgspec import Struct, field

from apps.clusters import gateways
from tests.faults.facts import Facts, differences
from tests.faults.proxy import Fault, Proxy
from tests.portal import postgres_database
from tests.servers import TEMPLATE, migrated_file

_DEADLINE_SECONDS = 120
Step = Callable[[], object]
World = TypeVar("World")

# ---------------------------------------------------------------- databases


@contextmanager
def database(folder: Path, like: str = "") -> Iterator[str]:
    """Yield the name of a copy of a database, else of a migrated one; it is dropped at the end."""
    if connection.vendor == "postgresql":
        with postgres_database(like or os.environ[TEMPLATE]) as url:
            yield urlsplit(url).path.removeprefix("/")
        return
    path = folder / f"{uuid4().hex}.db"
    shutil.copy(like or migrated_file(), path)
    yield str(path)
    for left in folder.glob(f"{path.name}*"):
        left.unlink()


@contextmanager
def connected_to(name: str) -> Iterator[None]:
    """Work on another database; what this process has open of its own waits, untouched."""
    own = connections["default"]
    before = own.settings_dict["NAME"]
    del connections["default"]
    own.settings_dict["NAME"] = name  # shared with connections that threads open
    try:
        yield
    finally:
        connections["default"].close()
        own.settings_dict["NAME"] = before
        connections["default"] = own


# ---------------------------------------------------------------- counting statements


class Fuse(Struct):
    """Counts statements, commits and copies; kills this process before the one that is `at`."""

    at: int = 0
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tick(self) -> None:
        with self.lock:
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)

    def statement(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.tick()
        return execute(sql, params, many, context)


@contextmanager
def counting(at: int = 0) -> Iterator[Fuse]:
    """Count what connections do that are opened from now on."""
    fuse = Fuse(at)
    commit, copy = BaseDatabaseWrapper._commit, psycopg.Cursor.copy  # type: ignore[attr-defined]

    def opened(connection: BaseDatabaseWrapper, **_: object) -> None:
        if fuse.statement not in connection.execute_wrappers:
            connection.execute_wrappers.append(fuse.statement)

    def counted_commit(self: BaseDatabaseWrapper) -> None:
        fuse.tick()
        commit(self)

    @contextmanager
    def counted_copy(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        fuse.tick()
        with copy(self, *args, **kwargs) as made:
            yield made
            fuse.tick()  # its rows are on their way, and not their end

    connection_created.connect(opened)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "_commit", counted_commit)
        patch.setattr(psycopg.Cursor, "copy", counted_copy)
        yield fuse
    connection_created.disconnect(opened)


# ---------------------------------------------------------------- killing


def killed_at_statement(name: str, step: Step, at: int) -> bool:
    """Do a step in a process that is killed before its n-th statement; say whether it was.

    Raises AssertionError where it ended in another way.
    """
    return _was_killed(_start(name, step, at))


def killed_at_request(name: str, step: Step, at: int, *, door: Proxy, answered: bool) -> bool:
    """Do a step in a process that is killed at its n-th request; say whether it was.

    It is killed before the request reaches the server; `answered`: once the server has done what
    was asked, before the answer comes back. Raises AssertionError as above.
    """
    started, pids = threading.Event(), list[int]()

    def kill() -> None:
        started.wait(_DEADLINE_SECONDS)
        os.kill(pids[0], signal.SIGKILL)

    def kill_before() -> Fault:
        kill()
        return Fault.REFUSED

    if answered:
        door.answered[at] = kill
    else:
        door.at[at] = kill_before
    pids.append(_start(name, step))
    started.set()
    return _was_killed(pids[0])


def _start(name: str, step: Step, at: int = 0) -> int:
    """Begin a step in a process of its own, on a database; return its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads of servers, which the new process has not, hold nothing that it needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    ended = 1
    try:
        signal.alarm(_DEADLINE_SECONDS)
        gateways._prometheus.cache_clear()  # its sockets are those of the other process
        with connected_to(name), counting(at):
            step()
        ended = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(ended)


def _was_killed(pid: int) -> bool:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in {0, -signal.SIGKILL}, f"it ended with {code}: see above"
    return code != 0


# ---------------------------------------------------------------- which moments


class Moments(Struct, frozen=True):
    """How many statements and requests an undisturbed step has."""

    statements: int
    requests: int

    def some(self, most: int, seed: int) -> list["Moment"]:
        """Return all moments to be killed at, or so many of them that a seed chooses."""
        every = [Moment(at) for at in range(1, self.statements + 1)]
        for answered in (False, True):
            every += [Moment(at, True, answered) for at in range(1, self.requests + 1)]
        chosen = Random(seed)  # noqa: S311 - no secret
        return every if len(every) <= most else sorted(chosen.sample(every, most))


class Moment(Struct, frozen=True, order=True):
    """The n-th statement or request, before it; `answered`: after it reached the server."""

    at: int
    of_requests: bool = False
    answered: bool = False

    def kills(self, name: str, step: Step, door: Proxy) -> None:
        """Do a step on a database in a process that is killed at this moment."""
        if self.of_requests:
            # Threads take turns: where there were fewer requests, it came to its end.
            killed_at_request(name, step, self.at, door=door, answered=self.answered)
        else:
            killed_at_statement(name, step, self.at)


class Killable(Struct, Generic[World], frozen=True):
    """A step that is killed, each time in a new `world` and on a copy of the database `base`.

    `go_on` is what others do later: it is done after a quiet run too. `look` returns what is to be
    the same in the end.
    """

    door: Proxy
    folder: Path
    base: str
    world: Callable[[], AbstractContextManager[World]]
    act: Callable[[World], object]
    go_on: Callable[[World], object]
    look: Callable[[World], Facts]

    def quiet(self) -> tuple[Moments, Facts]:
        """Return the moments of an undisturbed run, and what it comes to."""
        with database(self.folder, self.base) as name, self.world() as world, connected_to(name):
            self.door.begin()
            with counting() as fuse:
                self.act(world)
            moments = Moments(fuse.count, self.door.requests)
            self.go_on(world)
            return moments, self.look(world)

    def killed(self, moment: Moment) -> Facts:
        """Return what a run comes to that is killed at a moment and taken up by others."""
        with database(self.folder, self.base) as name, self.world() as world:
            self.door.begin()
            moment.kills(name, lambda: self.act(world), self.door)
            with connected_to(name):
                self.go_on(world)
                return self.look(world)

    def check(self, *, most: int, seed: int = 1) -> None:
        """Kill it at all moments, or at so many of them; each time all is as in a quiet run."""
        moments, quiet = self.quiet()
        assert moments.statements > 0
        wrong = {}
        for moment in moments.some(most, seed):
            lines = differences(quiet, self.killed(moment))
            if lines:
                wrong[moment] = lines
        assert not wrong, f"of {moments}:\n" + "\n".join(
            f"{moment}: {line[:300]}" for moment, lines in wrong.items() for line in lines
        )
