"""Several `migrate` at once: one works, the others wait for it."""

from contextlib import ExitStack
from unittest.mock import Mock

import pytest
from django.core.management import call_command
from django.db import connection

from apps.operations.management.commands import migrate

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_second_waits_until_the_first_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite locks its file")
    first = ExitStack()
    first.enter_context(migrate.migration_lock(connection))
    # The first ends while the second waits for the third time.
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            first.close()

    monkeypatch.setattr("time.sleep", wait)
    call_command("migrate", verbosity=0)
    assert len(waited) == 3


def test_the_lock_of_a_node_that_died_is_free_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite locks its file")
    holder = connection.copy()
    monkeypatch.setattr(connection, "copy", lambda: holder)
    with migrate.migration_lock(connection), holder.cursor() as cursor:
        told = []
        for name in ("idle", "interval", "count"):
            cursor.execute(f"SHOW tcp_keepalives_{name}")
            told.append(int(cursor.fetchone()[0]))
    idle, interval, count = told
    assert 0 < idle + interval * count <= 60


def test_one_that_failed_leaves_no_lock() -> None:
    with pytest.raises(ZeroDivisionError), migrate.migration_lock(connection):
        raise ZeroDivisionError
    with migrate.migration_lock(connection):
        pass


def test_the_check_for_migrations_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", Mock(side_effect=AssertionError))
    with migrate.migration_lock(connection):
        call_command("migrate", "--check", verbosity=0)
