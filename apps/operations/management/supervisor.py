"""Running the portal's processes as one: what dies is started again, and all stop together."""

import contextlib
import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self

from django.conf import settings
from msgspec import Struct


def portal_commands() -> dict[str, str]:
    """Return the commands of the Procfile by name; of metrics ports each gets one of its own."""
    text = (settings.BASE_DIR / "Procfile").read_text(encoding="utf-8")
    found = re.findall(r"^(\w+): (.+)$", text, flags=re.MULTILINE)
    if not settings.METRICS_PORT:
        return dict(found)
    return {
        name: f"env GPUPORTAL_METRICS_PORT={port} {command}"
        for port, (name, command) in enumerate(found, settings.METRICS_PORT)
    }


def shell(command: str) -> list[str]:
    """Return the words that run a Procfile line; the shell fills in variables and makes way."""
    return ["/bin/sh", "-c", f"exec {command}"]


def program_path() -> str:
    """Return a PATH on which this Python's programs come first."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_TAIL_BYTES = 3000
LOG_LEVEL = "GPUPORTAL_LOG_LEVEL"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class ProcessEnded(Exception):
    """A process ended that never ran well; holds its name, exit code and last words."""

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


class _Child(Struct):
    """A process; `settled` says that it ran for a while, `ended` since when it is not there."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes]
    log: Path | None
    started: float
    settled: bool = False
    ended: float | None = None


class Supervisor:
    """Processes in sessions of their own, so that a Ctrl-C reaches this one alone.

    They run in `folder` and log to `logs`, or to this terminal without it. A process that ends
    after `settle_seconds` or later, or is killed, is started again `pause_seconds` after its end.
    One that ends by itself sooner the first time has a reason that would end it again: this raises
    ProcessEnded.

    Use it as a context manager: leaving it stops every process, the first started last, and kills
    those that are still there after `stop_seconds`. Between, SIGINT, SIGTERM and SIGHUP make every
    blocking call here raise Stopped.
    """

    def __init__(
        self,
        folder: Path,
        logs: Path | None,
        environment: Mapping[str, str],
        *,
        stop_seconds: float = 20.0,
        settle_seconds: float = 10.0,
        pause_seconds: float = 2.0,
    ) -> None:
        self._folder = folder
        self._logs = logs
        self._environment = dict(environment)
        self._stop_seconds = stop_seconds
        self._settle_seconds = settle_seconds
        self._pause_seconds = pause_seconds
        self._children: list[_Child] = []
        self._asked_to_stop = 0
        self._handlers: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if self._logs is not None:
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
        log = None if self._logs is None else self._logs / f"{name}.log"
        if log is not None:
            log.write_bytes(b"")
        process = self._spawn(command, log, self._environment)
        self._children.append(_Child(name, command, process, log, time.monotonic()))

    def run(self, name: str, command: Sequence[str]) -> int:
        """Run a process to its end on this terminal and return its exit code.

        It logs warnings alone, unless a level is asked for: the terminal is for its own words.
        Raises ProcessEnded as `wait` does, Stopped after a signal.
        """
        quiet = {LOG_LEVEL: "WARNING", **self._environment}
        process = self._spawn(command, None, quiet)
        child = _Child(name, command, process, None, time.monotonic())
        self._children.append(child)
        while child.process.poll() is None:
            self._check_children(besides=child)
            time.sleep(_POLL_SECONDS)
        self._children.remove(child)
        return child.process.returncode

    def wait_until(self, ready: Callable[[], bool], *, what: str, seconds: float) -> None:
        """Wait until `ready`; raises NotReady after `seconds`, else as `wait` does."""
        deadline = time.monotonic() + seconds
        while not ready():
            self._check_children()
            if time.monotonic() > deadline:
                raise NotReady(f"{what} within {seconds:.0f} s; the logs are in {self._logs}")
            time.sleep(_POLL_SECONDS)

    def wait(self) -> None:
        """Wait for ever; raises ProcessEnded when a process ends that never settled."""
        while True:
            self._check_children()
            time.sleep(_POLL_SECONDS)

    def _spawn(
        self, command: Sequence[str], log: Path | None, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        with contextlib.nullcontext() if log is None else log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - our own commands
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

    def _check_children(self, besides: _Child | None = None) -> None:
        if self._asked_to_stop:
            raise Stopped(self._asked_to_stop)
        for child in self._children:
            if child is not besides:
                self._keep_running(child)

    def _keep_running(self, child: _Child) -> None:
        """Start a process again that ended; raises ProcessEnded when it never settled."""
        now = time.monotonic()
        code = child.process.poll()
        if code is None:
            child.settled = child.settled or now - child.started >= self._settle_seconds
        # A negative code is a signal, as that of the OOM killer.
        elif not child.settled and code >= 0:
            raise ProcessEnded(child.name, code, _tail(child.log))
        elif child.ended is None:
            child.ended = now
            logger.warning("%s ended with exit code %d: it is started again", child.name, code)
            _kill_group(child)
        elif now - child.ended >= self._pause_seconds:
            child.process = self._spawn(child.command, child.log, self._environment)
            child.started, child.ended = now, None

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
        for child in self._children:
            _kill_group(child)

    def _hurry(self, _number: int, _frame: FrameType | None) -> None:
        self._kill_groups()


def _kill_group(child: _Child) -> None:
    """Kill what is left of a process, its children too: each session is a group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)


def _end_with_parent() -> None:
    """Ask Linux to end this process when its parent is killed and cannot do it itself."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _tail(log: Path | None) -> str:
    if log is None:
        return ""
    return log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", errors="replace").strip()
