"""`demo`: the whole portal on a simulated cluster, one command to start and to stop it."""

import http.client
import json
import logging
import os
import socket
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, connections

from apps.operations.management.commands.migrate import check_database_version
from apps.operations.management.demo_directory import (
    APART,
    PASSWORD,
    PEOPLE,
    DemoDirectory,
    PlaceTaken,
    RealAccounts,
    check_accounts,
)
from apps.operations.management.supervisor import (
    LOG_LEVEL,
    NotReady,
    ProcessEnded,
    Stopped,
    Supervisor,
    portal_commands,
    program_path,
    shell,
)
from gpuportal import env

DEFAULT_SCENARIO = "campus"
DEFAULT_LAB_PORT = 9095
# How many days each scenario's trace has: it is laid to end at the midnight before the first start.
TRACE_DAYS = {"reference": 31, "helios": 24, "openb": 34, "campus": 35, "campus-failures": 35}
_DAYS = 14
"""Of history that are collected before older days follow in the background."""
_FIRST_DAYS = 1
_TRIES = 3
_ORIGIN = "GPUPORTAL_LAB_ORIGIN"
_LAB_SECONDS = 120.0
_WEB_SECONDS = 60.0
_MANAGE = (sys.executable, str(settings.BASE_DIR / "manage.py"))


class Command(BaseCommand):
    help = "Serve the portal on a simulated cluster with weeks of history, until Ctrl-C."
    # Before its own migrations have run, the database has nothing to check.
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--scenario", default=env.text("SCENARIO", DEFAULT_SCENARIO))
        parser.add_argument(
            "--days",
            type=int,
            default=_DAYS,
            help="of history before today that are collected first",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        refuse_production()
        scenario = options["scenario"]
        if scenario not in TRACE_DAYS:
            raise CommandError(f"SCENARIO={scenario}: the demo knows {', '.join(TRACE_DAYS)}")
        port, lab_port = ports()
        check_ports({"PORT": port, "LAB_PORT": lab_port})
        place = place_of(scenario)
        if not (os.environ.get("DATABASE_URL") or os.environ.get("DATABASE_URL_FILE")):
            start_again(place)
        try:
            with place.locked(), only_warnings():
                Demo(self, place, port, lab_port, options["verbosity"]).run(options["days"])
        except PlaceTaken as error:
            raise CommandError(str(error)) from error


@contextmanager
def only_warnings() -> Iterator[None]:
    """Keep the terminal to the demo's own words and to warnings, unless a log level is asked for.

    Its processes log to files, with all there is.
    """
    root = logging.getLogger()
    before = root.level
    root.setLevel(before if LOG_LEVEL in os.environ else logging.WARNING)
    try:
        yield
    finally:
        root.setLevel(before)


class Demo:
    """One run of the demo, step by step."""

    def __init__(
        self, command: BaseCommand, place: DemoDirectory, port: int, lab_port: int, verbosity: int
    ) -> None:
        self._verbosity = str(verbosity)
        self._command = command
        self._place = place
        self._scenario = place.scenario
        self._people: list[str] = []
        self._clusters: list[str] = []
        self._port = port
        self._lab_port = lab_port
        self._commands = portal_commands()

    def run(self, days: int) -> None:
        """Start everything and stay until asked to stop. Raises CommandError and PlaceTaken."""
        origin = self._lay()
        environment = {**child_environment(self._place, self._port), _ORIGIN: origin}
        try:
            logs = self._place.folder / "logs"
            with Supervisor(settings.BASE_DIR, logs, environment) as supervisor:
                self._serve(supervisor, origin, environment, days)
        except Stopped:
            self._say("Stopped. The data is kept: `make demo` goes on where it was.")
        except NotReady as error:
            raise CommandError(f"the demo did not start: {error}") from error
        except ProcessEnded as error:
            raise CommandError(
                f"{error}, so the demo stopped. Its last words:\n{error.tail}"
            ) from error

    def _serve(
        self, supervisor: Supervisor, origin: str, environment: Mapping[str, str], days: int
    ) -> None:
        try:
            self._lab(supervisor, origin, environment, self._write_catalog(environment))
            self._web(supervisor)
            # A whole day first, with the machine's cores for itself.
            self._backfill(supervisor, min(days, _FIRST_DAYS))
            for name in ("watch", "worker", "quota_requests"):
                supervisor.start(name, shell(self._commands[name]))
            self._fill(supervisor, days)
            supervisor.wait()
        except Stopped:
            # The worker finishes its hour, which takes a few seconds.
            self._say("\nStopping …")
            raise

    def _lay(self) -> str:
        """Return where in time the trace starts: where it did when the database was begun.

        Laid anew at each start, tomorrow's simulated past would not be the one that was
        collected today. Raises PlaceTaken, and CommandError for another version's database.
        """
        laid = self._place.origin()
        check_database_version(connection)
        refuse_accounts()
        connections.close_all()
        asked = env.text(_ORIGIN, "")
        if laid is None:
            return asked or origin_of(self._scenario, datetime.now(UTC))
        if asked not in {"", laid}:
            raise PlaceTaken(
                f"the database was collected from {_ORIGIN}={laid}, not {asked}: leave it out, or "
                "begin another one with GPUPORTAL_VAR_DIR"
            )
        return laid

    def _write_catalog(self, environment: Mapping[str, str]) -> Path:
        """Ask the lab for the scenario's catalog; raises CommandError when it has none."""
        words = ["lab", "catalog", "--scenario", self._scenario, "--port", str(self._lab_port)]
        path = self._place.folder / "catalog.yaml"
        path.write_text(self._answer(words, environment), encoding="utf-8")
        return path

    def _answer(self, words: Sequence[str], environment: Mapping[str, str]) -> str:
        """Return what a command prints. Raises CommandError with what it says when it fails."""
        answer = subprocess.run(  # noqa: S603 - our own command
            [*_MANAGE, *words],
            check=False,
            capture_output=True,
            text=True,
            env=dict(environment),
            start_new_session=True,  # a Ctrl-C is for the demo, which stops at its next wait
        )
        if answer.returncode != 0:
            raise CommandError(answer.stderr.strip().removeprefix("CommandError: "))
        return answer.stdout

    def _lab(
        self, supervisor: Supervisor, origin: str, environment: Mapping[str, str], catalog: Path
    ) -> None:
        """Start the simulated cluster, and lay the database while it comes up."""
        self._say(f"Starting the simulated cluster {self._scenario!r} …")
        words = ["lab", "serve", "--scenario", self._scenario, "--port", str(self._lab_port)]
        supervisor.start("lab", [*_MANAGE, *words])
        # A process of its own: what it loads is gone while the demo runs on.
        laid = json.loads(self._answer(["demo_story", "begin", str(catalog)], environment))
        self._people, self._clusters = laid["people"], laid["clusters"]
        self._place.note(origin)
        supervisor.wait_until(
            lambda: answers(self._lab_port, "/-/ready"),
            what="the simulated cluster did not answer",
            seconds=_LAB_SECONDS,
        )

    def _web(self, supervisor: Supervisor) -> None:
        """Start the pages, and say where they are once they answer."""
        supervisor.start("web", shell(self._commands["web"]))
        supervisor.wait_until(
            lambda: answers(self._port, "/livez"),
            what="the portal did not answer",
            seconds=_WEB_SECONDS,
        )
        people = [person for person in PEOPLE if person.name in self._people]
        width = max((len(person.name) for person in people), default=0)
        self._say(f"\nThe portal: http://127.0.0.1:{self._port}/")
        for person in people:
            self._say(f"  sign in as {person.name:<{width}}  {PASSWORD}  ({person.what})")
        if self._place.own_url is None:
            self._say(f"  for commands: DATABASE_URL={own_database(self._place)}")
        self._say("Collecting its history, newest day first. Ctrl-C stops everything.\n")

    def _fill(self, supervisor: Supervisor, days: int) -> None:
        """Collect the newest days, then let beat go on, then collect the older ones.

        Beat fills gaps of the newest days itself: together they would do each hour twice.
        """
        whole = self._backfill(supervisor, days)
        supervisor.start("beat", shell(self._commands["beat"]))
        supervisor.run("requests", [*_MANAGE, "demo_story", "requests"])
        if whole:
            self._say(f"The history of {days} days is there. Ctrl-C stops everything.")
        else:
            self._say("Parts of the history are missing, see above; beat tries them again.")
        every = TRACE_DAYS[self._scenario]
        if days != _DAYS:
            return
        # Beside the portal at work a slow machine may lose a collector to SQLite's lock.
        if any(self._backfill(supervisor, every) for _ in range(_TRIES)):
            supervisor.run("month", [*_MANAGE, "demo_story", "month"])
            self._say(f"The whole history of {every} days is there. Ctrl-C stops everything.")
        else:
            self._say("Older days are missing, see above. Stop the demo and start it to go on.")

    def _backfill(self, supervisor: Supervisor, days: int) -> bool:
        """Collect so many days of history; say whether all of them are there."""
        words = ["backfill", "--days", str(days), "--jobs", "2", "--verbosity", self._verbosity]
        for name in self._clusters:
            words += ["--cluster", name]
        return supervisor.run("backfill", [*_MANAGE, *words]) == 0

    def _say(self, text: str) -> None:
        self._command.stdout.write(text)
        self._command.stdout.flush()


def origin_of(scenario: str, now: datetime) -> str:
    """Return the start of a trace that ends at the last midnight UTC, RFC 3339.

    Raises CommandError for a scenario that the demo does not know.
    """
    if scenario not in TRACE_DAYS:
        raise CommandError(f"SCENARIO={scenario}: the demo knows {', '.join(TRACE_DAYS)}")
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - timedelta(days=TRACE_DAYS[scenario])).isoformat()


def check_ports(ports: Mapping[str, int]) -> None:
    """Raise CommandError when a port is taken, naming the variable that chooses another."""
    if len(set(ports.values())) < len(ports):
        raise CommandError(f"{' and '.join(ports)} must be different ports")
    for variable, port in ports.items():
        with socket.socket() as listener:
            # As servers do: a port whose last connections are still closing is free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                raise CommandError(
                    f"port {port} of 127.0.0.1 cannot be used ({error}): stop what listens "
                    f"there, or choose another: {variable}={port + 10} make demo"
                ) from error


def refuse_production() -> None:
    """Raise CommandError in production: the demo's people have passwords that everybody knows."""
    if settings.PRODUCTION:
        raise CommandError(
            "GPUPORTAL_ENV=production: the demo makes accounts whose passwords everybody knows, "
            "so it does not run there. Start it without GPUPORTAL_ENV"
        )


def ports() -> tuple[int, int]:
    """Return the ports of the portal and the lab; raises CommandError when one is none."""
    try:
        return env.port("PORT", 8000), env.port("LAB_PORT", DEFAULT_LAB_PORT)
    except env.EnvironmentValueError as error:
        raise CommandError(f"{error}: a port from 1 to 65535 is needed") from error


def place_of(scenario: str) -> DemoDirectory:
    """Return where this scenario's data is: the demo's own file unless DATABASE_URL names another.

    The text that tells that one apart holds no password.
    """
    own = DemoDirectory(settings.VAR_DIR, scenario)
    named = settings.DATABASES["default"]
    given = os.environ.get("DATABASE_URL") or os.environ.get("DATABASE_URL_FILE")
    if not given or str(named["NAME"]) == str(own.database.absolute()):
        return own
    parts = [str(named.get(part, "")) for part in ("ENGINE", "HOST", "PORT", "NAME")]
    return DemoDirectory(settings.VAR_DIR, scenario, own_url=" ".join(parts))


def own_database(place: DemoDirectory) -> str:
    """Return the DATABASE_URL of the demo's own file."""
    return f"sqlite:///{quote(str(place.database.absolute()))}"


def start_again(place: DemoDirectory) -> NoReturn:
    """Make way for this same command on the demo's own database.

    A process has the database of its settings for life, and that one is the portal's.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "DATABASE_URL": own_database(place)}
    words = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, words, environment)  # noqa: S606 - our own words


def refuse_accounts() -> None:
    """Raise PlaceTaken when a real portal's accounts are in the database, which may be empty.

    The demo's people have passwords that everybody knows. Before migrations, so that not even
    its tables are touched.
    """
    if get_user_model()._meta.db_table not in connection.introspection.table_names():
        return
    try:
        check_accounts()
    except RealAccounts as error:
        raise PlaceTaken(
            f"the database holds accounts that the demo did not make: {APART}"
        ) from error


def child_environment(place: DemoDirectory, port: int) -> dict[str, str]:
    """Return the environment of the processes: this Python's programs first, and the port.

    Queue, schedule and cache are their own, so that no message of the demo reaches a real portal's
    worker, or the other way round.
    """
    place.work.mkdir(parents=True, exist_ok=True)
    apart = ("CELERY_BROKER_URL", "CACHE_URL")
    kept = {k: v for k, v in os.environ.items() if k.removesuffix("_FILE") not in apart}
    own = {
        "PATH": program_path(),
        "PORT": str(port),
        "GPUPORTAL_VAR_DIR": str(place.work.absolute()),
    }
    # What of the pods of the simulator tells who runs them; what is set by hand counts first.
    persons = {"GPUPORTAL_PEOPLE": "jupyterhub,created-by", "GPUPORTAL_PEOPLE_CAP_GPUS": "4"}
    return {**persons, **kept, **own, "PYTHONUNBUFFERED": "1"}


def answers(port: int, path: str) -> bool:
    """Say whether a server on 127.0.0.1 answers 200 there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
