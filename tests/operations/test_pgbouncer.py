"""The portal behind a PgBouncer in transaction mode, and what its own sessions are told."""

import http.client
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from gpuportal.env import database
from tests.portal import counted, portal
from tests.served_lab import reference_catalog, served_reference
from tests.servers import accepts, free_port, temporary_pgbouncer

pytestmark = [pytest.mark.django_db, pytest.mark.long]
needs_postgresql = pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="SQLite has no sessions"
)


# In one process: each takes seconds to start.
EXPORTS = """
from datetime import UTC, datetime, timedelta
from django.core.management import call_command
from apps.accounts.models import User
from apps.clusters.domain.window import Window
from apps.costs.domain.exports import ExportScope
from apps.costs.services.exports import ask_export, write_export
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.files import FileFormat
call_command("person", "ada", "--role", "admin", "--single-sign-on")
end = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
scope = ExportScope(Basis.ALLOCATED, Policy.PLATFORM, window=Window(end - timedelta(days=3), end))
ada = User.objects.get(username="ada")
for _ in range(3):
    pk = ask_export(ada, scope, FileFormat.CSV, now=datetime.now(UTC))
    print("written:", write_export(pk))
call_command("issue_token", "ada")
"""


def answer(port: int, path: str, token: str) -> dict[str, Any]:
    """Return what the API answers to a person's token."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Token {token}"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 200, body
    read: dict[str, Any] = json.loads(body)
    return read


@needs_postgresql
def test_sessions_have_bounds() -> None:
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    new = connection.copy()
    try:
        with new.cursor() as cursor:
            found = []
            for name in names:
                cursor.execute(f"SHOW {name}")
                found.append(cursor.fetchone()[0])
    finally:
        new.close()
    assert found == ["5min", "30s", "10min"]


@needs_postgresql
def test_the_server_that_takes_writes_is_found_among_several_hosts() -> None:
    own = connection.settings_dict
    place = f"{own['HOST'] or '127.0.0.1'}:{own['PORT'] or 5432}"
    url = f"postgresql://{own['USER']}:{own['PASSWORD']}@127.0.0.1:{free_port()},{place}"
    options = "target_session_attrs=read-write&connect_timeout=5"
    new = connection.copy()
    new.settings_dict = own | database(f"{url}/{own['NAME']}?{options}")
    try:
        with new.cursor() as cursor:
            cursor.execute("SHOW transaction_read_only")
            assert cursor.fetchone() == ("off",)
    finally:
        new.close()


@needs_postgresql
def test_collection_export_and_pages_go_through_pgbouncer(tmp_path: Path) -> None:
    web = free_port()
    start = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0)
    start -= timedelta(days=2)
    with (
        served_reference() as url,
        portal(tmp_path, GPUPORTAL_PGBOUNCER="yes") as made,
        temporary_pgbouncer(made.database_url) as pooled,
    ):
        made.environment["DATABASE_URL"] = pooled
        catalog = tmp_path / "catalog.yaml"
        catalog.write_text(reference_catalog(url), encoding="utf-8")
        made.manage("load_catalog", str(catalog))
        hours = [start + timedelta(hours=n) for n in range(3)]
        collectors = [
            made.start(
                *("manage", "collect", "--cluster", "lab", "--start", hour.isoformat()),
                *("--end", (hour + timedelta(hours=1)).isoformat()),
                log=f"collect-{hour:%H}.log",
            )
            for hour in hours
        ]
        assert [process.wait(120) for process in collectors] == [0, 0, 0], made.logs()
        complete = "SELECT count(*) FROM usage_collectionwindow WHERE state = 'complete'"
        assert counted(made.rows(complete)) == 3
        said = made.manage("shell", "-c", EXPORTS)
        assert said.count("written: 1\n") == 3
        made.start(
            *("gunicorn", "gpuportal.wsgi", "--bind", f"127.0.0.1:{web}", "--workers", "1"),
            *("--threads", "4", "--no-control-socket"),
            log="web.log",
        )
        made.wait_for(lambda: accepts(web), "the web server")
        token = said.split()[-1]
        for _ in range(5):
            (row,) = answer(web, "/api/v1/clusters", token)["results"]
            assert row["name"] == "lab"
        # Bounds of sessions that are shared would be those of whoever set them last.
        with psycopg.connect(made.database_url) as session:
            row = session.execute("SHOW statement_timeout").fetchone()
            assert row is not None
            assert row[0] == "0"
