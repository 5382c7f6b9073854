"""From SQLite to PostgreSQL, and from a dump to another PostgreSQL, with rows in all tables."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from msgspec import Struct

from tests.portal import Portal, portal
from tests.programs import find
from tests.servers import ROOT, migrated_file

pytestmark = [
    pytest.mark.long,
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="it moves to PostgreSQL"),
]


def python(code: str, made: Portal, database_url: str) -> Any:
    """Run code with the settings of a portal on a database, and return the JSON it prints last."""
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", f"import django; django.setup()\n{code}"],
        cwd=ROOT,
        env=made.environment
        | {"DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "gpuportal.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# Runs commands, and prints what each was refused for, what the portal shows, and the next number.
CODE = """
import json, sys
from django.core.management import CommandError, call_command
from tests.operations import moved_rows
{work}
told = []
for words in {commands!r}:
    try:
        call_command(*words, stdout=sys.stderr)
    except CommandError as error:
        told.append(str(error))
    else:
        told.append("")
print(json.dumps([told, moved_rows.shown(), moved_rows.next_team()]))
"""
ADD_TEAM = "INSERT INTO accounts_team (name, cost_center, active, builtin) VALUES "
ADD_MIGRATION = "INSERT INTO django_migrations (app, name, applied) VALUES "
# What happens to a migrated file → what is said of it.
REFUSED = {
    "CREATE TABLE a (b)": "lacks migrations of this version: run `python manage.py migrate`",
    f"{ADD_MIGRATION} ('usage', '9999_later', '2026-11-23')": "Another version of the portal",
    "DELETE FROM django_migrations WHERE app = 'operations'": "lacks migrations of this version",
    # PostgreSQL has no such character.
    f"{ADD_TEAM} ('a', char(98, 0, 98), 1, 0)": "accounts_team does not fit PostgreSQL: ",
}


class Moved(Struct, frozen=True):
    """A portal on PostgreSQL, the file that its rows came from, and what both show.

    `told` is what was said of files that do not fit, before, and of the file a second time.
    """

    portal: Portal
    file: Path
    before: dict[str, Any]
    after: dict[str, Any]
    last_team: int
    told: list[str]


@pytest.fixture(scope="module")
def moved(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    folder = tmp_path_factory.mktemp("moved")
    with portal(folder) as made:
        file = folder / "it's a portal.db"
        shutil.copy(migrated_file(), file)
        fill = CODE.format(work="moved_rows.fill()", commands=[])
        _, before, _ = python(fill, made, f"sqlite:///{file}".replace(" ", "%20"))
        files = [*unfit_files(folder), file]
        commands: list[tuple[str, ...]] = [("move_database", str(one)) for one in files]
        commands += [("verify_audit",), ("move_database", str(file))]
        code = CODE.format(work="", commands=commands)
        told, after, last = python(code, made, made.database_url)
        yield Moved(made, file, before, after, last, told)


def unfit_files(folder: Path) -> list[Path]:
    files = []
    for number, statement in enumerate(REFUSED):
        files.append(folder / f"{number}.db")
        if not statement.startswith("CREATE"):
            shutil.copy(migrated_file(), files[-1])
        with closing(sqlite3.connect(files[-1])) as opened:
            opened.execute(statement)
            opened.commit()
    (folder / "text.db").write_text("no database", encoding="ascii")
    return [*files, folder / "text.db", folder / "none.db"]


def test_a_page_and_an_answer_of_the_api_are_the_same(moved: Moved) -> None:
    assert moved.before["empty tables"] == []
    assert moved.after == moved.before


def test_numbers_go_on_after_the_highest_that_was_given(moved: Moved) -> None:
    with closing(sqlite3.connect(moved.file)) as opened:
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'accounts_team'"
        (given,) = opened.execute(query).fetchone()
        (highest,) = opened.execute("SELECT max(id) FROM accounts_team").fetchone()
    # The last team was deleted: facts that name its number must not come to another one.
    assert moved.last_team == given + 1 > highest + 1


def test_what_does_not_fit_is_refused_with_the_reason(moved: Moved) -> None:
    files = [*REFUSED.values(), "is no database of SQLite", "cannot be read: No such file"]
    wanted = [*files, "", "", "The target is not empty: there are rows in "]
    assert [t for t, want in zip(moved.told, wanted, strict=True) if want not in t] == []
    # The one after those that were refused found an empty target; so did the audit's check.
    assert moved.told[len(files) : -1] == ["", ""]


def test_a_restored_dump_shows_the_same(moved: Moved, tmp_path: Path) -> None:
    head = moved.portal.manage("verify_audit", "--head").strip()
    programs = find("initdb").resolve().parent
    dump, url = tmp_path / "portal.dump", moved.portal.database_url
    subprocess.run(  # noqa: S603 - our own words
        [programs / "pg_dump", "--format=custom", f"--file={dump}", url], check=True
    )
    server, _, name = url.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as session:
        session.execute(f'CREATE DATABASE "{name}_restored"'.encode())
    restored = f"{url}_restored"
    try:
        subprocess.run(  # noqa: S603 - our own words
            [
                *(programs / "pg_restore", "--no-owner", "--exit-on-error"),
                *("--single-transaction", f"--dbname={restored}", dump),
            ],
            check=True,
        )
        commands = [("migrate", "--check"), ("verify_audit", "--expect", head)]
        code = CODE.format(work="", commands=commands)
        told, shown, team = python(code, moved.portal, restored)
    finally:
        with psycopg.connect(f"{server}/postgres", autocommit=True) as session:
            session.execute(f'DROP DATABASE "{name}_restored" WITH (FORCE)'.encode())
    assert told == ["", ""]
    assert shown == moved.before
    assert team == moved.last_team + 1
