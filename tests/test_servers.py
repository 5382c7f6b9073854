"""The servers that tests start: real, of their own, and gone afterwards."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from django.db import connection, transaction

from tests import programs, servers
from tests.saved_rows import vacuum
from tests.servers import accepts, kept, main, temporary_postgres, temporary_redis

RUNNER = (sys.executable, "-m", "tests.servers")
# Writes where the server is, then waits to be ended.
CHILD = "import os, time; print(os.environ['DATABASE_URL'], flush=True); time.sleep(1000)"


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@pytest.mark.redis
def test_each_test_gets_an_empty_redis(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left by", "this test")


@pytest.mark.redis
def test_each_test_gets_an_empty_redis_again(redis_url: str) -> None:
    test_each_test_gets_an_empty_redis(redis_url)


@pytest.mark.redis
def test_redis_is_gone_afterwards() -> None:
    with temporary_redis() as url:
        assert accepts(port_of(url))
    assert not accepts(port_of(url))


def test_postgresql_is_gone_afterwards() -> None:
    with temporary_postgres() as url:
        with psycopg.connect(url) as session:
            row = session.execute("SHOW server_encoding").fetchone()
        assert row == ("UTF8",)
    assert not accepts(port_of(url))


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite takes the space again")
def test_tables_are_freed_of_dead_rows_between_modules_and_never_meanwhile() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW autovacuum")
        assert cursor.fetchone() == ("off",)
        cursor.execute("CREATE TABLE of_a_test (number integer)")
        try:
            with transaction.atomic():
                cursor.execute("INSERT INTO of_a_test SELECT generate_series(1, 6000)")
                transaction.set_rollback(True)
            cursor.execute("SELECT pg_stat_force_next_flush()")
            vacuum()
            cursor.execute("SELECT pg_relation_size('of_a_test')")
            assert cursor.fetchone() == (0,)
        finally:
            cursor.execute("DROP TABLE of_a_test")


def test_a_migrated_database_is_kept_until_a_migration_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "ROOT", tmp_path)
    (tmp_path / "requirements.txt").touch()
    migration = tmp_path / "apps" / "usage" / "migrations" / "0001_initial.py"
    migration.parent.mkdir(parents=True)
    migration.write_text("from apps.usage.triggers import make\n", encoding="utf-8")
    empty = tmp_path / "apps" / "operations" / "management" / "empty_database.py"
    empty.parent.mkdir(parents=True)
    empty.touch()
    triggers = tmp_path / "apps" / "usage" / "triggers.py"
    triggers.write_text("one", encoding="utf-8")
    made: list[Path] = []

    first = kept("sqlite", made.append)
    assert kept("sqlite", made.append) == first
    assert len(made) == 1
    triggers.write_text("two", encoding="utf-8")
    second = kept("sqlite", made.append)
    assert len(made) == 2
    assert [path.name for path in first.parent.iterdir()] == [second.name]


@pytest.mark.long
def test_the_exit_code_is_that_of_the_command() -> None:
    assert main(["--sqlite", "--", sys.executable, "-c", "raise SystemExit(7)"]) == 7


def test_the_command_gets_a_folder_of_its_own_that_goes_again(tmp_path: Path) -> None:
    found = tmp_path / "found"
    write = (
        "import os, sys; from pathlib import Path; var = Path(os.environ['GPUPORTAL_VAR_DIR']);"
        "assert var.is_dir(); Path(sys.argv[1]).write_text(str(var))"
    )
    assert main(["--sqlite", "--", sys.executable, "-c", write, str(found)]) == 0
    assert not Path(found.read_text(encoding="utf-8")).exists()


def test_being_ended_ends_the_server_and_the_command() -> None:
    runner = subprocess.Popen(  # noqa: S603 - our own words
        [*RUNNER, "--", sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True
    )
    with runner:
        assert runner.stdout is not None
        port = port_of(runner.stdout.readline())
        assert accepts(port)
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(40) == 128 + signal.SIGTERM
    assert not accepts(port)


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(programs.ProgramMissing, match="Debian package prometheus"):
        programs.find("promtool")
