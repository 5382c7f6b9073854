"""A real Prometheus for tests, loaded from an OpenMetrics file, on a free port of 127.0.0.1."""

import json
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml
from msgspec import Struct

from tests.programs import find

_READY = "Server is ready to receive web requests"
_DEADLINE_SECONDS = 60.0
_ATTEMPTS = 3


class PrometheusNotStarted(RuntimeError):
    """The server ended, or said nothing for too long, before it was ready."""


class RealPrometheus(Struct, frozen=True):
    """A server that is running; `url` is where."""

    url: str

    @classmethod
    @contextmanager
    def loaded(cls, openmetrics: Path) -> Iterator["RealPrometheus"]:
        """Serve the samples of an OpenMetrics file (with timestamps, ending in `# EOF`)."""
        with tempfile.TemporaryDirectory(prefix="prometheus-") as folder:
            data = Path(folder) / "data"
            _create_blocks(openmetrics, data)
            with _serving(data, Path(folder), {"global": {}}) as url:
                yield cls(url)

    @classmethod
    @contextmanager
    def configured(cls, config: Mapping[str, Any]) -> Iterator["RealPrometheus"]:
        """Serve what the server scrapes and evaluates by itself."""
        with (
            tempfile.TemporaryDirectory(prefix="prometheus-") as folder,
            _serving(Path(folder) / "data", Path(folder), config) as url,
        ):
            yield cls(url)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression is now."""
        return list(self.answer("query", query=expression)["result"])

    def answer(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the API."""
        asked = f"{self.url}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(asked, timeout=_DEADLINE_SECONDS) as answer:  # noqa: S310
            return json.load(answer)["data"]


def _create_blocks(openmetrics: Path, data: Path) -> None:
    data.mkdir()
    done = subprocess.run(  # noqa: S603 - fixed words and paths of ours
        [find("promtool"), "tsdb", "create-blocks-from", "openmetrics", openmetrics, data],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise PrometheusNotStarted(f"promtool refused {openmetrics}: {done.stderr[-2000:]}")


@contextmanager
def _serving(data: Path, folder: Path, settings: Mapping[str, Any]) -> Iterator[str]:
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(dict(settings)), encoding="utf-8")
    server, url = _started(data, config)
    try:
        yield url
    finally:
        server.terminate()
        try:
            server.wait(timeout=_DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        if server.stderr is not None:
            server.stderr.close()


def _started(data: Path, config: Path) -> tuple[subprocess.Popen[str], str]:
    """Start the server; again on another port where somebody took ours in between."""
    said = ""
    for _ in range(_ATTEMPTS):
        port = _free_port()
        server = subprocess.Popen(  # noqa: S603 - fixed words and paths of ours
            [
                str(find("prometheus")),
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=info",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        ready, said = _wait_until_ready(server)
        if ready:
            return server, f"http://127.0.0.1:{port}"
        server.kill()
        server.wait()
    raise PrometheusNotStarted(said)


def _wait_until_ready(server: subprocess.Popen[str]) -> tuple[bool, str]:
    """Read the log to the line that says so; then on in the background, or its pipe fills."""
    log = server.stderr
    if log is None:
        raise PrometheusNotStarted("no log")
    # The end of the process ends its log, and with it the reading.
    timer = threading.Timer(_DEADLINE_SECONDS, server.kill)
    timer.start()
    said: list[str] = []
    try:
        for line in log:
            said.append(line)
            if _READY in line:
                threading.Thread(target=_drain, args=(log,), daemon=True).start()
                return True, ""
    finally:
        timer.cancel()
    log.close()
    return False, "".join(said)[-2000:]


def _drain(log: Iterator[str]) -> None:
    try:
        for _ in log:
            pass
    except ValueError:
        # Closed while we waited for the next line.
        return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
