"""Asks a lab that serves on loopback, as a client would."""

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

from apps.lab.clock import PinnedClock
from apps.lab.scenarios.base import Scenario
from apps.lab.server import LabServer

DEADLINE_SECONDS = 20.0


class Client:
    """GETs and POSTs to one server; an error status is an answer too."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, path: str, **parameters: object) -> HTTPResponse:
        """Return the open response, to be read and closed by the caller."""
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        response: HTTPResponse = urllib.request.urlopen(
            f"{self.url}{path}{query}", timeout=DEADLINE_SECONDS
        )
        return response

    def raw(self, path: str, **parameters: object) -> tuple[int, bytes]:
        try:
            with self.open(path, **parameters) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def get(self, path: str, **parameters: object) -> Any:
        """Return the JSON of an answer of whatever status."""
        return json.loads(self.raw(path, **parameters)[1])

    def post(self, path: str, **form: object) -> Any:
        body = urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=body, method="POST")
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as response:
            return json.loads(response.read())


class Served(Client):
    """A client with the clock of its server in hand."""

    def __init__(self, url: str, clock: PinnedClock) -> None:
        super().__init__(url)
        self.clock = clock


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
