"""Alert rules about the portal: they name series that it has, and go off on what these show."""

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import REGISTRY

from apps.operations.domain.alert_rules import portal_group
from apps.operations.domain.series import HEALTH, SCRAPE
from apps.operations.selectors.portal_health import portal_health
from apps.operations.services import note_heartbeat
from apps.operations.services.scrape import SOURCES, SeriesSource
from tests.programs import find
from tests.real_prometheus import RealPrometheus

RULES = {rule["alert"]: rule for rule in portal_group()["rules"]}
START = datetime(2026, 11, 20, 12, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_NAMES = re.compile(r"\bgpuportal_[a-z0-9_]+")


def exported_names() -> set[str]:
    """Return the names of all samples that some process of the portal may have."""
    found = {one.name for source in SOURCES for one in source.series}
    found |= {one.name for one in SCRAPE}
    for family in REGISTRY.collect():
        found.add(family.name)
        suffixes = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
        found |= {family.name + suffix for suffix in suffixes.get(family.type, ())}
    return {name for name in found if name.startswith("gpuportal_")}


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_names_series_that_are_exported(name: str) -> None:
    assert set(_NAMES.findall(RULES[name]["expr"])) <= exported_names()


def rows(name: str, labels: str, values: str) -> dict[str, str]:
    return {"series": f"{name}{{{labels}}}" if labels else name, "values": values}


HEARTBEAT = "gpuportal_beat_heartbeat_timestamp_seconds"
QUEUE_TIME = "gpuportal_tier_queue_time_seconds"
OBJECTIVE, _SPANS = "gpuportal_tier_objective", ("1h", "6h")
EXCLUSIVE = 'tier="whole",sharing="exclusive",quantile="0.95"'
CASES = [
    pytest.param("GpuportalWatchdog", [], 1, id="always"),
    pytest.param("GpuportalNotScraped", [], 1, id="nothing-scraped"),
    pytest.param(
        "GpuportalNotScraped",
        [rows("gpuportal_scrape_source_ok", 'source="portal"', "1x400")],
        0,
        id="scraped",
    ),
    pytest.param("GpuportalHeartbeatLost", [], 1, id="never-a-heartbeat"),
    pytest.param("GpuportalHeartbeatLost", [rows(HEARTBEAT, "", "0+60x400")], 0, id="beats"),
    pytest.param(
        "GpuportalHeartbeatLost", [rows(HEARTBEAT, "", "0+60x30 1800x300")], 1, id="stopped"
    ),
    pytest.param(
        "GpuportalHoursLate",
        [
            rows("gpuportal_cluster_lag_seconds", f'cluster="west",pod="{n}"', "7200x400")
            for n in "ab"
        ],
        1,
        id="two-pods-tell-of-one-late-cluster",
    ),
    pytest.param(
        "GpuportalHoursLate",
        [rows("gpuportal_cluster_lag_seconds", 'cluster="west"', "3600x400")],
        0,
        id="an-hour-behind-is-usual",
    ),
    pytest.param(
        "GpuportalWatchBehind",
        [rows("gpuportal_watch_observed_until_timestamp_seconds", 'cluster="west"', "60x400")],
        1,
        id="watch-away",
    ),
    pytest.param(
        "GpuportalNeverWatched",
        [
            rows("gpuportal_watch_issues", 'cluster="new",pod="a"', "0x400"),
            rows("gpuportal_watch_issues", 'cluster="west",pod="a"', "0x400"),
            rows("gpuportal_watch_observed_until_timestamp_seconds", 'cluster="west"', "60x400"),
        ],
        1,
        id="one-of-two-never-watched",
    ),
    pytest.param(
        "GpuportalQueueStands",
        [rows("gpuportal_queue_oldest_message_timestamp_seconds", 'queue="collect"', "60x400")],
        1,
        id="queue-stands",
    ),
    pytest.param(
        "GpuportalWorkerSilent",
        [
            rows("gpuportal_queue_messages", 'queue="collect"', "1x400"),
            rows("gpuportal_queue_messages", 'queue="exports"', "1x400"),
            rows("gpuportal_queue_workers", 'queue="collect"', "1x400"),
            rows("gpuportal_queue_workers", 'queue="exports"', "0x400"),
            rows("gpuportal_queue_workers", 'queue="alerts"', "0x400"),
        ],
        1,
        id="messages-without-worker",
    ),
    pytest.param(
        "GpuportalLeasesExpired",
        [rows("gpuportal_leases", 'work="exports",state="expired"', "1x400")],
        1,
        id="lease-expired",
    ),
    pytest.param(
        "GpuportalLeasesExpired",
        [rows("gpuportal_leases", 'work="exports",state="held"', "1x400")],
        0,
        id="lease-held",
    ),
    pytest.param(
        "GpuportalDoctorErrors",
        [
            rows("gpuportal_doctor_findings", 'severity="error"', "1x400"),
            rows("gpuportal_doctor_findings", 'severity="warning"', "5x400"),
        ],
        1,
        id="doctor-error",
    ),
    pytest.param(
        "GpuportalDoctorErrors",
        [
            rows("gpuportal_doctor_findings", 'severity="error"', "0x400"),
            rows("gpuportal_doctor_findings", 'severity="warning"', "5x400"),
        ],
        0,
        id="doctor-warning",
    ),
    pytest.param(
        "GpuportalSourceUnread",
        [
            rows("gpuportal_scrape_source_ok", 'source="queues",pod="a"', "0x400"),
            rows("gpuportal_scrape_source_ok", 'source="portal",pod="a"', "0x400"),
            rows("gpuportal_scrape_source_ok", 'source="portal",pod="b"', "1x400"),
        ],
        1,
        id="a-source-that-no-pod-reads",
    ),
    pytest.param(
        "GpuportalHoursFailed",
        [
            rows("gpuportal_collection_hours", 'cluster="west",state="failed"', "2x400"),
            rows("gpuportal_collection_hours", 'cluster="east",state="failed"', "0x400"),
            rows("gpuportal_collection_hours", 'cluster="east",state="partial"', "5x400"),
        ],
        1,
        id="hours-failed",
    ),
    pytest.param(
        "GpuportalAlertsUndelivered",
        [rows("gpuportal_deliveries", 'state="given up"', "1x400")],
        1,
        id="alerts-given-up",
    ),
    pytest.param(
        "GpuportalAlertsUndelivered",
        [rows("gpuportal_delivery_oldest_due_timestamp_seconds", "", "60x400")],
        1,
        id="alerts-late",
    ),
    pytest.param(
        "GpuportalAlertsUndelivered",
        [rows("gpuportal_deliveries", 'state="queued"', "9x400")],
        0,
        id="alerts-on-their-way",
    ),
    pytest.param(
        "GpuportalAuditBroken", [rows("gpuportal_audit_holds", "", "0x400")], 1, id="audit"
    ),
    pytest.param(
        "GpuportalErrors",
        [
            rows("gpuportal_http_requests_total", 'status="200"', "0+60x400"),
            rows("gpuportal_http_requests_total", 'status="503"', "0+6x400"),
        ],
        1,
        id="errors",
    ),
    pytest.param(
        "GpuQueueTimeBudgetBurns",
        [
            *(rows(f"{OBJECTIVE}_burn_rate_{span}", 'tier="whole"', "9x400") for span in _SPANS),
            rows(f"{OBJECTIVE}_burn_rate_1h", 'tier="over"', "0x400"),
            rows(f"{OBJECTIVE}_burn_rate_6h", 'tier="over"', "9x400"),
        ],
        1,
        id="one-budget-burns-and-one-did",
    ),
    pytest.param(
        "GpuQueueTimeBudgetSpent",
        [
            rows(f"{OBJECTIVE}_budget_left_ratio", 'tier="spent"', "-0.1x400"),
            rows(f"{OBJECTIVE}_budget_left_ratio", 'tier="left"', "0.1x400"),
        ],
        1,
        id="a-budget-is-spent",
    ),
    pytest.param(
        "GpuportalTasksFail",
        [rows("gpuportal_task_seconds_count", 'task="t",outcome="failure"', "0+1x400")],
        1,
        id="tasks-fail",
    ),
]
LONG = [
    pytest.param(
        "GpuQueueTimeRising", [rows(QUEUE_TIME, EXCLUSIVE, "1200x2880 4000x168")], 1, id="x"
    ),
    pytest.param("GpuQueueTimeRising", [rows(QUEUE_TIME, EXCLUSIVE, "3600x3048")], 0, id="as-ever"),
]


def test_every_rule_is_seen_to_go_off() -> None:
    assert {case.values[0] for case in [*CASES, *LONG] if case.values[2]} == set(RULES)


def asked(case: Any, interval: str, at: str) -> dict[str, Any]:
    alert, series, count = case.values
    value = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    expected = [{"labels": "{}", "value": count}] if count else []
    question = {"expr": value, "eval_time": at, "exp_samples": expected}
    return {
        "name": case.id,
        "interval": interval,
        "input_series": series,
        "promql_expr_test": [question],
    }


def run(folder: Path, rules: list[Any], tests: list[Any], interval: str) -> None:
    group = {"name": "portal", "interval": interval, "rules": rules}
    written = {"rule_files": ["rules.yaml"], "evaluation_interval": interval, "tests": tests}
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}), encoding="utf-8")
    (folder / "tests.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - our own words
        [find("promtool"), "test", "rules", "tests.yaml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.prometheus
def test_rules_go_off_where_they_should_and_only_there(tmp_path: Path) -> None:
    run(tmp_path, list(RULES.values()), [asked(case, "1m", "1h") for case in CASES], "1m")


@pytest.mark.prometheus
def test_a_queue_time_of_whole_gpus_that_doubles_goes_off(tmp_path: Path) -> None:
    cases = [asked(case, "5m", "253h") for case in LONG]
    run(tmp_path, [RULES["GpuQueueTimeRising"]], cases, "30m")


def openmetrics(minutes: int) -> str:
    """Return what scrapes of so many minutes showed of the portal, as it writes it."""
    lines: dict[str, list[str]] = {}
    for minute in range(minutes):
        now = START + minute * _MINUTE
        source = SeriesSource("portal", HEALTH, lambda _, now=now: portal_health(now))  # type: ignore[misc]
        for family in source.families():
            own = lines.setdefault(family.name, [f"# TYPE {family.name} gauge"])
            for sample in family.samples:
                labels = ",".join(f'{k}="{v}"' for k, v in sample.labels.items())
                own.append(f"{sample.name}{{{labels}}} {sample.value} {now.timestamp()}")
    return "\n".join([*(line for own in lines.values() for line in own), "# EOF\n"])


@pytest.mark.prometheus
@pytest.mark.django_db
def test_a_dead_beat_shows_on_the_series_of_the_portal_within_its_time(tmp_path: Path) -> None:
    note_heartbeat(START + _MINUTE, now=START + _MINUTE)  # and then beat is killed
    written = tmp_path / "metrics.txt"
    written.write_text(openmetrics(8), encoding="utf-8")
    with RealPrometheus.loaded(written) as server:

        def holds(minutes: int) -> bool:
            query = urlencode(
                {
                    "query": RULES["GpuportalHeartbeatLost"]["expr"],
                    "time": (START + minutes * _MINUTE).timestamp(),
                }
            )
            with urlopen(f"{server.url}/api/v1/query?{query}", timeout=30) as answer:  # noqa: S310
                return bool(json.load(answer)["data"]["result"])

        assert [holds(minutes) for minutes in (2, 4, 5, 7)] == [False, False, True, True]
