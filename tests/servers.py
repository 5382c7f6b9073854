"""Temporary servers for tests: PostgreSQL and Redis on free ports of 127.0.0.1.

`python -m tests.servers -- COMMAND …` runs a command with DATABASE_URL naming a fresh PostgreSQL
and GPUPORTAL_VAR_DIR a fresh folder, then stops the server, removes both, and answers with the
command's exit code. `--sqlite` does the same without PostgreSQL. Both find a database that is
migrated already (see `migrated_file`): its name or path is in GPUPORTAL_TEST_TEMPLATE.
"""

import argparse
import hashlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import psycopg

from tests.programs import find

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = "GPUPORTAL_TEST_TEMPLATE"
START_SECONDS = 60.0
STOP_SECONDS = 20.0
_POLL_SECONDS = 0.05
_INITDB_OPTIONS = (
    "--username=portal",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--no-locale",
    "--no-sync",
)
_MIGRATED = "migrated"  # the database of a kept server that others are copied from
_TRIES = 3  # another process may take the free port before the server does


class ServerFailed(RuntimeError):
    """A server did not come up; holds the end of its log."""


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Say whether something listens on the port of 127.0.0.1."""
    with socket.socket() as client:
        client.settimeout(1.0)
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def temporary_postgres(like: Path | None = None, *, autovacuum: str = "on") -> Iterator[str]:
    """Run a PostgreSQL of its own and yield its DATABASE_URL.

    It begins empty, or as a copy of the folder `like`. It forgets everything and does not wait
    for the disk. PostgreSQL refuses to run as root, so root hands it to the account `postgres`.
    Raises ProgramMissing and ServerFailed.
    """
    # Both from one folder: several versions may be installed, and one alone in PATH.
    initdb = find("initdb").resolve()
    account = "postgres" if os.geteuid() == 0 else None
    with _folder("gpuportal-postgres-", account) as home:
        if like is None:
            _make_cluster(initdb, home, account)
        else:
            shutil.copytree(like, home, dirs_exist_ok=True)
            for path in [home, *home.rglob("*")]:
                _give(path, account)
        postgres = initdb.with_name("postgres")
        with _postgres(postgres, home, account, autovacuum=autovacuum) as url:
            yield url


@contextmanager
def temporary_standby(primary: str) -> Iterator[str]:
    """Run a standby that replays what a PostgreSQL writes, and yield the URL of the same database.

    Raises ProgramMissing and ServerFailed.
    """
    initdb = find("initdb").resolve()
    account = "postgres" if os.geteuid() == 0 else None
    with _folder("gpuportal-standby-", account) as home:
        (home / "password").write_text(urlsplit(primary).password or "", encoding="ascii")
        copy = [str(initdb.with_name("pg_basebackup")), "--dbname", primary]
        subprocess.run(  # noqa: S603 - our own words
            [*copy, "--pgdata", str(home / "data"), "--checkpoint=fast", "--write-recovery-conf"],
            check=True,
            cwd=home,
            user=account,
            group=account,
            extra_groups=[] if account else None,
        )
        with _postgres(initdb.with_name("postgres"), home, account) as url:
            yield url.removesuffix("postgres") + urlsplit(primary).path.removeprefix("/")


class StoppedPostgres:
    """A PostgreSQL of a test's own that is stopped in the middle of its work and started again.

    Unlike the others it has written a transaction down when it says so. `url` is that of its
    database `postgres`.
    """

    def __init__(self, home: Path, like: Path, wal: Path | None = None) -> None:
        self._home, self._initdb = home, find("initdb").resolve()
        self._account = "postgres" if os.geteuid() == 0 else None
        self._running = ExitStack()
        self.port = free_port()
        shutil.copytree(like, home, dirs_exist_ok=True)
        if wal is not None:
            log = home / "data" / "pg_wal"
            shutil.copytree(log, wal, dirs_exist_ok=True)
            shutil.rmtree(log)
            log.symlink_to(wal)
        for path in [home, *home.rglob("*"), *([wal, *wal.rglob("*")] if wal else ())]:
            _give(path, self._account)
        password = (home / "password").read_text(encoding="ascii")
        self.url = f"postgresql://portal:{password}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it and wait until it answers. Raises ServerFailed."""
        self._running.enter_context(
            _postgres(
                self._initdb.with_name("postgres"),
                self._home,
                self._account,
                fixed_port=self.port,
                synchronous_commit="on",
            )
        )

    def new_database(self) -> str:
        """Make a migrated database and return its URL."""
        name = f"portal_{secrets.token_hex(6)}"
        with psycopg.connect(self.url, autocommit=True) as session:
            session.execute(f"CREATE DATABASE {name} TEMPLATE {_MIGRATED}".encode())
        return self.url.removesuffix("postgres") + name

    def stop_at_once(self) -> None:
        """Let its processes end without a word to anybody; the next start recovers."""
        pg_ctl = str(self._initdb.with_name("pg_ctl"))
        subprocess.run(  # noqa: S603 - our own words
            [pg_ctl, "stop", "--mode=immediate", "--silent", "-D", str(self._home / "data")],
            check=True,
            cwd=self._home,
            user=self._account,
            group=self._account,
            extra_groups=[] if self._account else None,
        )
        self.stop()

    def wait_for_end(self) -> None:
        """Wait until it has ended by itself. Raises ServerFailed."""
        deadline = time.monotonic() + STOP_SECONDS
        while accepts(self.port):
            if time.monotonic() > deadline:
                raise ServerFailed("PostgreSQL goes on")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Stop it, if it runs."""
        self._running.close()


@contextmanager
def stopped_postgres(
    folder: Path | None = None, *, wal: Path | None = None
) -> Iterator[StoppedPostgres]:
    """Yield such a PostgreSQL that runs, in a folder of its own or in `folder`.

    Its write-ahead log is there too, or in the folder `wal`.
    """
    with ExitStack() as stack:
        account = "postgres" if os.geteuid() == 0 else None
        home = folder or stack.enter_context(_folder("gpuportal-postgres-", account))
        server = StoppedPostgres(home, migrated_cluster(), wal)
        stack.callback(server.stop)
        server.start()
        yield server


@contextmanager
def _postgres(
    postgres: Path, home: Path, account: str | None, *, fixed_port: int = 0, **others: str
) -> Iterator[str]:
    """Serve the cluster of a folder and yield the URL of its database `postgres`."""
    password = (home / "password").read_text(encoding="ascii")

    def command(port: int) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            # Tables as small as those of tests never repay compiling or another process.
            "jit": "off",
            "max_parallel_workers_per_gather": "0",
            "max_connections": "60",
            **others,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(postgres), "-D", str(home / "data"), *options]

    def url(port: int) -> str:
        return f"postgresql://portal:{password}@127.0.0.1:{port}/postgres"

    def ready(port: int) -> bool:
        # It accepts connections, to refuse them, while it is still starting up.
        try:
            psycopg.connect(url(port), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    # SIGINT is PostgreSQL's fast shutdown: open sessions are cut, not waited for.
    stop = signal.SIGINT
    with _running(
        command, ready, home, account=account, stop_signal=stop, fixed_port=fixed_port
    ) as port:
        yield url(port)


def _make_cluster(initdb: Path, home: Path, account: str | None) -> None:
    secret = home / "password"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_urlsafe(16), encoding="ascii")
    _give(secret, account)
    subprocess.run(  # noqa: S603 - our own words
        [str(initdb), *_INITDB_OPTIONS, "-D", str(home / "data"), "--pwfile", str(secret)],
        check=True,
        cwd=home,
        user=account,
        group=account,
        extra_groups=[] if account else None,
        stdout=subprocess.DEVNULL,
    )


# ---------------------------------------------------------------- migrated once


def migrated_file() -> Path:
    """Return a migrated SQLite database to copy; it is made when a migration has changed."""

    def make(place: Path) -> None:
        _migrate(f"sqlite:///{place / 'portal.db'}")

    return kept("sqlite", make) / "portal.db"


def migrated_cluster() -> Path:
    """Return the folder of a PostgreSQL whose database `migrated` is a template; see above."""
    initdb = find("initdb").resolve()
    account = "postgres" if os.geteuid() == 0 else None

    def make(place: Path) -> None:
        with _folder("gpuportal-postgres-", account) as home:
            _make_cluster(initdb, home, account)
            with (
                _postgres(initdb.with_name("postgres"), home, account) as url,
                psycopg.connect(url, autocommit=True) as session,
            ):
                session.execute(f"CREATE DATABASE {_MIGRATED}".encode())
                _migrate(url.removesuffix("postgres") + _MIGRATED)
                # A database is copied only while nobody, autovacuum included, is in it.
                session.execute(f"ALTER DATABASE {_MIGRATED} ALLOW_CONNECTIONS false".encode())
            shutil.copytree(home, place, dirs_exist_ok=True)

    version = subprocess.run([str(initdb), "--version"], capture_output=True, check=True)  # noqa: S603 - our own words
    return kept("postgresql", make, version.stdout)


def kept(name: str, make: Callable[[Path], None], *depends: bytes) -> Path:
    """Return a folder under var/ that `make` filled for these very migrations."""
    parent = ROOT / "var" / "tests"
    place = parent / f"{name}-{_digest(*depends)}"
    if not place.exists():
        parent.mkdir(parents=True, exist_ok=True)
        for old in parent.glob(f"{name}-*"):
            shutil.rmtree(old, ignore_errors=True)
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=parent))
        try:
            make(unfinished)
            os.sync()  # the servers do not wait for the disk, but this outlives them
            unfinished.rename(place)
        except OSError:
            # Another run was faster, or it failed.
            if not place.exists():
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return place


def _digest(*depends: bytes) -> str:
    """Return a digest of the migrations, of what they import, and of the libraries' versions."""
    digest = hashlib.sha256(repr((depends, _INITDB_OPTIONS)).encode())
    for name in ("requirements.txt", "apps/operations/management/empty_database.py"):
        digest.update((ROOT / name).read_bytes())
    for path in sorted(ROOT.glob("apps/*/migrations/*.py")):
        text = path.read_text(encoding="utf-8")
        imported = re.findall(r"^from (apps[\w.]+) import", text, re.MULTILINE)
        modules = [ROOT / f"{module.replace('.', '/')}.py" for module in imported]
        for part in (path, *modules):
            digest.update(part.name.encode() + part.read_bytes())
    return digest.hexdigest()[:16]


def _migrate(url: str) -> None:
    subprocess.run(  # noqa: S603 - our own words
        [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity", "0"],
        env=os.environ | {"DATABASE_URL": url},
        check=True,
    )


@contextmanager
def temporary_redis(password: str = "", fixed_port: int = 0) -> Iterator[str]:
    """Run a Redis of its own that writes nothing down, and yield its URL.

    Where one was killed, another may take its port. Raises ProgramMissing and ServerFailed.
    """
    redis = find("redis-server")
    secret = ["--requirepass", password] if password else []
    signed = f":{password}@" if password else ""

    def command(port: int) -> list[str]:
        listen = ["--bind", "127.0.0.1", "--port", str(port)]
        return [str(redis), *listen, "--save", "", "--appendonly", "no", *secret]

    with (
        _folder("gpuportal-redis-", None) as home,
        _running(
            command,
            accepts,
            home,
            account=None,
            stop_signal=signal.SIGTERM,
            fixed_port=fixed_port,
        ) as port,
    ):
        yield f"redis://{signed}127.0.0.1:{port}/0"


@contextmanager
def temporary_sentinel(redis_url: str, master: str, password: str) -> Iterator[str]:
    """Run a Sentinel that watches a Redis under a name, and yield its `sentinel://` URL."""
    server = find("redis-server")
    watched = urlsplit(redis_url)
    with _folder("gpuportal-sentinel-", None) as home:

        def command(port: int) -> list[str]:
            settings = home / "sentinel.conf"
            settings.write_text(
                f"bind 127.0.0.1\nport {port}\nrequirepass {password}\n"
                f"sentinel monitor {master} {watched.hostname} {watched.port} 1\n",
                encoding="ascii",
            )
            return [str(server), str(settings), "--sentinel"]

        with _running(command, accepts, home, account=None, stop_signal=signal.SIGTERM) as port:
            yield f"sentinel://127.0.0.1:{port}/0"


@contextmanager
def temporary_pgbouncer(url: str) -> Iterator[str]:
    """Run a PgBouncer in transaction mode before a database, and yield the URL through it.

    It has two sessions of the database for all its clients, so that these get another one with
    almost each transaction. Raises ProgramMissing and ServerFailed.
    """
    pgbouncer = find("pgbouncer")
    parts = urlsplit(url)
    account = "postgres" if os.geteuid() == 0 else None
    name = parts.path.removeprefix("/")
    with _folder("gpuportal-pgbouncer-", account) as home:

        def command(port: int) -> list[str]:
            settings = home / "pgbouncer.ini"
            settings.write_text(
                "[databases]\n"
                f"{name} = host={parts.hostname} port={parts.port} dbname={name} "
                f"user={parts.username} password={parts.password}\n"
                "[pgbouncer]\nlisten_addr = 127.0.0.1\n"
                f"listen_port = {port}\nauth_type = any\npool_mode = transaction\n"
                "default_pool_size = 2\nmax_client_conn = 50\nserver_round_robin = 1\n",
                encoding="utf-8",
            )
            _give(settings, account)
            return [str(pgbouncer), str(settings)]

        with _running(command, accepts, home, account=account, stop_signal=signal.SIGINT) as port:
            yield f"postgresql://{parts.username}@127.0.0.1:{port}/{name}"


@contextmanager
def _running(
    command: Callable[[int], list[str]],
    ready: Callable[[int], bool],
    home: Path,
    *,
    account: str | None,
    stop_signal: signal.Signals,
    fixed_port: int = 0,
) -> Iterator[int]:
    """Start a server on a free port, yield the port once it is ready, stop it by its pid."""
    log = home / "log"
    for _ in range(_TRIES):
        port = fixed_port or free_port()
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own words
                command(port),
                cwd=home,
                user=account,
                group=account,
                extra_groups=[] if account else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A Ctrl-C on the terminal is for pytest, which stops the server when it is done.
                start_new_session=True,
            )
        try:
            if _came_up(process, partial(ready, port)):
                yield port
                return
        finally:
            _stop(process, stop_signal)
    text = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise ServerFailed(f"{command(0)[0]} did not come up:\n{text}")


def _came_up(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> bool:
    """Wait until the server is ready; False when it ended instead, or was too slow."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        if ready():
            return True
        try:
            process.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return False


def _stop(process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(stop_signal)
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _folder(prefix: str, account: str | None) -> Iterator[Path]:
    """Make a folder under the temporary directory, which any account can reach, and remove it."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    _give(path, account)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _give(path: Path, account: str | None) -> None:
    if account is not None:
        shutil.chown(path, account, account)


def _stop_on_termination(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run the command to its end, or end it when this process is asked to end."""
    process = subprocess.Popen(list(command), env=environment)  # noqa: S603 - the caller's words
    try:
        return process.wait()
    finally:
        _stop(process, signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Run the command after `--`; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("--sqlite", action="store_true", help="no PostgreSQL: SQLite in memory")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop_on_termination)
    with ExitStack() as stack:
        folder = stack.enter_context(_folder("gpuportal-var-", None))
        environment = {**os.environ, "GPUPORTAL_VAR_DIR": str(folder)}
        for name in ("CELERY_BROKER_URL", "CACHE_URL"):
            environment.pop(name, None)
        if options.sqlite:
            environment |= {
                "DATABASE_URL": f"sqlite:///{folder / 'tests.db'}",
                TEMPLATE: str(migrated_file()),
            }
        else:
            # Autovacuum would count the rows of a test's open transaction as none: queries that
            # join them then take minutes. `saved_rows.vacuum` takes its place. What is measured
            # has it, as in production.
            server = stack.enter_context(temporary_postgres(migrated_cluster(), autovacuum="off"))
            environment |= {"DATABASE_URL": server, TEMPLATE: _MIGRATED}
        return _run(options.command, environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
