"""Starting processes as one and stopping all of them."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from apps.operations.management.supervisor import NotReady, ProcessEnded, Stopped, Supervisor

DEADLINE_SECONDS = 20.0
FOREVER = ("/bin/sh", "-c", "exec sleep 1000")


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail after the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        pause.wait(0.02)


def sh(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def runs(pid: int) -> bool:
    """Say whether a process runs; one that only waits to be buried does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def written(path: Path) -> bool:
    return path.exists() and path.read_text(encoding="ascii").endswith("\n")


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    return Supervisor(tmp_path, tmp_path / "logs", os.environ, stop_seconds=5.0)


def test_leaving_stops_every_process(supervisor: Supervisor, tmp_path: Path) -> None:
    pids = [tmp_path / name for name in ("one", "two")]
    with supervisor:
        for pid in pids:
            supervisor.start(pid.name, sh(f"echo $$ > {pid}; exec sleep 1000"))
        supervisor.wait_until(lambda: all(map(written, pids)), what="pids", seconds=10)
        numbers = [int(pid.read_text(encoding="ascii")) for pid in pids]
        assert all(map(runs, numbers))
    assert not any(map(runs, numbers))


def test_the_first_started_is_stopped_last(supervisor: Supervisor, tmp_path: Path) -> None:
    order = tmp_path / "order"
    ready = [tmp_path / name for name in ("server", "user-a", "user-b")]
    with supervisor:
        for path in ready:
            loop = "while :; do sleep 0.05; done"
            trap = f"trap 'echo {path.name} >> {order}; exit 0' TERM"
            supervisor.start(path.name, sh(f"{trap}; echo up > {path}; {loop}"))
        supervisor.wait_until(lambda: all(map(written, ready)), what="all", seconds=10)
    assert order.read_text(encoding="ascii").split()[-1] == "server"


def test_a_process_that_will_not_go_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = tmp_path / "child"
    script = f"trap '' TERM; sleep 1000 & echo $! > {stubborn}; while :; do sleep 1; done"
    with Supervisor(tmp_path, tmp_path, os.environ, stop_seconds=0.2) as supervisor:
        supervisor.start("stubborn", sh(script))
        supervisor.wait_until(lambda: written(stubborn), what="child", seconds=10)
    child = int(stubborn.read_text(encoding="ascii"))
    until(lambda: not runs(child))


def test_a_process_that_ends_is_named_with_its_last_words(supervisor: Supervisor) -> None:
    with supervisor:
        supervisor.start("well", FOREVER)
        supervisor.start("broken", sh("echo the disk is full >&2; exit 3"))
        with pytest.raises(ProcessEnded) as ended:
            supervisor.wait()
    assert (ended.value.name, ended.value.code) == ("broken", 3)
    assert ended.value.tail == "the disk is full"


def test_a_process_that_ran_well_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    starts = tmp_path / "starts"
    with Supervisor(
        tmp_path, tmp_path / "logs", os.environ, stop_seconds=5, settle_seconds=0, pause_seconds=0
    ) as supervisor:
        turn = f"echo up >> {starts}; test $(wc -l < {starts}) -gt 1 || exec sleep 0.3"
        supervisor.start("web", sh(f"{turn}; exec sleep 1000"))
        supervisor.wait_until(
            lambda: written(starts) and len(starts.read_text(encoding="ascii").split()) == 2,
            what="web did not come back",
            seconds=DEADLINE_SECONDS,
        )
    assert "web ended with exit code 0: it is started again" in caplog.text


def test_a_process_that_is_killed_at_once_is_started_again_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    starts, other = tmp_path / "starts", tmp_path / "other"
    with Supervisor(
        tmp_path, tmp_path / "logs", os.environ, stop_seconds=5, pause_seconds=0
    ) as supervisor:
        supervisor.start("web", sh(f"echo $$ > {other}; exec sleep 1000"))
        supervisor.wait_until(lambda: written(other), what="web", seconds=DEADLINE_SECONDS)
        turn = f"echo up >> {starts}; test $(wc -l < {starts}) -gt 1 || kill -9 $$"
        supervisor.start("worker", sh(f"{turn}; exec sleep 1000"))
        supervisor.wait_until(
            lambda: written(starts) and len(starts.read_text(encoding="ascii").split()) == 2,
            what="worker did not come back",
            seconds=DEADLINE_SECONDS,
        )
        assert runs(int(other.read_text(encoding="ascii")))


def test_running_to_the_end_gives_the_exit_code(supervisor: Supervisor) -> None:
    with supervisor:
        supervisor.start("well", FOREVER)
        assert supervisor.run("step", sh("exit 7")) == 7


def test_a_step_is_cut_short_when_another_process_ends(supervisor: Supervisor) -> None:
    with supervisor:
        supervisor.start("lab", sh("exit 1"))
        with pytest.raises(ProcessEnded, match="lab ended with exit code 1"):
            supervisor.run("step", FOREVER)


def test_what_never_becomes_ready_is_said(supervisor: Supervisor) -> None:
    with pytest.raises(NotReady, match="the web server did not answer within 0 s"), supervisor:
        supervisor.wait_until(lambda: False, what="the web server did not answer", seconds=0.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it(supervisor: Supervisor, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with supervisor:
        supervisor.start("well", FOREVER)
        signal.raise_signal(number)
        with pytest.raises(Stopped, match=number.name):
            supervisor.wait()
    assert signal.getsignal(number) is before


def lines_waited(folder: Path, *, signal_at: int) -> int:
    """Wait for two turns, with a signal before a given line of Python; return how many there are.

    Raises AssertionError when the signal does not stop it.
    """
    lines = 0

    def trace(_frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line"
        if event == "line" and lines == signal_at:
            signal.raise_signal(signal.SIGTERM)
        return trace

    turns = iter((False, True))
    before = sys.gettrace()

    def wait(supervisor: Supervisor) -> None:
        sys.settrace(trace)
        try:
            supervisor.wait_until(lambda: next(turns), what="it", seconds=60)
        finally:
            sys.settrace(before)
        signal.raise_signal(signal.SIGTERM)  # where the wait was over before its line came
        supervisor.wait()

    with Supervisor(folder, folder, os.environ) as supervisor, pytest.raises(Stopped):
        wait(supervisor)
    return lines


def test_a_signal_at_any_moment_of_pending_stops_it_without_an_error(tmp_path: Path) -> None:
    at = 1
    while lines_waited(tmp_path, signal_at=at) >= at:
        at += 1
    assert at > 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a dead parent")
def test_nothing_is_left_behind_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = f"""
        import os
        from pathlib import Path
        from apps.operations.management.supervisor import Supervisor
        here = Path({str(tmp_path)!r})
        with Supervisor(here, here, os.environ) as supervisor:
            supervisor.start("child", ["/bin/sh", "-c", "echo $$ > {pid}; exec sleep 1000"])
            supervisor.wait()
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)]) as parent:  # noqa: S603 - the text above
        until(lambda: written(pid))
        parent.kill()
    child = int(pid.read_text(encoding="ascii"))
    until(lambda: not runs(child))
