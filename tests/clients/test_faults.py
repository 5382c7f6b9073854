"""What the client makes of strange servers, of a `.netrc`, and of texts that steer a terminal."""

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest
import yaml
from gpuportal_client.connection import Portal, PortalError
from gpuportal_client.output import Output, write_data
from gpuportal_client.queries import window, window_text

from apps.clusters.models import ReportSettings
from apps.clusters.selectors import report
from tests.alerts.servers import secured
from tests.clients.conftest import Run, Running
from tests.clients.test_commands import answering

TODAY = datetime.now().astimezone().date()
QUOTA: dict[str, Any] = {
    "cluster": "lab",
    "namespace": "a",
    "source": "ResourceQuota",
    "name": "gpus",
    "key": "k",
    "unit": "GPUs",
    "hard": 8,
}


@contextmanager
def speaking(answers: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Serve a text for each list by its name; yield the address and the credentials sent to it."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            if "Content-Length" in self.headers:
                self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            name = urlsplit(self.path).path.removeprefix("/api/v1/")
            self.wfile.write(answers.get(name, '{"results": []}').encode())

        do_POST = do_GET  # noqa: N815 - the name that the library calls

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def listing(*rows: Any) -> str:
    return json.dumps({"results": rows})


def test_the_token_is_sent_though_netrc_names_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login ada password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    with speaking({}) as (url, seen):
        assert Portal(url, "t" * 40).rows("tiers", {}) == []
        # Nor does a password in the address take its place.
        Portal(url.replace("//", "//ada:secret@"), "t" * 40).post("preflight", {})
    assert seen == [f"Token {'t' * 40}"] * 2


DEEP = '{"results": [' + "[" * 60_000 + "]" * 60_000 + "]}"
NESTED = listing({"a": json.loads("[" * 200 + "]" * 200)})


@pytest.mark.parametrize(
    ("words", "answers", "told"),
    [
        (("requests",), {"quota-requests": '{"results": [{}], "next": 5}'}, "names no next page"),
        (("requests",), {"quota-requests": '{"results": [], "next": "//["}'}, "no next page"),
        (("requests",), {"quota-requests": '{"results": [], "next": "?a=1"}'}, "no next page"),
        (("requests",), {"quota-requests": listing(1, "x")}, "is no list of gpuportal"),
        (("requests",), {"quota-requests": DEEP}, "something else than JSON"),
        (("list", "tiers"), {"tiers": NESTED}, "something else than JSON"),
        (("requests",), {"quota-requests": listing({"changed_at": "soon"})}, "“changed_at” is"),
        (("usage",), {"usage": listing({"allocated_gpu_hours": "much"})}, "“allocated_gpu_hours”"),
        (("usage",), {"usage": listing({"tier": "a"})}, "“allocated_gpu_hours” of a row"),
        (("usage",), {"usage": '{"results": [{"allocated_gpu_hours": NaN}]}'}, "is no number"),
        (("waste",), {"waste": listing({"cost": "dear"})}, "“cost” of a row is no money"),
        (("serving",), {"serving": listing({"cost_per_million_tokens": "x"})}, "“cost_per_m"),
        (("serving",), {"serving": listing({"use": ["x"]})}, "“use” is"),
        (("quotas",), {"quotas": listing({**QUOTA, "used": {}})}, "“used” is '{}'"),
        (("queue",), {"clusters": listing({"title": "x"})}, "“name” of a row is no text"),
        (("why", "x"), {"pending": listing({"name": 3})}, "does not fit this client"),
        (("explain",), {}, "does not fit this client"),
        (
            ("preflight", "-", "--cluster", "lab", "-n", "a"),
            {"preflight": listing({"kind": "Job", "quotas": 3})},
            "does not fit this client",
        ),
        (("preflight", "-", "--cluster", "lab", "-n", "a"), {"preflight": "{}"}, "no results"),
        (
            ("request", "k", "--to", "9", "--reason", "x", "--yes"),
            {"quotas": listing({**QUOTA, "hard": None})},
            "k of lab/a/gpus has no limit",
        ),
        (
            ("request", "k", "--to", "9", "--reason", "x", "--yes"),
            {"quotas": listing(QUOTA), "quota-requests": "{}"},
            "“id” of a row is no number",
        ),
        (
            ("request", "k", "--to", "9", "--reason", "x", "--yes"),
            {"quotas": listing(QUOTA, {**QUOTA, "namespace": "b", "name": "more"})},
            "Several quotas have this key; name one with -n: lab/a/gpus, lab/b/more.",
        ),
        (
            ("request", "k", "--to", "9", "--reason", "x", "--yes"),
            {"quotas": listing(QUOTA, {**QUOTA, "name": "more"})},
            "name one with --quota: lab/a/gpus, lab/a/more.",
        ),
        (("usage", "--end", "0001-01-03"), {}, "“0001-01-03” is no date to end a window"),
        (("usage", "--end", "soon"), {}, "“soon” is no date to end a window"),
        (("usage",), {"": '{"today": "soon"}'}, "“today” is no date but 'soon'"),
    ],
)
def test_a_strange_answer_is_one_sentence(
    run: Run,
    words: tuple[str, ...],
    answers: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUPORTAL_TOKEN", "x" * 40)
    with speaking(answers) as (url, _):
        ran = run(*words, "--url", url, stdin="kind: Job")
    assert (ran.code, told in ran.err, ran.err.count("\n")) == (1, True, 1), ran.err


def test_names_and_grades_are_no_figures(running: Running, run: Run) -> None:
    for name in ("grades", "tier", "period"):
        told = run("explain", name)
        assert (told.code, "is no figure of usage" in told.err) == (1, True)
        assert "allocated_gpu_hours" in told.err


def test_without_an_end_the_window_is_that_of_the_pages(running: Running, run: Run) -> None:
    """The days with both ends, as the page of usage shows them: today is the last of seven."""
    today = datetime.now(report().zone).date()
    first, after = today - timedelta(6), today + timedelta(1)
    portal = Portal(running.url, running.stocked.tokens["lead"])
    assert window(portal, "", "") == {"start": str(first), "end": str(after)}
    for command in ("usage", "waste", "serving"):
        table = run(command, "-A", "--end", str(after))
        assert table.out.startswith(f"Window: {first} to {today}\n"), command
        assert "Window" not in run(command, "-A", "-o", "csv").out
    assert run("explain").out.startswith("Window: ")
    nothing = run("usage", "--start", "2020-01-01", "--end", "2020-01-02")
    assert "(Window: 2020-01-01)" in nothing.err
    times = {"start": "2026-03-28T06:00Z", "end": "2026-03-28T09:00Z"}
    assert window_text(times) == "From 2026-03-28T06:00Z until 2026-03-28T09:00Z"


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_portal_tells_the_day_of_its_reports(running: Running, zone: str) -> None:
    # At any time, the days of these two zones differ: the clock of a machine fits one at most.
    ReportSettings.objects.update(time_zone=zone)
    times = window(Portal(running.url, running.stocked.tokens["lead"]), "", "")
    today = datetime.now(ZoneInfo(zone)).date()
    assert times["end"] == str(today + timedelta(1))


def test_today_is_the_day_of_the_portal_and_not_of_this_machine() -> None:
    with speaking({"": '{"time_zone": "Pacific/Kiritimati", "today": "2031-01-03"}'}) as (
        url,
        seen,
    ):
        portal = Portal(url, "x" * 40)
        assert window(portal, "", "") == {"start": "2030-12-28", "end": "2031-01-04"}
        assert window(portal, "2031-01-01", "") == {"start": "2031-01-01", "end": "2031-01-04"}
        before = len(seen)
        assert window(portal, "", "2031-01-02")["start"] == "2030-12-26"
        assert len(seen) == before, "an end that is given needs no request"
    with speaking({"": '{"usage": "an older portal tells no day"}'}) as (url, _):
        assert window(Portal(url, "x" * 40), "", "")["end"] == str(TODAY + timedelta(1))


STEERING = "a\x1b[31m\x9b2J\u202eé\ud800"


def test_rows_on_a_terminal_do_not_steer_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"na\x1bme": STEERING, "list": [STEERING]}]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for output in (Output.JSON, Output.CSV, Output.YAML):
        write_data(rows, output)
        written = capsys.readouterr().out.replace("\r\n", "\n")
        assert all(c.isprintable() or c == "\n" for c in written), output
        assert "x1b" in written or "u001b" in written or "\\e" in written
        if output is Output.JSON:
            assert json.loads(written) == rows


def test_rows_in_a_pipe_keep_every_character(capsys: pytest.CaptureFixture[str]) -> None:
    text = STEERING.removesuffix("\ud800")
    for output in (Output.JSON, Output.CSV, Output.YAML):
        write_data([{"name": text}], output)
        written = capsys.readouterr().out
        readers: dict[Output, Callable[[str], Any]] = {
            Output.JSON: json.loads,
            Output.YAML: yaml.safe_load,
            Output.CSV: lambda out: list(csv.DictReader(out.splitlines())),
        }
        assert readers[output](written) == [{"name": text}]


def test_half_a_character_does_not_end_the_output(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPORTAL_TOKEN", "x" * 40)
    with speaking({"tiers": '{"results": [{"name": "\\ud800"}]}'}) as (url, _):
        ran = run("list", "tiers", "--url", url)
    assert json.loads(ran.out) == [{"name": "\ud800"}]


def test_what_is_asked_before_a_request_is_printable(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPORTAL_TOKEN", "x" * 40)
    words = ("request", "k", "--to", "9", "--reason", "x")
    with speaking({"quotas": listing({**QUOTA, "unit": "GPU\x1b[2J"})}) as (url, _):
        ran = run(*words, "--url", url, stdin="n\n")
    assert "8 → 9 GPU [2J. Submit the request?" in ran.err
    assert "\x1b" not in ran.out + ran.err


def test_requests_take_the_options_of_the_other_lists(running: Running, run: Run) -> None:
    words = ("requests", "--which", "all", "-o", "json")
    rows = json.loads(run(*words).out)
    assert json.loads(run(*words, "-A").out) == rows
    one = rows[0]
    narrowed = json.loads(run(*words, "--cluster", one["cluster"], "-n", one["namespace"]).out)
    assert one in narrowed
    assert {row["namespace"] for row in narrowed} == {one["namespace"]}


def test_an_empty_list_says_for_whom_it_is(running: Running, run: Run) -> None:
    told = run("list", "reliability")
    assert json.loads(told.out) == []
    assert "reliability has no rows that you see." in told.err
    assert "for who sees all teams" in told.err
    assert run("list", "reliability", "-o", "table").err == told.err


def test_a_refused_token_is_told_once_how_to_be_replaced(
    run: Run,
) -> None:
    detail = "This token was revoked. Make another on the page “Your tokens”."
    with (
        answering(401, json.dumps({"detail": detail}), {}) as url,
        pytest.raises(PortalError) as told,
    ):
        Portal(url, "x" * 40).rows("tiers", {})
    assert str(told.value) == (
        f"{url} does not accept the token: This token was revoked. Make one at {url}/tokens/, "
        f"then: gpuportal login {url}"
    )


def test_what_a_machine_lacks_is_one_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A home that cannot be written, an odd kubeconfig, a missing file of authorities."""

    def told(*words: str, stdin: str = "") -> str:
        ran = run(*words, stdin=stdin)
        assert (ran.code, ran.err.count("\n")) == (1, 1), ran.err
        return ran.err

    with speaking({}) as (url, _):
        (tmp_path / ".config").write_text("no folder", encoding="utf-8")
        refused = run("login", url, stdin="x\n").err
        assert "account.yaml cannot be written: Not a directory. Set GPUPORTAL_URL" in refused
        (tmp_path / ".config").unlink()
        monkeypatch.setenv("GPUPORTAL_TOKEN", "x")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        for odd in ("since: 2026-13-45", "a: " + "[" * 9_000):
            (tmp_path / "kubeconfig").write_text(odd, encoding="utf-8")
            assert "kubeconfig cannot be read: " in told("queue", "--url", url)
        monkeypatch.delenv("KUBECONFIG")
        secure = url.replace("http:", "https:")
        answer = told("queue", "--url", secure)
        assert f"{secure} does not speak TLS as this client does: check whether its add" in answer
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "absent.pem"))
        assert "REQUESTS_CA_BUNDLE names no file to read" in told("queue", "--url", secure)
        assert "is no address of a portal" in told("queue", "--url", f"{url}/?page=1")


def test_a_certificate_that_is_not_accepted_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        trusted = secured(server, tmp_path)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        portal = Portal(f"https://127.0.0.1:{server.server_port}", "x")
        with pytest.raises(PortalError, match=r"is not accepted\. Set REQUESTS_CA_BUNDLE to the"):
            portal.rows("tiers", {})
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
        with pytest.raises(PortalError, match="answers 501"):
            portal.rows("tiers", {})
        server.shutdown()
        thread.join()
