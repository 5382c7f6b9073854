"""An empty database gets its tables at once: they are those that migrations make one by one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from django.db import connection

from apps.operations.management.empty_database import room_labels
from tests.portal import postgres_database
from tests.servers import ROOT
from tests.upgrade.dumps import kept, restored
from tests.upgrade.schemas import of_models, rows, schema, without_casts

NOTED = (
    "SELECT app, name FROM django_migrations",
    "SELECT app_label, model FROM django_content_type",
    "SELECT app_label, model, codename FROM auth_permission"
    " JOIN django_content_type ON django_content_type.id = content_type_id",
)
ALL_AT_ONCE = "The database was empty"


@contextmanager
def empty(folder: Path, name: str) -> Iterator[str]:
    """Yield the URL of an empty database of the kind that the tests run on."""
    if connection.vendor == "postgresql":
        with postgres_database("template0") as url:
            yield url
    else:
        yield f"sqlite:///{folder / name}.db"


def migrate(url: str, *words: str) -> str:
    return subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "manage.py", "migrate", "--noinput", *words],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": url},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a database that was empty before it was migrated."""
    with empty(tmp_path_factory.mktemp("once"), "once") as url:
        assert ALL_AT_ONCE in migrate(url)
        yield url


@pytest.mark.long
def test_an_empty_database_gets_what_all_migrations_make(once: str, tmp_path: Path) -> None:
    with empty(tmp_path, "stepwise") as stepwise:
        migrate(stepwise, "contenttypes")
        assert ALL_AT_ONCE not in migrate(stepwise)
        assert of_models(once) ^ of_models(stepwise) == set()
        for query in NOTED:
            assert rows(once, query) ^ rows(stepwise, query) == set()


@pytest.mark.exhaustive  # tests/deploy/test_running.py holds the tables of the upgrade that it runs
@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="dumps are of PostgreSQL")
def test_a_release_before_is_brought_to_the_tables_of_an_empty_database(once: str) -> None:
    *_, newest = kept().values()
    with restored(newest) as upgraded:
        assert ALL_AT_ONCE not in migrate(upgraded)
        assert without_casts(of_models(once)) ^ without_casts(of_models(upgraded)) == set()


@pytest.mark.long
def test_a_migration_of_one_room_and_a_plan_make_no_other_tables(tmp_path: Path) -> None:
    with empty(tmp_path, "part") as part:
        assert ALL_AT_ONCE not in migrate(part, "--plan")
        migrate(part, "contenttypes")
        labels = {str(app) for app, _ in rows(part, NOTED[0])}
    assert labels.isdisjoint(room_labels())


@pytest.mark.long
def test_a_failure_leaves_the_database_empty(tmp_path: Path) -> None:
    broken = (
        "import django; django.setup()\n"
        "from django.core.management import call_command\n"
        "from django.db import connection\n"
        "from django.db.migrations.recorder import MigrationRecorder\n"
        "MigrationRecorder.migration_qs = property(lambda self: 1 / 0)\n"
        "call_command('migrate', verbosity=0)\n"
    )
    with ExitStack() as until_end:
        url = until_end.enter_context(empty(tmp_path, "broken"))
        done = subprocess.run(  # noqa: S603 - our own words
            [sys.executable, "-c", broken],
            cwd=ROOT,
            env=os.environ | {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "gpuportal.settings"},
            check=False,
            capture_output=True,
            text=True,
        )
        assert "ZeroDivisionError" in done.stderr
        assert schema(url) == set()
        assert ALL_AT_ONCE in migrate(url)
