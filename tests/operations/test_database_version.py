"""`migrate` on a database that another version of the portal made."""

from collections.abc import Iterator

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings


@pytest.fixture(autouse=True)
def _migrations_on_disk(db: None) -> Iterator[None]:
    MigrationRecorder(connection).ensure_schema()
    with override_settings(MIGRATION_MODULES={}):
        yield


@pytest.mark.parametrize("name", ["0001_initial", "0002_findings", "0099_of_later"])
def test_a_database_of_another_version_is_refused_in_one_sentence(name: str) -> None:
    MigrationRecorder(connection).record_applied("pending", name)
    with pytest.raises(
        CommandError, match=r"^another version of the portal made the database .*: "
    ):
        call_command("migrate", verbosity=0)


def test_migrations_of_this_version_and_of_libraries_are_no_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    MigrationRecorder(connection).record_applied("auth", "0099_of_later")
    MigrationRecorder(connection).record_applied("pending", "0001_tables")
    call_command("migrate", "pending", plan=True)
    assert "Planned operations" in capsys.readouterr().out
