"""The `lab` command: serving as a process, exporting, listing and the catalog."""

import json
import os
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import yaml
from django.core.management import CommandError, call_command

from simulator.catalog import catalog_yaml
from simulator.scenarios.base import Scenario
from tests.simulator.client import Client
from tests.simulator.truths import truths

ROOT = Path(__file__).parents[2]
PINNED = "2026-11-21T20:26:40Z"
DEADLINE_SECONDS = 60


def out(*arguments: str) -> str:
    stdout = StringIO()
    call_command("lab", *arguments, stdout=stdout, stderr=StringIO())
    return stdout.getvalue()


def test_the_list_names_every_scenario() -> None:
    names = [line.split("\t")[0] for line in out("list").splitlines()]

    assert names == ["campus", "campus-failures", "helios", "openb", "reference"]


def serve(*arguments: str) -> subprocess.Popen[str]:
    """Start the command on a free port."""
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "manage.py", "lab", "serve", "--port", "0", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serving_prints_its_address_and_stops_when_told(number: signal.Signals) -> None:
    with serve("--scenario", "reference", "--now", PINNED) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        url = first.split()[-1]
        with Client(url).open("/api/v1/pods?watch=1") as watch:
            line = json.loads(watch.readline())
            process.send_signal(number)
            _, errors = process.communicate(timeout=DEADLINE_SECONDS)

    assert first.startswith("lab reference on http://127.0.0.1:")
    assert line["type"] == "ADDED"
    assert (process.returncode, errors) == (0, "")


@pytest.mark.long
def test_two_labs_with_the_same_clock_send_the_same_bytes() -> None:
    paths = (
        "/api/v1/pods?limit=5",
        "/api/v1/nodes",
        "/api/v1/resourcequotas",
        "/api/v1/query?query=kube_pod_info",
        "/api/v1/query?query=sum_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[30m])",
    )
    found = []
    for _ in range(2):
        with serve("--scenario", "reference", "--now", PINNED) as process:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            answers = []
            for path in paths:
                with Client(url).open(path) as answer:
                    answers.append((answer.read(), sorted(answer.headers.items())))
            found.append(answers)
            process.terminate()
            process.communicate(timeout=DEADLINE_SECONDS)

    assert found[0] == found[1]


def test_a_port_in_use_is_said_plainly() -> None:
    with serve("--scenario", "reference") as first:
        assert first.stdout is not None
        port = first.stdout.readline().rsplit(":", 1)[-1].strip()
        second = subprocess.run(  # noqa: S603 - our own command
            [
                sys.executable,
                "manage.py",
                "lab",
                "serve",
                "--scenario",
                "reference",
                "--port",
                port,
            ],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        first.terminate()
        first.communicate(timeout=DEADLINE_SECONDS)

    assert second.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in second.stderr
    assert "--port" in second.stderr


def test_the_catalog_fits_the_trace(helios: Scenario) -> None:
    catalog = yaml.safe_load(catalog_yaml(helios, url="http://127.0.0.1:1"))

    (cluster,) = catalog["clusters"]
    (tier,) = catalog["tiers"]
    quotas = {team["name"]: team["entitlements"][tier["name"]] for team in catalog["teams"]}
    assert cluster == {
        "name": "lab",
        "prometheus": {
            "url": "http://127.0.0.1:1",
            "matchers": {"cluster": "lab"},
            "scrape_interval_seconds": 30,
        },
        "kubernetes": {
            "api_server": "http://127.0.0.1:1",
            "writer": {"api_server": "http://127.0.0.1:1"},
        },
    }
    assert quotas == {team: f["quota_gpus"] for team, f in truths()["vc"].items()}
    assert [t["name"] for t in catalog["teams"] if t.get("leads") == ["ada"]] == ["vc6YE", "vcvlY"]
    assert catalog["prices"][0]["per_gpu_hour"] == "3.06"
    assert {n for t in catalog["teams"] for n in t["namespaces"]} <= {
        namespace.name for namespace in helios.namespaces
    }


def test_the_catalog_of_the_demo_has_a_carbon_factor_for_each_cluster() -> None:
    catalog = yaml.safe_load(out("catalog", "--scenario", "campus"))
    assert len(catalog["clusters"]) == 2
    for cluster in catalog["clusters"]:
        energy = cluster["energy"]
        assert (energy["pue"], energy["carbon_g_per_kwh"]) == ("1.3", "380"), cluster["name"]
        assert energy["valid_from"], "hours before the catalog was loaded have it, too"


def test_the_catalog_names_the_port_it_is_given() -> None:
    catalog = yaml.safe_load(out("catalog", "--scenario", "reference", "--port", "1234"))

    assert catalog["clusters"][0]["prometheus"]["url"] == "http://127.0.0.1:1234"
    assert [team["name"] for team in catalog["teams"]] == ["vision", "speech", "robotics"]


def test_an_export_is_openmetrics_of_its_span(tmp_path: Path) -> None:
    path = tmp_path / "out.om"
    out(
        "export", "--scenario", "reference", "--now", PINNED,
        "--start", "2026-11-21T10:00:00Z", "--end", "2026-11-21T10:30:00Z",
        "--output", str(path), "--metrics", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    )  # fmt: skip

    lines = path.read_text(encoding="utf-8").splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    times = sorted(float(line.rsplit(" ", 1)[1]) for line in samples)
    assert lines[0] == "# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge"
    assert lines[-1] == "# EOF"
    assert len(samples) == 32 * 60
    assert 1_795_255_200 <= times[0] < times[-1] < 1_795_257_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["catalog", "--scenario", "mars"], "no scenario 'mars'", id="scenario"),
        pytest.param(["serve", "--now", "noon"], "not a time", id="time"),
        pytest.param(["serve", "--now", "2026-01-01T00:00:00"], "no time zone", id="zone"),
        pytest.param(["catalog", "--data", "/none.csv"], "/none.csv", id="data"),
        pytest.param(
            ["export", "--start", PINNED, "--end", PINNED, "--output", "/none/x"],
            "--end must be after",
            id="empty span",
        ),
        pytest.param(
            [
                "export",
                "--scenario",
                "reference",
                "--start",
                PINNED,
                "--end",
                "2026-11-21T21:00:00Z",
                "--output",
                "x",
                "--metrics",
                "up",
            ],
            "no such metric: up",
            id="metric",
        ),
        pytest.param([], "ACTION", id="nothing"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        call_command("lab", *arguments, stdout=StringIO(), stderr=StringIO())


@pytest.mark.parametrize(
    ("text", "says"),
    [("noon", "GPUPORTAL_LAB_ORIGIN.*not a time"), ("2026-01-01T00:00:30Z", "whole minute")],
)
def test_an_origin_must_be_a_time(monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    monkeypatch.setenv("GPUPORTAL_LAB_ORIGIN", text)

    with pytest.raises(CommandError, match=says):
        out("catalog", "--scenario", "reference")


def test_the_environment_sets_the_origin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUPORTAL_LAB_ORIGIN", "2026-11-21T10:10:00Z")
    path = tmp_path / "out.om"
    out(
        "export", "--scenario", "reference", "--metrics", "kube_node_created",
        "--start", "2026-11-21T10:00:00Z", "--end", "2026-11-21T10:20:00Z",
        "--output", str(path),
    )  # fmt: skip

    samples = [s for s in path.read_text("utf-8").splitlines() if not s.startswith("#")]
    assert len(samples) == 8 * 20
    assert {line.rsplit(" ", 2)[1] for line in samples} == {"1795255800"}
