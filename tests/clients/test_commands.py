"""The command line against a running portal: what it asks, what it writes, and what goes wrong."""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from gpuportal_client import settings as client_settings
from gpuportal_client import tables
from gpuportal_client.commands import app
from gpuportal_client.completion import main as complete
from gpuportal_client.output import duration, printable, short
from typer.main import get_command

from tests.api.test_schema import COMMITTED
from tests.clients.conftest import Run, Running

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  template:
    spec:
      containers: [{name: main, resources: {limits: {nvidia.com/gpu: %s}}}]
"""


def documented(running: Running) -> None:
    """Check that all that was asked is in the OpenAPI document, parameters and members too."""
    document = yaml.safe_load(COMMITTED.read_text(encoding="utf-8"))
    schemas = document["components"]["schemas"]
    assert running.asked
    for method, path, named in running.asked:
        # Neither describes itself.
        if path in {"/api/schema/", "/api/v1/"}:
            continue
        template = "/".join("{id}" if part.isdigit() else part for part in path.split("/"))
        operation = document["paths"][template][method.lower()]
        known = {parameter["name"] for parameter in operation.get("parameters", [])}
        body = operation.get("requestBody")
        if body:
            ref = body["content"]["application/json"]["schema"]["$ref"]
            known |= set(schemas[ref.rpartition("/")[2]]["properties"])
        assert named <= known, (method, path)


def test_each_list_is_a_table_and_whole_in_files(running: Running, run: Run) -> None:
    for words in (
        ("why", "-A"),
        ("queue", "-A"),
        ("quotas",),
        ("requests", "--which", "all"),
        ("usage", "--by", "team,tier"),
        ("waste", "--by", "tier"),
        ("serving", "-A", "--by", "model,tier,team"),
        ("list", "tiers"),
        ("list", "quotas", "source=ResourceQuota"),
    ):
        rows = json.loads(run(*words, "-o", "json").out)
        assert rows, words
        assert [list(row) for row in yaml.safe_load(run(*words, "-o", "yaml").out)] == [
            list(row) for row in rows
        ]
        cells = list(csv.DictReader(run(*words, "-o", "csv").out.splitlines()))
        assert len(cells) == len(rows)
        table = run(*words, "-o", "table")
        assert table.code == 0
        assert table.out.count("\n") > len(rows)
        assert "Traceback" not in table.err
    documented(running)


def test_the_kubeconfig_is_the_scope_unless_told(
    running: Running, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "kubeconfig"

    def listed(*words: str) -> list[tuple[str, str]]:
        rows = json.loads(run("queue", *words, "-o", "json").out)
        return [(row["namespace"], row["name"]) for row in rows]

    one = json.loads(run("queue", "-o", "json").out)[0]
    everything = listed()
    context = {"cluster": one["cluster"], "namespace": one["namespace"]}
    contexts = [{"name": "here", "context": context}, {"name": "there", "context": {}}]
    config.write_text(yaml.safe_dump({"current-context": "here", "contexts": contexts}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/absent:{config}")
    assert listed() == [found for found in everything if found[0] == one["namespace"]]
    assert listed("-A") == everything
    assert one["message"] in run("why", one["name"]).out
    assert "is not pending in namespace elsewhere" in run("why", "x", "-n", "elsewhere").err
    for broken, told in (("[1", "is no YAML, line 1"), ("[1, 2]", "something else than settings")):
        config.write_text(broken)
        assert told in run("queue").err
    config.write_text(
        yaml.safe_dump({"current-context": "here", "contexts": [3, {"name": "here"}]})
    )
    assert "Nothing is pending in namespace default" in run("queue").err
    config.write_text(yaml.safe_dump({"current-context": "there", "contexts": contexts}))
    assert "Nothing is pending in namespace default" in run("queue").err


def test_a_figure_is_explained_by_its_equation(running: Running, run: Run) -> None:
    words = ("explain", "allocated_gpu_hours")
    (row,) = json.loads(run(*words, "-o", "json").out)
    (whole,) = json.loads(run("usage", "--by", "", "-o", "json").out)
    assert (row["value"], row["holds"]) == (whole["allocated_gpu_hours"], True)
    text = run(*words).out
    assert "allocated" in text
    assert "adds up      yes" in text
    assert "is no figure of usage" in run("explain", "nonsense").err
    documented(running)


def test_preflight_answers_and_scripts_see_it(running: Running, run: Run, tmp_path: Path) -> None:
    pending = json.loads(run("queue", "-o", "json").out)[0]
    where = ("--cluster", pending["cluster"], "-n", pending["namespace"])
    file = tmp_path / "job.yaml"
    file.write_text(JOB % 1000)
    (result,) = json.loads(run("preflight", str(file), *where, "-o", "json").out)
    assert result["verdict"] == "never"
    told = run("preflight", str(file), *where, "--check")
    assert f" in {result['pods']} pod" in told.out
    assert "1 pods" not in told.out
    assert (told.code, result["explanation"] in told.out) == (4, True)
    assert run("preflight", "-", *where, stdin=JOB % "[").code == 1
    assert "cannot be read" in run("preflight", f"{tmp_path}/absent", *where).err
    assert "The manifest is empty" in run("preflight", "-", *where).err
    assert "is no list" in run("list", "../admin").err
    documented(running)


def test_a_request_is_written_and_submitted(
    running: Running, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = json.loads(run("quotas", "-o", "json").out)
    quota = next(row for row in rows if row["source"] == "ResourceQuota" and row["hard"])
    words = ("request", quota["key"], "--to", f"{quota['hard'] + 3:g}", "--reason", "A deadline.")
    where = ("--cluster", quota["cluster"], "-n", quota["namespace"])
    assert run(*words, *where, stdin="n\n").code == 1
    asked = [method for method, _, _ in running.asked]
    assert "POST" not in asked
    draft = run(*words, *where, "--draft")
    assert ", draft:" in draft.out, draft
    monkeypatch.setenv("GPUPORTAL_TOKEN", running.stocked.tokens["reader"])
    assert "needs scope" in run(*words, *where, "--yes").err
    assert "has the key nonsense" in run("request", "nonsense", *words[2:], *where).err
    documented(running)


def test_sign_in_keeps_the_token_for_its_address_alone(
    running: Running, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUPORTAL_URL")
    monkeypatch.delenv("GPUPORTAL_TOKEN")
    assert "Sign in once" in run("queue").err
    refused = run("login", running.url, stdin="wrong\n")
    assert (refused.code, "does not accept the token" in refused.err) == (1, True)
    assert not client_settings.account_file().exists()
    assert run("login", f"{running.url}/", stdin=running.stocked.tokens["lead"] + "\n").code == 0
    assert client_settings.account_file().stat().st_mode & 0o077 == 0
    assert run("queue").code == 0
    assert "No token for http://127.0.0.1:9" in run("queue", "--url", "http://127.0.0.1:9").err
    assert "is no address" in run("queue", "--url", "portal").err
    assert "no token has" in run("login", running.url, stdin="ключ\n").err


@contextmanager
def answering(status: int, body: str, headers: dict[str, str]) -> Iterator[str]:
    """Serve one answer to everything on a free port; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            # Read it all: with a rest of it the connection ends in a reset.
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


UNKNOWN = json.dumps(
    {"status": 404, "detail": "There is nothing here: /api/v1/ lists the endpoints."}
)


@pytest.mark.parametrize(
    ("status", "body", "headers", "told"),
    [
        (404, UNKNOWN, {}, "older than this client"),
        (404, "<html>", {}, "it is no gpuportal"),
        (200, "{}", {}, "is no list of gpuportal"),
        (302, "", {"Location": "https://elsewhere.example/"}, "The token is not sent there"),
        (429, '{"detail": "Too many."}', {"Retry-After": "7"}, "Too many. Try again in 7 s."),
        (400, '{"detail": "x: is not a parameter here"}', {}, "may be older than this client"),
        (500, "[]", {}, "answers 500: the portal, or a proxy before it, is in trouble"),
        (502, "<html>", {}, "answers 502: the portal, or a proxy before it, is in trouble"),
        (403, "<html>", {}, "answers 403 with something else than JSON"),
    ],
)
def test_each_fault_of_a_server_has_a_sentence(
    run: Run,
    status: int,
    body: str,
    headers: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUPORTAL_TOKEN", "x" * 40)
    with answering(status, body, headers) as url:
        ran = run("requests", "--url", url)
    assert (ran.code, told in ran.err, ran.err.count("\n")) == (1, True, 1), ran.err
    gone = run("requests", "--url", url)
    assert "cannot be reached: check --url, your network" in gone.err


def test_texts_of_the_cluster_do_not_steer_the_terminal() -> None:
    assert printable("a\x1b[31mb\nc") == "a [31mb c"
    assert [short(n) for n in (None, 0, 999, 79_200, 431_800_000, 1_101_771_535)] == [
        *("", "0", "999", "79.2 k", "431.8 M", "1.1 G")
    ]
    assert [duration(s) for s in (None, 0, 59, 3646, 10_800, 90_061)] == [
        *("", "0s", "59s", "1h", "3h", "1d 1h")
    ]


CLIENT = COMMITTED.parents[1] / "clients"
PROGRAMS = {"gpuportal", "kubectl-gpuportal", "kubectl_complete-gpuportal"}
DOCUMENT = COMMITTED.parent / "how-to" / "ask-from-a-terminal.md"
HEADS = {
    "queue": tables.PENDING,
    "usage": tables.grouped("workload", tables.USAGE),
    "waste": tables.grouped("team", tables.WASTE),
    "serving": tables.grouped("model", tables.SERVING),
    "quotas": tables.QUOTAS,
    "requests": tables.REQUESTS,
}


def documented_outputs() -> dict[str, list[str]]:
    """Return the lines of output below each command that the document shows."""
    found: dict[str, list[str]] = {}
    for block in re.findall(r"(?:^    .*\n|^\n(?=    [^$]))+", DOCUMENT.read_text("utf-8"), re.M):
        for part in re.split(r"^    \$ gpuportal ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found[command] = [line.removeprefix("    ") for line in output.splitlines() if line]
    return found


def test_the_documents_show_each_command_with_options_that_it_has() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    shown = [
        shlex.split(line) for line in re.findall(r"^    \$? ?gpuportal (.*)", text, re.MULTILINE)
    ]
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert {words[0] for words in shown} | {"mcp"} == set(commands)
    for words in shown:
        command = commands[words[0]]
        assert command.make_context(words[0], words[1:]).params


def test_the_documents_show_the_columns_that_commands_have() -> None:
    outputs = documented_outputs()
    assert all(outputs.values()), "each command has its output"
    for command, columns in HEADS.items():
        shown = next(lines for words, lines in outputs.items() if shlex.split(words)[0] == command)
        known = [column.heading for column in columns]
        heads = re.split(r" {2,}", shown[shown[0].startswith("Window: ")].strip())
        # Columns without a value in any row are left out, the others are in their order.
        assert heads == [head for head in known if head in heads], command
        assert len(heads) > len(known) / 2


def test_kubectl_completes_commands_options_and_formats(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def completed(*words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["kubectl_complete-gpuportal", *words])
        complete()
        return capsys.readouterr().out.splitlines()

    assert completed("qu") == ["queue", "quotas", ":4"]
    assert {"why", "serving", "mcp", ":4"} <= set(completed(""))
    assert completed("usage", "--s") == ["--start", ":4"]
    assert completed("usage", "-o", "") == ["csv", "json", "table", "yaml", ":4"]
    assert completed("preflight", "job") == [":0"], "names of files"
    assert completed("nonsense", "") == completed("why", "") == [":4"]


def test_the_programs_of_the_package_are_functions_that_it_has() -> None:
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))
    programs = project["project"]["scripts"]
    assert set(programs) == PROGRAMS
    for place in programs.values():
        module, _, name = place.partition(":")
        assert callable(getattr(import_module(module), name))
    assert project["tool"]["setuptools"]["packages"] == ["gpuportal_client"]
    # A folder of its own would be left out of the wheel without a word.
    modules = (CLIENT / "gpuportal_client").iterdir()
    assert {path.suffix for path in modules if path.name != "__pycache__"} == {".py"}


@pytest.mark.exhaustive
def test_the_package_installs_its_programs(tmp_path: Path) -> None:
    """Build the wheel as pipx does, with the build system of its own, and run its programs."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    # A copy: building writes into the folder.
    source = shutil.copytree(CLIENT, tmp_path / "clients")
    run_program(*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(source))
    (built,) = tmp_path.glob("gpuportal_client-*.whl")
    place = tmp_path / "installed"
    run_program(*pip, "install", "--no-deps", "--no-index", "--target", str(place), str(built))
    assert {path.name for path in (place / "bin").iterdir()} == PROGRAMS
    for name in ("gpuportal", "kubectl-gpuportal"):
        told = run_program(str(place / "bin" / name), "--help", PYTHONPATH=str(place))
        assert "preflight" in told
    complete_ = str(place / "bin" / "kubectl_complete-gpuportal")
    assert run_program(complete_, "pre", PYTHONPATH=str(place)) == "preflight\n:4\n"


def run_program(*words: str, **environment: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own words
        words, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
