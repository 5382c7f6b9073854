"""The demo as a person meets it: one command, the portal on a cluster with a past, Ctrl-C."""

import contextlib
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import requests
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from msgspec import Struct

from apps.operations.management.commands.demo import (
    check_ports,
    place_of,
    ports,
    refuse_accounts,
)
from apps.operations.management.commands.demo_story import refuse_foreign
from apps.operations.management.demo_directory import PASSWORD, PEOPLE, PlaceTaken
from apps.operations.management.demo_setup import ensure_people
from tests.servers import accepts, free_port, migrated_file

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parent.parent.parent
MANAGE = (sys.executable, str(ROOT / "manage.py"))
START_SECONDS = 180.0
STOP_SECONDS = 40.0
ZONE = ZoneInfo("Europe/Berlin")
# Of the worked example in docs/definitions.md: what 32 GPUs do in every hour.
ALLOCATED, BUSY, IDLE, UNDERUSED = 32.0, 17.2, 3.8, 11.0
ELSEWHERE = (
    "DATABASE_URL",
    "DATABASE_URL_FILE",
    "CELERY_BROKER_URL",
    "CACHE_URL",
    "SCENARIO",
    "GPUPORTAL_ENV",
)


class Running(Struct):
    """A demo that was started, and what it wrote so far."""

    process: subprocess.Popen[bytes]
    output: Path
    var: Path
    port: int
    lab_port: int

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        pause = threading.Event()
        while not condition():
            assert self.process.poll() is None, f"the demo ended: {self.said()}"
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.said()}"
            pause.wait(0.1)

    def get(self, path: str, token: str = "") -> requests.Response:
        headers = {"Authorization": f"Token {token}"} if token else {}
        return requests.get(f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=30)

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)


def environment(var: Path, port: int, lab_port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    return {
        **kept,
        "GPUPORTAL_VAR_DIR": str(var),
        "PORT": str(port),
        "LAB_PORT": str(lab_port),
        "SCENARIO": "reference",
    }


def processes_of(var: Path) -> list[str]:
    """Return the command lines of all processes that work in this folder."""
    wanted = f"GPUPORTAL_VAR_DIR={var}".encode()  # or a folder in it, as the demo's processes have
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Running]]:
    """Yield what starts a demo; its ports and folder are the same each time."""
    port, lab_port, var = free_port(), free_port(), tmp_path / "var"
    started: list[Running] = []

    def begin() -> Running:
        output = tmp_path / f"output-{len(started)}"
        with output.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603 - our own words
                [*MANAGE, "demo", "--days", "1"],
                cwd=tmp_path,
                env=environment(var, port, lab_port),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        started.append(Running(process, output, var, port, lab_port))
        return started[-1]

    yield begin
    for running in started:
        if running.process.poll() is None:
            running.stop(signal.SIGTERM)


def test_one_command_serves_the_portal_and_ctrl_c_leaves_nothing_behind(
    start: Callable[[], Running], tmp_path: Path
) -> None:
    # Migrations from nothing take a while, and are those of every test database.
    (tmp_path / "var" / "demo").mkdir(parents=True)
    shutil.copy(migrated_file(), tmp_path / "var" / "demo" / "reference.db")
    demo = start()
    demo.wait_for(lambda: "The history of 1 days is there" in demo.said(), "the history")
    assert f"http://127.0.0.1:{demo.port}/" in demo.said()
    assert not re.search(r" (INFO|WARNING) \w", demo.said()), "its words, and no line of a log"
    assert demo.get("/readyz").status_code == 200
    check_processes(demo)
    check_sign_ins(demo)
    check_yesterday(demo)
    check_portal_is_empty(demo)
    check_second_is_refused(demo)
    assert demo.stop(signal.SIGINT) == 0
    check_gone(demo)


@pytest.mark.exhaustive
def test_a_demo_without_a_database_makes_one_and_the_next_start_goes_on_with_it(
    start: Callable[[], Running],
) -> None:
    """That a backfill goes on where it was is held for each run by tests/usage/test_schedule.py."""
    demo = start()
    demo.wait_for(lambda: "The history of 1 days is there" in demo.said(), "the history")
    check_yesterday(demo)
    assert demo.stop(signal.SIGINT) == 0
    check_gone(demo)

    again = start()
    again.wait_for(lambda: "The history of 1 days is there" in again.said(), "the history")
    assert yesterday().isoformat() not in again.said(), "collected again what was complete"
    assert again.stop(signal.SIGTERM) == 0
    check_gone(again)


def yesterday() -> datetime:
    return datetime.now(ZONE).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(1)


def check_processes(demo: Running) -> None:
    running = "\n".join(processes_of(demo.var))
    for part in ("lab serve", "gunicorn", "celery -A gpuportal worker", "beat", "manage.py watch"):
        demo.wait_for(lambda part=part: part in "\n".join(processes_of(demo.var)), part)  # type: ignore[misc]  # bound early
    assert "manage.py backfill" not in running


def check_sign_ins(demo: Running) -> None:
    shown = dict(re.findall(r"sign in as (\w+) +(\S+)", demo.said()))
    assert shown == {person.name: PASSWORD for person in PEOPLE}
    url = f"http://127.0.0.1:{demo.port}/sign-in/"
    for name, password in shown.items():
        with requests.Session() as browser:
            page = browser.get(url, timeout=30).text
            token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
            assert token is not None
            form = {"username": name, "password": password, "csrfmiddlewaretoken": token.group(1)}
            answer = browser.post(url, data=form, timeout=30, allow_redirects=False)
            assert answer.status_code == 302, name


def check_yesterday(demo: Running) -> None:
    """Hold the newest whole day against the worked example."""
    named = re.search(r"for commands: (DATABASE_URL)=(\S+)", demo.said())
    assert named is not None
    asked = subprocess.run(  # noqa: S603 - our own words
        [*MANAGE, "issue_token", "admin"],
        env={**environment(demo.var, demo.port, demo.lab_port), named.group(1): named.group(2)},
        check=True,
        capture_output=True,
        text=True,
    )
    first, last = yesterday(), yesterday() + timedelta(days=1)
    query = f"start={first.date()}&end={last.date()}&interval=total"
    answer = demo.get(f"/api/v1/usage?{query}", asked.stdout.splitlines()[-1])
    assert answer.status_code == 200, answer.text
    (row,) = answer.json()["results"]
    hours = (last.timestamp() - first.timestamp()) / 3600
    for name, gpus in (
        ("capacity", ALLOCATED),
        ("allocated", ALLOCATED),
        ("busy", BUSY),
        ("idle", IDLE),
        ("underused", UNDERUSED),
    ):
        assert row[f"{name}_gpu_hours"] == pytest.approx(gpus * hours, rel=1e-3), name


def check_portal_is_empty(demo: Running) -> None:
    """What `make run` serves beside the demo, or after it, holds nothing of it."""
    assert not (demo.var / "portal.db").exists()
    assert not (demo.var / "queue").exists() or not list(
        (demo.var / "queue" / "messages").iterdir()
    )


def check_second_is_refused(demo: Running) -> None:
    second = subprocess.run(  # noqa: S603 - our own words
        [*MANAGE, "demo"],
        env=environment(demo.var, free_port(), free_port()),
        check=False,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    assert second.returncode == 1
    assert "a demo is running from" in second.stderr
    assert str(demo.process.pid) in second.stderr


def check_gone(demo: Running) -> None:
    assert processes_of(demo.var) == []
    assert not accepts(demo.port)
    assert not accepts(demo.lab_port)
    assert "Traceback" not in demo.said()


def test_a_port_in_use_is_named_with_the_variable_that_chooses_another() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"port {port} .* LAB_PORT={port + 10} make demo"):
            check_ports({"PORT": free_port(), "LAB_PORT": port})


def test_one_port_for_both_is_refused() -> None:
    with pytest.raises(CommandError, match="PORT and LAB_PORT must be different"):
        check_ports({"PORT": 8000, "LAB_PORT": 8000})


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(CommandError, match=r"port 70000 of 127\.0\.0\.1 cannot be used"):
        check_ports({"PORT": 70000})


def test_the_database_of_a_real_portal_is_left_alone() -> None:
    with pytest.raises(CommandError, match=r"not the demo's \(west\)"):
        refuse_foreign(["lab", "west"])
    refuse_foreign(["lab"])
    refuse_foreign([])


def told_by_demo(tmp_path: Path, **given: str) -> str:
    """Start the demo where it must not start, and return what it says."""
    refused = subprocess.run(  # noqa: S603 - our own words
        [*MANAGE, "demo"],
        env={**environment(tmp_path, free_port(), free_port()), **given},
        check=False,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    return refused.stderr


def test_production_has_no_demo(tmp_path: Path) -> None:
    production = {
        "GPUPORTAL_ENV": "production",
        "GPUPORTAL_SECRET_KEY": "0123456789abcdefghijABCDEFGHIJ-0123456789abcdefghijABCDEFGHIJ",
        "GPUPORTAL_ALLOWED_HOSTS": "gpu.example.org",
    }
    assert "GPUPORTAL_ENV=production: the demo makes" in told_by_demo(tmp_path, **production)
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("variable", ["PORT", "LAB_PORT"])
@pytest.mark.parametrize("value", ["0", "65536", "http"])
def test_a_port_of_the_environment_that_is_none_is_refused(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(CommandError, match=f"^{variable}=.*1 to 65535"):
        ports()


def test_words_that_it_cannot_follow_are_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apps.operations.management.commands.demo.place_of", None)
    monkeypatch.setenv("SCENARIO", "../portal")
    with pytest.raises(CommandError, match="the demo knows reference, helios, openb, campus"):
        call_command("demo")
    monkeypatch.setenv("SCENARIO", "reference")
    monkeypatch.setenv("PORT", "0")
    with pytest.raises(CommandError, match=r"^PORT=0"):
        call_command("demo")


def test_the_accounts_of_a_real_portal_keep_the_demo_out(tmp_path: Path) -> None:
    database = tmp_path / "real.db"
    given = {**environment(tmp_path, 1, 2), "DATABASE_URL": f"sqlite:///{database}"}
    shutil.copy(migrated_file(), database)
    subprocess.run(  # noqa: S603 - our own words
        [*MANAGE, "person", "ada", "--role", "viewer"],
        env=given,
        check=True,
        input=b"a long password of mine\n",
    )
    before = people_in(database)
    told = told_by_demo(tmp_path, DATABASE_URL=f"sqlite:///{database}")
    assert "holds accounts that the demo did not make" in told
    assert people_in(database) == before


def test_a_database_of_another_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    database = tmp_path / "old.db"
    with contextlib.closing(sqlite3.connect(database)) as old:
        old.execute(
            "CREATE TABLE django_migrations (id INTEGER, app TEXT, name TEXT, applied TEXT)"
        )
        old.execute(
            "INSERT INTO django_migrations VALUES (1, 'pending', '0002_of_before', '2026-01-01')"
        )
        old.commit()
    assert told_by_demo(tmp_path, DATABASE_URL=f"sqlite:///{database}") == (
        f"CommandError: another version of the portal made the database {database}: "
        "move the file away to start with an empty one\n"
    )


def people_in(database: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(database)) as portal:
        return portal.execute("SELECT * FROM accounts_user ORDER BY id").fetchall()


@pytest.mark.django_db
def test_an_account_that_the_demo_did_not_make_keeps_its_password_and_role() -> None:
    people = get_user_model().objects
    people.create_user("ada", email="ada@example.org", password="a long password of mine")
    with pytest.raises(PlaceTaken, match="accounts that the demo did not make"):
        refuse_accounts()
    made = ensure_people()
    assert [person.name for person in made] == ["ben", "admin", "finn"]
    ada = people.get(username="ada")
    assert ada.check_password("a long password of mine")
    assert ada.role == "viewer"
    # From now on this is the demo's database, with somebody's account in it.
    refuse_accounts()


@pytest.mark.django_db
def test_the_people_of_the_demo_get_their_passwords_back() -> None:
    assert ensure_people() == list(PEOPLE)
    ada = get_user_model().objects.get(username="ada")
    ada.set_password("another")
    ada.is_active = False
    ada.save()
    assert ensure_people() == list(PEOPLE)
    ada.refresh_from_db()
    assert ada.check_password(PASSWORD)
    assert ada.is_active


def test_a_database_of_ones_own_is_told_apart_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://portal:geheim@db/portal")
    named = {"ENGINE": "e", "NAME": "portal", "HOST": "db", "PASSWORD": "geheim"}
    monkeypatch.setitem(settings.DATABASES, "default", named)
    assert place_of("reference").own_url == "e db  portal"
