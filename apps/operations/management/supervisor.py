"""Starting several processes as one, and stopping all of them.

honcho does this for `make run`; it cannot start one process after another, wait for one to
answer, or run one to its end among the others, which the demo needs.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Self

_POLL_SECONDS = 0.1
_TAIL_BYTES = 3000
LOG_LEVEL = "GPUPORTAL_LOG_LEVEL"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class ProcessEnded(Exception):
    """A process that should have gone on ended; holds its name, exit code and last words."""

    def __init__(self, name: str, code: int, tail: str) -> None:
        super().__init__(f"{name} ended with exit code {code}")
        self.name = name
        self.code = code
        self.tail = tail


class NotReady(Exception):
    """A process did not become ready in time."""


class Stopped(BaseException):
    """A signal asked to stop. No Exception, so that nothing on the way takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)


@dataclass(frozen=True, slots=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    log: Path | None


class Supervisor:
    """Processes in sessions of their own, so that a Ctrl-C reaches this one alone.

    They run in `folder` and log to `logs`.
    Use it as a context manager: leaving it stops every process, the first started last, and
    kills what has not gone after `stop_seconds`. Between, SIGINT, SIGTERM and SIGHUP make
    whatever waits here raise Stopped.
    """

    def __init__(
        self,
        folder: Path,
        logs: Path,
        environment: Mapping[str, str],
        *,
        stop_seconds: float = 20.0,
    ) -> None:
        self._folder = folder
        self._logs = logs
        self._environment = dict(environment)
        self._stop_seconds = stop_seconds
        self._children: list[_Child] = []
        self._asked_to_stop = 0
        self._handlers: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, self._note_signal)
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C while stopping means: at once.
        for number in self._handlers:
            signal.signal(number, self._hurry)
        self._stop_all()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() returned

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a process that is to run until the end, its output in `NAME.log`."""
        log = self._logs / f"{name}.log"
        with log.open("wb") as output:
            process = self._spawn(command, output, self._environment)
        self._children.append(_Child(name, process, log))

    def run(self, name: str, command: Sequence[str]) -> int:
        """Run a process to its end on this terminal and return its exit code.

        It logs warnings alone, unless a level is asked for: the terminal is for its own words.
        Raises ProcessEnded when one of the others ends meanwhile, Stopped after a signal.
        """
        quiet = {LOG_LEVEL: "WARNING", **self._environment}
        child = _Child(name, self._spawn(command, None, quiet), None)
        self._children.append(child)
        while child.process.poll() is None:
            self._look(besides=child)
            time.sleep(_POLL_SECONDS)
        self._children.remove(child)
        return child.process.returncode

    def wait_until(self, ready: Callable[[], bool], *, what: str, seconds: float) -> None:
        """Wait until `ready`; raises NotReady after `seconds`, ProcessEnded when one ends."""
        deadline = time.monotonic() + seconds
        while not ready():
            self._look()
            if time.monotonic() > deadline:
                raise NotReady(f"{what} within {seconds:.0f} s; the logs are in {self._logs}")
            time.sleep(_POLL_SECONDS)

    def wait(self) -> None:
        """Wait for ever; raises ProcessEnded when a process ends."""
        while True:
            self._look()
            time.sleep(_POLL_SECONDS)

    def _spawn(
        self, command: Sequence[str], output: IO[bytes] | None, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - the demo's own commands
            list(command),
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )

    def _note_signal(self, number: int, _frame: FrameType | None) -> None:
        # Raised from here, it would come up wherever the program is: within a lock or a finally.
        self._asked_to_stop = number

    def _look(self, besides: _Child | None = None) -> None:
        if self._asked_to_stop:
            raise Stopped(self._asked_to_stop)
        for child in self._children:
            code = child.process.poll()
            if code is not None and child is not besides:
                raise ProcessEnded(child.name, code, _tail(child.log))

    def _stop_all(self) -> None:
        """Ask all to end, the first started only when the others, which use it, are gone."""
        for children in (self._children[1:], self._children[:1]):
            for child in reversed(children):
                child.process.terminate()  # does nothing to one that has ended
            deadline = time.monotonic() + self._stop_seconds
            for child in children:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, deadline - time.monotonic()))
        self._kill_groups()
        for child in self._children:
            child.process.wait()

    def _kill_groups(self) -> None:
        """Kill what is left, children of children too: each session is a group of its own."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGKILL)

    def _hurry(self, _number: int, _frame: FrameType | None) -> None:
        self._kill_groups()


def _end_with_parent() -> None:
    """Ask Linux to end this process when its parent is killed and cannot do it itself."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _tail(log: Path | None) -> str:
    if log is None:
        return ""
    return log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", errors="replace").strip()
