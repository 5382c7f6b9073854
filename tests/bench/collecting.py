"""Worker: one hour collected, beside `curl` downloading the same answers.

python -m tests.bench.collecting GPUS FOLDER
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import requests

from apps.usage.services import collect_window
from tests.bench.database import NOW, watched
from tests.bench.fleet import HOUR
from tests.bench.measuring import alternated, cpu, peak_mib, wall

IN_FLIGHT = 2


@contextmanager
def recorded(found: list[requests.PreparedRequest]) -> Iterator[None]:
    """Note every request that leaves this process."""
    send = requests.Session.send

    def noting(
        session: requests.Session, request: requests.PreparedRequest, **more: Any
    ) -> requests.Response:
        found.append(request)
        return send(session, request, **more)

    with patch.object(requests.Session, "send", noting):
        yield


def curl_config(wanted: list[requests.PreparedRequest], folder: Path) -> Path:
    """Write down the requests for `curl --config`: same bodies, same headers, answers dropped."""
    parts = []
    for number, request in enumerate(wanted):
        lines = [f'url = "{request.url}"', 'output = "/dev/null"']
        names = ("Accept-Encoding", "Accept", "Content-Type")
        lines += [f'header = "{n}: {request.headers[n]}"' for n in names if n in request.headers]
        if request.body:
            body = folder / f"body-{number}"
            text = request.body
            body.write_bytes(text.encode() if isinstance(text, str) else text)
            lines.append(f'data-binary = "@{body}"')
        parts.append("\n".join(lines))
    config = folder / "curl.conf"
    config.write_text("\nnext\n".join(parts) + "\n", encoding="utf-8")
    return config


def downloaded(config: Path, *more: str) -> str:
    """Download all, two at a time; return what curl was asked to print."""
    parallel = ["--parallel", "--parallel-max", str(IN_FLIGHT)]
    command = ["curl", "--silent", "--show-error", *parallel, *more, "--config", str(config)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    return done.stdout


def sizes(wanted: list[requests.PreparedRequest], folder: Path) -> list[int]:
    """Return the bytes of each answer. Raises RuntimeError when one of them is an error."""
    config = curl_config(wanted, folder)
    each = r'write-out = "%{http_code} %{size_download}\n"'
    text = config.read_text(encoding="utf-8").replace("output =", f"{each}\noutput =")
    noisy = folder / "curl-sizes.conf"
    noisy.write_text(text, encoding="utf-8")
    lines = [line.split() for line in downloaded(noisy).splitlines()]
    if any(code != "200" for code, _ in lines) or len(lines) != len(wanted):
        raise RuntimeError(f"curl was not answered as the portal was: {lines}")
    return [int(size) for _, size in lines]


def collect(name: str) -> None:
    """Collect the hour of a cluster. Raises RuntimeError unless it is complete."""
    (outcome,) = collect_window(name, HOUR, now=NOW)
    if outcome.state.value != "complete":
        raise RuntimeError(f"the hour came out {outcome.state}: {outcome.error}")


def measure(size: str, place: str) -> dict[str, Any]:
    """Return seconds of both, the worker's memory and CPU, and what was downloaded."""
    name, folder = watched(int(size)), Path(place)
    wanted: list[requests.PreparedRequest] = []
    with recorded(wanted):
        collect(name)
    config = curl_config(wanted, folder)
    runs = {"collect": lambda: collect(name), "curl": lambda: downloaded(config)}
    found = alternated(runs)
    pairs = zip(found["collect"], found["curl"], strict=True)
    return {
        "collect_seconds": wall(found["collect"]),
        "curl_seconds": wall(found["curl"]),
        "ratio": median(a.wall / b.wall for a, b in pairs),
        "cpu_seconds": cpu(found["collect"]),
        "peak_mib": peak_mib(),
        "requests": len(wanted),
        "bytes": sum(sizes(wanted, folder)),
    }
