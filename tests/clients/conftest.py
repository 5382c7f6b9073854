"""A running portal with rows in every list, and the client's command line against it."""

import io
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from gpuportal_client.commands import main
from msgspec import Struct
from pytest_django import Settings

from tests.api.stocked import Stocked, make_stocked, served_quota
from tests.shared_rows import shared
from tests.web.in_transaction import Gate, serving_in_transaction


class Ran(Struct, frozen=True):
    """What a command wrote, and its exit code."""

    out: str
    err: str
    code: int


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Return a function that runs the command line as a shell would, with a home of its own."""
    for name in ("GPUPORTAL_URL", "GPUPORTAL_TOKEN", "KUBECONFIG", "XDG_CONFIG_HOME", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def runner(*words: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "argv", ["gpuportal", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return Ran(written.out, written.err, int(ended.value.code or 0))

    return runner


@pytest.fixture(scope="session")
def _serving(django_db_setup: None) -> Iterator[tuple[str, Gate]]:
    gate = Gate()
    with serving_in_transaction(gate) as address:
        yield address, gate


class Running(Struct, frozen=True):
    """A portal at an address; `asked` are the requests so far: verb, path and parameters."""

    url: str
    stocked: Stocked
    asked: list[tuple[str, str, set[str]]]


_stocked = shared(make_stocked)


@pytest.fixture
def running(
    _stocked: Stocked,
    _serving: tuple[str, Gate],
    db: None,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> Iterator[Running]:
    """Yield the stocked portal, served, with the lead's token in the environment."""
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "localhost"]
    url, gate = _serving
    asked: list[tuple[str, str, set[str]]] = []
    send = requests.request

    def noted(method: str, address: str, **options: Any) -> requests.Response:
        named = {name for name, _ in options.get("params") or []} | set(options.get("json") or {})
        asked.append((method, urlsplit(address).path, named))
        return send(method, address, **options)

    monkeypatch.setattr(requests, "request", noted)
    stocked = deepcopy(_stocked)
    with served_quota(stocked), gate.open():
        monkeypatch.setenv("GPUPORTAL_URL", url)
        monkeypatch.setenv("GPUPORTAL_TOKEN", stocked.tokens["lead"])
        yield Running(url, stocked, asked)
