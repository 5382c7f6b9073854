"""A live server that answers inside the test's transaction, so that nothing has to be emptied."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, cast

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.servers.basehttp import ThreadedWSGIServer
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connections
from django.test.testcases import LiveServerThread

Application = Callable[[Any, Any], Iterable[bytes]]


class _Server(ThreadedWSGIServer):
    def _close_connections(self) -> None:
        """Keep what the test's thread lent: its transaction would end."""


class _Thread(LiveServerThread):
    server_class = _Server


@contextmanager
def connections_left_open() -> Iterator[None]:
    """Keep Django from closing, around a request, a connection that is in a transaction."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    try:
        yield
    finally:
        for signal in signals:
            signal.connect(close_old_connections)


class Gate:
    """Lets requests in one after the other: savepoints of two would mix in one connection.

    It is open during a test. A page may still ask when its test is over and rolled back.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_open = False

    def to(self, application: Application) -> Application:
        """Return the application behind the gate."""

        def answer(environ: Any, start_response: Any) -> list[bytes]:
            with self._lock, connections_left_open():
                if not self._is_open:
                    start_response("503 Service Unavailable", [])
                    return []
                response = application(environ, start_response)
                try:
                    return list(response)
                finally:
                    if hasattr(response, "close"):
                        response.close()

        return answer

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let requests in; at the end, wait for the last and let in no more."""
        self._is_open = True
        try:
            yield
        finally:
            with self._lock:
                self._is_open = False


@contextmanager
def serving_in_transaction(gate: Gate) -> Iterator[str]:
    """Serve the portal from this thread's connection behind the gate; yield the address.

    What waits for a commit is never sent: it is for tests that do not look at it.
    """
    lent = {one.alias: one for one in connections.all()}
    for connection in lent.values():
        connection.inc_thread_sharing()
    thread = _Thread(
        "localhost",
        static_handler=cast("Any", lambda application: gate.to(StaticFilesHandler(application))),
        connections_override=lent,
    )
    thread.daemon = True
    thread.start()
    thread.is_ready.wait()
    assert thread.error is None
    try:
        yield f"http://localhost:{thread.port}"
    finally:
        thread.terminate()
        for connection in lent.values():
            connection.dec_thread_sharing()
