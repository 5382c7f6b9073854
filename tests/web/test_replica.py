"""Pages read facts from a replica that is behind, and what somebody wrote from the primary."""

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.core.exceptions import MiddlewareNotUsed
from django.db import DatabaseError, OperationalError, connections
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from apps.accounts.domain.identity import Role
from apps.accounts.models import Team, User
from apps.clusters.models import Cluster
from apps.operations.models import Heartbeat
from apps.operations.services.doctor.replica import replica_findings
from apps.operations.services.heartbeats import note_heartbeat
from gpuportal.env import database
from gpuportal.replica import REPLICA, ReplicaMiddleware, ReplicaRouter, is_reading_replica
from gpuportal.telemetry.metrics import REPLICA_FALLBACKS
from tests.factories import make_cluster, make_user
from tests.portal import migrated_copy
from tests.servers import free_port
from tests.web.conftest import LOOKED

FACTS = {"clusters", "usage", "pending", "quotas", "fairness", "costs"}
DECIDED = {
    *("Adjustment", "Bill", "BillAmount", "BillSku", "ClosedFile", "ClosedPeriod"),
    *("Export", "MonthlyMail", "Recommendation", "SkuMapping"),
}


def name_replica(url: str) -> None:
    replica: dict[str, Any] = {"default": {}, REPLICA: database(url)}
    connections.settings[REPLICA] = connections.configure_settings(replica)[REPLICA]
    one = connections[REPLICA]

    # A test case forbids databases that were not there when it began.
    def connect() -> None:
        with one.wrap_database_errors:
            if one.connection is None:
                one.connect()

    one.ensure_connection = connect  # type: ignore[method-assign]


@pytest.fixture
def replica(transactional_db: None, tmp_path: Path, settings: Settings) -> Iterator[None]:
    """Name a replica into which nothing was replayed since the migrations."""
    settings.DATABASE_ROUTERS = ["gpuportal.replica.ReplicaRouter"]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "gpuportal.replica.ReplicaMiddleware"]
    with migrated_copy(tmp_path) as url:
        name_replica(url)
        try:
            yield
        finally:
            forget_replica()


def forget_replica() -> None:
    connections[REPLICA].close()
    del connections[REPLICA], connections.settings[REPLICA]


def clusters(client: Client) -> list[str]:
    response = client.get("/api/v1/clusters")
    assert response.status_code == 200
    return [row["name"] for row in response.json()["results"]]


def asked_of_replica(client: Client, path: str) -> str:
    with CaptureQueriesContext(connections[REPLICA]) as asked:
        assert client.get(path).status_code == 200
    return " ".join(query["sql"] for query in asked.captured_queries)


def test_a_get_shows_the_facts_of_the_replica_until_the_reader_changes_something(
    replica: None, signed_in: Callable[[User], Client]
) -> None:
    make_cluster("west")
    client = signed_in(make_user("ada", role=Role.ADMIN))
    assert clusters(client) == []
    for path in ("/", "/costs/", "/quotas/requests/"):
        asked = asked_of_replica(client, path)
        assert "clusters_cluster" in asked
        assert not [room for room in ("accounts_", "session", "quota_requests_") if room in asked]
    other = Client()
    other.cookies.load({key: one.value for key, one in client.cookies.items()})
    assert client.post(reverse("web:mark-alerts-read")).status_code == 302
    # Only for who changed it, and only for a while: the browser forgets the cookie.
    assert clusters(client) == ["west"]
    assert client.cookies["gpuportal_changed"]["max-age"] == 120
    assert clusters(other) == []
    # As in tasks and commands.
    assert Cluster.objects.count() == 1


def test_filters_offer_the_teams_of_the_primary_beside_facts_of_the_replica(
    replica: None, signed_in: Callable[[User], Client]
) -> None:
    Team.objects.create(name="newcomers")
    client = signed_in(make_user("ada", role=Role.ADMIN))
    assert clusters(client) == []
    response = client.get("/", {"team": "newcomers"})
    assert response.context["reading"].filters.team == ("newcomers",)
    assert response.context["reading"].problems == ()


def test_pages_go_on_with_the_primary_while_the_replica_is_away(
    replica: None, signed_in: Callable[[User], Client], caplog: pytest.LogCaptureFixture
) -> None:
    make_cluster("west")
    client = signed_in(make_user("ada", role=Role.ADMIN))
    assert clusters(client) == []
    forget_replica()
    name_replica(f"postgresql://reader@127.0.0.1:{free_port()}/portal?connect_timeout=2")
    with caplog.at_level(logging.WARNING, "gpuportal.replica"):
        assert clusters(client) == ["west"]
        assert client.get("/").status_code == 200
    (told,) = [one for one in caplog.records if one.name == "gpuportal.replica"]
    assert "not from GPUPORTAL_DATABASE_READ_URL" in told.getMessage()
    (finding,) = replica_findings(LOOKED)
    assert finding.code == "replica-unavailable"


def test_pages_read_from_the_primary_where_the_replica_is_behind(
    replica: None, signed_in: Callable[[User], Client]
) -> None:
    make_cluster("west")
    assert list(replica_findings(LOOKED)) == []
    note_heartbeat(LOOKED, now=LOOKED)
    (finding,) = replica_findings(LOOKED)
    assert (finding.code, "has no heartbeat" in finding.what) == ("replica-behind", True)
    row = Heartbeat(pk=1, sent_at=LOOKED, at=LOOKED - timedelta(seconds=60))
    row.save(using=REPLICA)
    assert list(replica_findings(LOOKED)) == []
    user = make_user("ada", role=Role.ADMIN)
    assert clusters(signed_in(user)) == []
    row.at -= timedelta(minutes=1)
    row.save(using=REPLICA)
    (finding,) = replica_findings(LOOKED)
    assert "is 120 s behind" in finding.what
    counted = REPLICA_FALLBACKS.labels("behind")._value.get()
    # Another client is another process: this one looks again only after a while.
    assert clusters(signed_in(user)) == ["west"]
    assert REPLICA_FALLBACKS.labels("behind")._value.get() == counted + 1


# ---------------------------------------------------------------- without a database


class View:
    """A view that fails where it reads from the replica, and counts who asks."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.reads: list[bool] = []

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        self.reads.append(is_reading_replica())
        if self.error and is_reading_replica():
            raise self.error
        return HttpResponse()


def near() -> float:
    return 0.0


class Connections(dict[str, Any]):
    """Those of a portal with a replica."""

    settings: Mapping[str, Any] = {REPLICA: {}}


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """Name a replica that nobody can connect to."""
    primary = SimpleNamespace(in_atomic_block=False)
    found = Connections({"default": primary, REPLICA: SimpleNamespace(close=lambda: None)})
    monkeypatch.setattr("gpuportal.replica.connections", found)
    return found


def asked(middleware: ReplicaMiddleware, view: View, method: str = "get") -> Any:
    request = getattr(RequestFactory(), method)("/")
    return middleware.process_view(request, view, (), {}) or view(request)


def test_a_replica_that_failed_is_asked_again_after_a_while(named: Connections) -> None:
    now = [100.0]
    middleware = ReplicaMiddleware(View(None), clock=lambda: now[0], behind=near)
    view = View(OperationalError("canceling statement due to conflict with recovery"))
    asked(middleware, view)
    assert view.reads == [True, False]
    now[0] += 14
    asked(middleware, view)
    assert view.reads == [True, False, False]
    now[0] += 2
    view.error = None
    asked(middleware, view)
    assert view.reads == [True, False, False, True]
    asked(middleware, view, "post")
    assert view.reads[-1] is False


def test_what_takes_too_long_is_not_asked_of_the_primary_as_well(named: Connections) -> None:
    error = OperationalError("canceling statement due to statement timeout")
    error.__cause__ = psycopg.errors.QueryCanceled()
    view = View(error)
    with pytest.raises(OperationalError):
        asked(ReplicaMiddleware(view, behind=near), view)
    assert view.reads == [True]


def test_an_error_of_both_is_no_fault_of_the_replica(named: Connections) -> None:
    middleware = ReplicaMiddleware(View(None), behind=near)
    seen = []

    def view(request: HttpRequest) -> HttpResponseBase:
        seen.append(is_reading_replica())
        raise DatabaseError("no such column")

    for _ in range(2):
        with pytest.raises(DatabaseError):
            middleware.process_view(RequestFactory().get("/"), view, (), {})
    assert seen == [True, False] * 2


def test_without_a_replica_nothing_stands_in_the_way() -> None:
    with pytest.raises(MiddlewareNotUsed):
        ReplicaMiddleware(View(None))


def test_what_persons_write_is_read_from_the_primary(named: Connections) -> None:
    router = ReplicaRouter()
    found: list[set[str]] = []

    def view(_: HttpRequest) -> HttpResponseBase:
        models = apps.get_models()
        found.append({m._meta.label for m in models if router.db_for_read(m) == REPLICA})
        return HttpResponse()

    middleware = ReplicaMiddleware(View(None), behind=near)
    middleware.process_view(RequestFactory().get("/"), view, (), {})
    facts = found.pop()
    assert {label.partition(".")[0] for label in facts} == FACTS
    left = {m._meta.label for m in apps.get_models() if m._meta.app_label in FACTS} - facts
    assert left == {"clusters.NamespaceTeam", *(f"costs.{name}" for name in DECIDED)}
    # A transaction of a page goes by what is written there.
    named["default"].in_atomic_block = True
    middleware.process_view(RequestFactory().get("/"), view, (), {})
    assert found == [set()]
    assert router.db_for_read(Cluster) == router.db_for_write(Cluster) == "default"
    assert router.allow_migrate("replica") is False
