"""What the manifests render is run: an upgrade, pages, an export, a quota change and metrics.

Real processes with the commands, variables, mounts and probes of the rendered objects, on
PostgreSQL behind PgBouncer and Redis with a password, beside a simulated cluster.
"""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from django.db import connection

from tests.deploy.installation import HOST, QUOTA, READER, WRITER, Installation, installed
from tests.deploy.pods import Pod, can_run, until
from tests.deploy.rendering import Manifest, named
from tests.deploy.visitor import Visitor
from tests.operations.test_portal_rules import rows, run
from tests.portal import migrated_copy
from tests.real_prometheus import RealPrometheus
from tests.upgrade.schemas import of_models, without_casts

pytestmark = pytest.mark.long

QUEUES = ("collect", "pending", "exports", "alerts", "quota-requests")
WATCHES = ("gpuportal-watch-0", "gpuportal-watch-1")
KEY = "requests.nvidia.com/gpu"
PASSWORD = "a long password of eve's"
PEOPLE = """
from datetime import UTC, datetime
from apps.accounts.domain.identity import Role, TokenScope
from apps.accounts.models import User
from apps.accounts.services import add_token
cleo = User.objects.create_user("cleo", role=Role.ADMIN)
for person in (User.objects.get(username="eve"), cleo):
    print(add_token(person, name="t", now=datetime.now(UTC), scopes=list(TokenScope)).key)
"""


@pytest.mark.prometheus
@pytest.mark.redis
@pytest.mark.django_db
def test_what_is_rendered_runs(tmp_path: Path) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("pods have PostgreSQL")
    if not can_run():
        pytest.skip("this machine gives processes no mounts of their own (unshare)")
    with installed(tmp_path) as portal:
        upgrades(portal)
        begins(portal)
        web = portal.pod("gpuportal-web")
        eve, cleo = people(web)
        loads_the_catalog(portal)
        killed = time.monotonic()
        watching = kills_the_watch(portal)
        stays_alive(portal, eve)
        exports(portal, eve)
        portal.rotate_tokens()
        takes_over(portal, watching, killed + 60)
        changes_a_quota(portal, eve, cleo)
        is_well(portal)
        is_scraped(portal, tmp_path)


def pods_of(portal: Installation) -> list[Pod]:
    return list(portal.pods.values())


def upgrades(portal: Installation) -> None:
    """Two migrations at once, while a web process of the new version serves."""
    web = portal.pod("gpuportal-web")
    before = portal.rows("SELECT count(*) FROM usage_collectionwindow WHERE state = 'complete'")
    web.run()
    until(lambda: web.passes("startupProbe"), "the web server", pods_of(portal))
    assert not web.passes("readinessProbe"), "its tables are those of the release before"
    jobs = [portal.pod("gpuportal-migrate", number) for number in (0, 1)]
    for job in jobs:
        job.run()
    waiting = web.run("await-migrations")
    until(lambda: all(j.processes["portal"].poll() is not None for j in jobs), "Jobs", jobs)
    assert [job.processes["portal"].returncode for job in jobs] == [0, 0], jobs[0].log()
    until(lambda: waiting.poll() == 0, "what waits for migrations", [web])
    until(lambda: web.passes("readinessProbe"), "readiness", [web])
    assert web.passes("livenessProbe")
    with migrated_copy(portal.objects.folder) as empty:
        made, upgraded = (without_casts(of_models(one)) for one in (empty, portal.database_url))
        assert made ^ upgraded == set(), "tables that an empty database does not get"
    assert (
        portal.rows("SELECT count(*) FROM usage_collectionwindow WHERE state = 'complete'")
        == before
        != [(0,)]
    )


def begins(portal: Installation) -> None:
    """Begin a worker for each queue, beat and two watches."""
    for queue in QUEUES:
        portal.pod(f"gpuportal-worker-{queue}").start()
    portal.pod("gpuportal-beat").start()
    for number in (0, 1):
        portal.pod("gpuportal-watch", number).start()


def people(web: Pod) -> tuple[Visitor, Visitor]:
    """Make two administrators as the documents say; the first one signs in on the page."""
    words = ("python", "manage.py", "person", "eve", "--role", "admin")
    made = web.execute(*words, given=f"{PASSWORD}\n")
    assert made.returncode == 0, made.stderr
    made = web.execute("python", "manage.py", "shell", "-c", PEOPLE)
    assert made.returncode == 0, made.stderr
    keys = made.stdout.split()[-2:]
    eve = Visitor(web)
    status, _, headers = eve.ask("GET", "/", https=False)
    assert (status, headers["Location"]) == (301, f"https://{HOST}/")
    eve.post("/sign-in/", "/sign-in/", username="eve", password=PASSWORD)
    assert "eve" in eve.page("/")
    eve.token = keys[0]
    return eve, Visitor(web, keys[1])


def holder_of_watch(portal: Installation) -> str:
    """Return the pod that watches the cluster now; empty when there is none."""
    found = portal.rows(
        "SELECT holder FROM accounts_processlease WHERE name = 'watch:home' AND lease_until > now()"
    )
    return str(found[0][0]).partition("/")[0] if found else ""


def loads_the_catalog(portal: Installation) -> None:
    """The catalog of the ConfigMap takes the place of the one before, and is watched."""
    active = "SELECT name FROM clusters_cluster WHERE active"
    until(lambda: portal.rows(active) == [("home",)], "the catalog", pods_of(portal))
    seen = "SELECT 1 FROM clusters_observedobject WHERE namespace = 'speech-lab' AND name = 'gpus'"
    until(lambda: portal.rows(seen) != [], "the watch", pods_of(portal))
    until(lambda: holder_of_watch(portal) in WATCHES, "the lease", pods_of(portal))


def kills_the_watch(portal: Installation) -> str:
    """Kill the pod that watches and return the other, which is of another host."""
    killed = holder_of_watch(portal)
    portal.pods[killed].kill()
    (other,) = set(WATCHES) - {killed}
    return other


def takes_over(portal: Installation, other: str, end: float) -> None:
    until(
        lambda: holder_of_watch(portal) == other,
        "the other watch",
        pods_of(portal),
        seconds=max(1.0, end - time.monotonic()),
    )


def stays_alive(portal: Installation, eve: Visitor) -> None:
    """Requests that a locked table holds take every thread; web is not restarted for that."""
    web = portal.pod("gpuportal-web")
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
    with ThreadPoolExecutor(12) as people, psycopg.connect(portal.database_url) as session:
        session.execute("LOCK TABLE accounts_user, django_session IN ACCESS EXCLUSIVE MODE")
        asked = [people.submit(eve.ask, "GET", "/") for _ in range(12)]
        until(lambda: portal.rows(waiting) != [], "requests that wait", [web])
        assert all(web.passes("livenessProbe") for _ in range(30))
        session.rollback()
        assert {one.result()[0] for one in asked} == {200}


def exports(portal: Installation, eve: Visitor) -> None:
    """The exports' worker writes a file, and a web pod hands it out."""
    ((hour,),) = portal.rows(
        "SELECT min(hour) FROM usage_collectionwindow WHERE state = 'complete' AND cluster_id ="
        " (SELECT id FROM clusters_cluster WHERE name = 'lab')"
    )
    assert isinstance(hour, datetime)
    day = hour.date()
    page = "/costs/exports/"
    eve.post(
        *("/costs/exports/create", page),
        first=day.isoformat(),
        last=day.isoformat(),
        format="csv",
    )
    link = re.compile(r'href="(/costs/exports/\d+/file[^"]*)"')
    until(lambda: link.search(eve.page(page)) is not None, "the export", pods_of(portal))
    found = link.search(eve.page(page))
    assert found is not None
    assert eve.page(found[1]).startswith("period,cluster,")
    days = f"start={day}&end={day + timedelta(days=1)}&interval=total"
    (total,) = eve.api("GET", f"usage?{days}")["results"]
    assert total["allocated_gpu_hours"] > 0, "facts of the release before"
    written = list(portal.objects.claim("gpuportal-exports").rglob("*"))
    assert any(path.is_file() for path in written)


def changes_a_quota(portal: Installation, eve: Visitor, cleo: Visitor) -> None:
    """Eve asks, Cleo decides, and the account that may write does it."""
    body = {
        "cluster": "home",
        "namespace": "speech-lab",
        "source": "ResourceQuota",
        "name": "gpus",
        "key": KEY,
        "from": "2",
        "to": "3",
        "reason": "The third voice is pending.",
        "until": (datetime.now().astimezone() + timedelta(days=1)).isoformat(),
    }
    made = eve.api("POST", "quota-requests", body)
    path = f"quota-requests/{made['id']}"

    def act(who: Visitor, action: str, **given: Any) -> Any:
        version = who.api("GET", path)["version"]
        return who.api("POST", f"{path}/{action}", {"version": version, **given})

    assert act(eve, "submit")["preview"]["dry_run_passed"] is True
    act(cleo, "take")
    act(cleo, "approve")
    owners = [one["manager"] for one in cleo.api("GET", path)["preview"]["owners"]]
    act(cleo, "apply", confirmed=owners)
    until(lambda: cleo.api("GET", path)["state"] == "applied", "the change", pods_of(portal))
    answer = portal.api.server.kubernetes.answer(QUOTA, {})
    assert f'"{KEY}":"3"'.encode() in answer.body.replace(b" ", b"")  # type: ignore[union-attr]
    assert "PATCH" in portal.api.of(WRITER)
    assert portal.api.of(READER) <= {"GET", "POST"}


def is_well(portal: Installation) -> None:
    """Every probe of every container passes."""
    for pod in pods_of(portal):
        for name, process in pod.processes.items():
            if process.poll() is None:
                container = pod.container(name)
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    assert probe not in container or pod.passes(probe, name), pod.log()


# ---------------------------------------------------------------- metrics


def targets(portal: Installation) -> list[dict[str, Any]]:
    """Return what the Prometheus operator makes of the ServiceMonitor: the pods of its Service."""
    (monitor,) = named(portal.manifests, "ServiceMonitor").values()
    wanted = monitor["spec"]["selector"]["matchLabels"]
    (service,) = (
        one
        for one in named(portal.manifests, "Service").values()
        if wanted.items() <= one["metadata"]["labels"].items()
    )
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = (p for p in service["spec"]["ports"] if p["name"] == endpoint["port"])
    chosen = service["spec"]["selector"].items()
    return [
        {
            "targets": [f"{pod.address}:{pod.port(port['targetPort'])}"],
            "labels": {"pod": pod.name, "__metrics_path__": endpoint["path"]},
        }
        for pod in pods_of(portal)
        if chosen <= pod.template["metadata"]["labels"].items() and pod.processes
    ]


def rules_of(portal: Installation) -> Manifest:
    (rule,) = named(portal.manifests, "PrometheusRule").values()
    return dict(rule["spec"])


def is_scraped(portal: Installation, folder: Path) -> None:
    """A Prometheus scrapes every pod, takes the rules, and has the series that they name."""
    rules = folder / "rules.yml"
    # Their interval is a minute, which is long for a test.
    often = [{**group, "interval": "1s"} for group in rules_of(portal)["groups"]]
    rules.write_text(yaml.safe_dump({"groups": often}), encoding="utf-8")
    found = targets(portal)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "gpuportal", "static_configs": found}],
    }
    beat = "gpuportal_beat_heartbeat_timestamp_seconds"
    with RealPrometheus.configured(config) as server:
        pods = pods_of(portal)
        until(lambda: len(server.query("up == 1")) == len(found), "scrapes", pods)
        assert len(found) == 2 + len(QUEUES) + 1, "web, workers, beat and the watch that is left"
        until(partial(has, server, beat), "a heartbeat", pods)
        for name in PRESENT:
            until(partial(has, server, name), name, pods)
        until(lambda: "GpuportalWatchdog" in firing(server), "the watchdog", pods)
        groups = server.answer("rules")["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
        assert "GpuportalHeartbeatLost" not in firing(server)
        portal.pod("gpuportal-beat").kill()
        until(lambda: len(server.query("up == 0")) == 1, "a scrape without beat", pods)
        (last,) = {one["value"][1] for one in server.query(f"max({beat})")}
        (series, *_) = server.query(beat)
    goes_off(portal, folder, series["metric"], float(last))


# What alert rules and dashboards look at from the first minutes on.
PRESENT = (
    "gpuportal_scrape_source_ok == 1",
    "gpuportal_cluster_lag_seconds",
    'gpuportal_collection_hours{state="failed"} == 0',
    'gpuportal_watch_observed_until_timestamp_seconds{cluster="home"}',
    'gpuportal_watch_connected_since_timestamp_seconds{cluster="home"}',
    'gpuportal_leases{state="expired"} == 0',
    'gpuportal_queue_messages{queue="quota_requests"}',
    'gpuportal_task_seconds_count{task="costs.write_export",outcome="success"}',
    'gpuportal_task_seconds_count{task="quota_requests.carry_out",outcome="success"}',
    'gpuportal_http_requests_total{status="200"}',
    'gpuportal_source_request_seconds_count{source="kubernetes"}',
    "gpuportal_beat_tick_timestamp_seconds",
)


def has(server: RealPrometheus, expression: str) -> bool:
    return bool(server.query(expression))


def firing(server: RealPrometheus) -> set[str]:
    return {one["metric"]["alertname"] for one in server.query('ALERTS{alertstate="firing"}')}


def goes_off(portal: Installation, folder: Path, labels: dict[str, str], last: float) -> None:
    """The rule, as it is rendered, goes off on the last series within its time of the death."""
    assert abs(time.time() - last) < 120
    (lost,) = (
        rule
        for group in rules_of(portal)["groups"]
        for rule in group["rules"]
        if rule["alert"] == "GpuportalHeartbeatLost"
    )
    name = labels.pop("__name__")
    text = ",".join(f'{k}="{v}"' for k, v in labels.items())
    count = f'count(ALERTS{{alertname="{lost["alert"]}",alertstate="firing"}})'
    asked = [
        {"expr": count, "eval_time": at, "exp_samples": samples}
        for at, samples in (("3m", []), ("7m", [{"labels": "{}", "value": 1}]))
    ]
    # It was 0 when beat died, and stays so.
    case = {"interval": "30s", "input_series": [rows(name, text, "0x40")]}
    run(folder, [lost], [case | {"promql_expr_test": asked}], "30s")
