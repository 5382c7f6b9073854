"""Machines ask without signing in: by address, over plain HTTP, on a fresh install."""

import runpy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from pytest_django import Settings

from apps.clusters.models import WatchCoverage
from gpuportal.telemetry.probes import NotReady, Readiness
from tests.factories import make_cluster


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
@pytest.mark.django_db
def test_a_probe_of_a_fresh_install_by_address_and_over_http_is_answered(
    path: str, client: Client, settings: Settings
) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["gpu.example.org"]
    response = client.get(path, headers={"host": "10.1.2.3:8000"})
    assert response.status_code == 200
    assert response["Cache-Control"] == "no-store"
    assert client.post(path, headers={"host": "10.1.2.3:8000"}).status_code == 405


def test_livez_asks_nothing_of_the_database(client: Client) -> None:
    assert client.get("/livez").json() == {"status": "ok"}


@pytest.mark.django_db
def test_readyz_names_the_first_migration_that_is_missing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = SimpleNamespace(app_label="usage", name="0002_more")
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *_: [(missing, False)] * 2)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {
        "status": "not ready",
        "detail": "2 migrations are not applied, the first usage.0002_more: "
        "run python manage.py migrate.",
    }


@pytest.mark.django_db
def test_readyz_says_that_the_database_is_away(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("no route to host")

    monkeypatch.setattr(MigrationExecutor, "migration_plan", away)
    assert client.get("/readyz").status_code == 503


def test_probes_do_not_queue_up_behind_a_slow_database() -> None:
    now = 0.0

    def slow() -> None:
        nonlocal now
        readiness.check()  # asked by others meanwhile: the last answer holds
        now = 3.1
        with pytest.raises(NotReady, match="not answered for 3 s"):
            readiness.check()

    readiness = Readiness(slow, clock=lambda: now)
    readiness.check()


@pytest.mark.django_db
def test_the_check_of_a_watch_looks_at_the_clusters_that_it_follows(
    settings: Settings,
) -> None:
    now = datetime.now(UTC)
    for name, ago in (("west", 1), ("east", 60)):
        cluster = make_cluster(name, kubernetes={"in_cluster": True})
        WatchCoverage.objects.create(
            cluster=cluster, start=now - timedelta(hours=2), end=now - timedelta(minutes=ago)
        )
    watch: Any = runpy.run_path(str(settings.BASE_DIR / "scripts" / "healthcheck.py"))["watch"]
    assert watch("west") == ""
    assert watch("east") == "not watched for 0:10:00: east"
    assert watch() == "not watched for 0:10:00: east"
    assert watch("north").endswith("Kubernetes API: north")
