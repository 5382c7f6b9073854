"""Asks a lab that serves on loopback, as a client would."""

import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from simulator.clock import PinnedClock
from simulator.scenarios.base import Scenario
from simulator.server import LabServer

DEADLINE_SECONDS = 20.0
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Client:
    """Asks one server; an error status is an answer too."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._place = urllib.parse.urlsplit(url).netloc

    @contextmanager
    def open(
        self, path: str, *, method: str = "GET", body: str = "", content_type: str = ""
    ) -> Iterator[HTTPResponse]:
        """Yield the answer before its body is read."""
        connection = HTTPConnection(self._place, timeout=DEADLINE_SECONDS)
        try:
            headers = {"Content-Type": content_type} if content_type else _FORM
            connection.request(method, path, body=body, headers=headers)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def raw(self, path: str, **parameters: object) -> tuple[int, bytes]:
        """Return status and body."""
        with self.open(with_query(path, **parameters)) as response:
            return response.status, response.read()

    def get(self, path: str, **parameters: object) -> Any:
        """Return the JSON of an answer of whatever status."""
        return json.loads(self.raw(path, **parameters)[1])

    def post(self, path: str, **form: object) -> Any:
        with self.open(path, method="POST", body=urllib.parse.urlencode(form)) as response:
            return json.loads(response.read())


class Served(Client):
    """A client with the clock of its server in hand."""

    def __init__(self, url: str, clock: PinnedClock) -> None:
        super().__init__(url)
        self.clock = clock


def with_query(path: str, **parameters: object) -> str:
    return f"{path}?{urllib.parse.urlencode(parameters)}" if parameters else path


@contextmanager
def serving(scenario: Scenario, now: float) -> Iterator[Served]:
    """Serve a scenario with its clock pinned at `now` (Unix seconds)."""
    clock = PinnedClock(round(now * 1000))
    with LabServer(scenario, clock) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Served(server.url, clock)
        finally:
            server.stop()
            thread.join(DEADLINE_SECONDS)
