"""Typed reading of environment variables, DATABASE_URL among them.

Every reader names the variable in its error, and reads `NAME_FILE` (the path of a file that
holds the value, as container secrets are mounted) when `NAME` itself is not set. No text raised
here repeats a part of a URL that may hold a secret.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

_ORIGIN = re.compile(r"https?://[^\s/?#@]+")
_AMOUNT = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,8})?")
_TRACED = "--traceback" in sys.argv
_MOST = 1_000_000_000
"""Of seconds some 30 years: a time before or after now by more is no date."""
_MOST_DAYS = 36_500
_RATE = re.compile(r"0*[1-9][0-9]*/(?:s|sec|second|m|min|minute|h|hour|d|day)")


class EnvironmentValueError(ValueError):
    """A variable holds a value that the portal cannot use; the text says what is allowed."""


def report_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Write what is wrong with a variable as one sentence, any other error with its traceback.

    Settings are read by every process and command: this is their `sys.excepthook`.
    """
    if isinstance(error, EnvironmentValueError | ImproperlyConfigured) and not _TRACED:
        sys.stderr.write(f"{error}\n")
    else:
        sys.__excepthook__(kind, error, trace)


def text(name: str, default: str) -> str:
    """Return the value of `name`, of the file in `name_FILE`, or `default`."""
    value = os.environ.get(name)
    if value is not None:
        return value
    path = os.environ.get(f"{name}_FILE")
    if path is None:
        return default
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise EnvironmentValueError(f"{name}_FILE={path} cannot be read: {error}") from error
    except UnicodeDecodeError:
        # Without the cause, which holds the bytes.
        raise EnvironmentValueError(f"{name}_FILE={path} is not UTF-8 text") from None


def folder(name: str, default: Path) -> Path:
    """Return a folder, made where it is missing; raises when it cannot be."""
    path = Path(text(name, "") or default)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentValueError(
            f"{name}={path} cannot be made ({error.strerror}): name a folder that this user may "
            "write to"
        ) from error
    return path


def refuse_renamed(old: str, new: str) -> None:
    """Raise when a variable that begins with `old` is set, and name the one that counts now."""
    for name in os.environ:
        if name.startswith(old):
            raise EnvironmentValueError(f"{name} is called {new}{name.removeprefix(old)} now")


def flag(name: str, *, default: bool) -> bool:
    """Return a yes/no value, `default` for an empty one; raises when it is neither."""
    value = text(name, "").lower()
    if value == "":
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise EnvironmentValueError(f"{name}={value!r}: say yes or no")


def whole(name: str, default: int, *, least: int = 0, most: int = _MOST) -> int:
    """Return an integer from `least` to `most`; raises when it is none."""
    value = text(name, str(default))
    try:
        number = int(value)
    except ValueError as error:
        raise EnvironmentValueError(f"{name}={value!r}: a whole number is needed") from error
    if number < least:
        raise EnvironmentValueError(f"{name}={number}: must be {least} or more")
    if number > most:
        raise EnvironmentValueError(f"{name}={number}: must be {most} or less")
    return number


def days(name: str, default: int, *, least: int = 0) -> int:
    """Return a number of days up to a hundred years; raises when it is none."""
    return whole(name, default, least=least, most=_MOST_DAYS)


def port(name: str, default: int) -> int:
    """Return a TCP port; raises when it is none. 0, which means any free one, is none either."""
    return whole(name, default, least=1, most=65_535)


def fraction(name: str, default: float) -> float:
    """Return a number 0..1; raises when it is none."""
    value = text(name, str(default))
    try:
        number = float(value)
    except ValueError as error:
        raise EnvironmentValueError(f"{name}={value!r}: a number 0..1 is needed") from error
    if not 0.0 <= number <= 1.0:
        raise EnvironmentValueError(f"{name}={number}: must lie between 0 and 1")
    return number


def amount(name: str, default: Decimal | None) -> Decimal | None:
    """Return a number of 0 or more, `default` for an empty value; raises when it is none."""
    value = text(name, "").strip()
    if value == "":
        return default
    if not _AMOUNT.fullmatch(value):
        raise EnvironmentValueError(f"{name}={value!r}: a number of 0 or more is needed, as 2.5")
    return Decimal(value)


def one_of(name: str, default: str, allowed: tuple[str, ...]) -> str:
    """Return one of `allowed`; raises when the value is another."""
    value = text(name, default)
    if value not in allowed:
        raise EnvironmentValueError(f"{name}={value!r}: must be one of {', '.join(allowed)}")
    return value


def words(name: str, default: str = "") -> list[str]:
    """Return a comma-separated list, blanks dropped."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def levels(name: str, default: str) -> tuple[float, ...]:
    """Return ascending numbers above 0, separated by commas; raises for anything else."""
    listed = words(name, default)
    try:
        found = tuple(float(word) for word in listed)
    except ValueError:
        found = ()
    if not found or found[0] <= 0 or any(a >= b for a, b in pairwise(found)) or found[-1] == inf:
        raise EnvironmentValueError(
            f"{name}={','.join(listed)!r}: ascending numbers above 0 are needed, as {default}"
        )
    return found


def origins(name: str) -> list[str]:
    """Return a list of origins, as `https://gpu.example.org`; raises when one is none."""
    listed = words(name)
    for word in listed:
        if not _ORIGIN.fullmatch(word):
            raise EnvironmentValueError(
                f"{name}: {word!r} is no origin: scheme and host are needed and nothing after "
                "them, as https://gpu.example.org"
            )
    return listed


def rate(name: str, default: str) -> str:
    """Return `NUMBER/PERIOD`, as `600/min`; raises when it is none."""
    value = text(name, default)
    if not _RATE.fullmatch(value):
        raise EnvironmentValueError(
            f"{name}={value!r}: a number of 1 or more, then /s, /min, /hour or /day, as {default}"
        )
    return value


_FORMS = "sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/NAME is needed"
# What libpq is told; see https://www.postgresql.org/docs/current/libpq-connect.html
POSTGRESQL_OPTIONS = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "connect_timeout",
    "application_name",
    "target_session_attrs",
)
_SESSION_ATTRS = ("any", "read-write", "primary")
_REPLICA_ATTRS = ("any", "read-only", "standby", "prefer-standby")
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


class _UrlRefused(Exception):
    """A URL of a database cannot be used; the text follows the name of its variable."""


def database(url: str) -> dict[str, Any]:
    """Turn a URL into Django's form; raises ImproperlyConfigured naming DATABASE_URL."""
    try:
        return _database(url, _SESSION_ATTRS)
    except _UrlRefused as refused:
        raise ImproperlyConfigured(f"DATABASE_URL {refused}") from None


def replica(url: str, primary: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the URL of a replica of `primary` into Django's form.

    Raises ImproperlyConfigured naming GPUPORTAL_DATABASE_READ_URL.
    """
    name = "GPUPORTAL_DATABASE_READ_URL"
    try:
        read = _database(url, _REPLICA_ATTRS)
    except _UrlRefused as refused:
        raise ImproperlyConfigured(f"{name} {refused}") from None
    if not primary["ENGINE"] == read["ENGINE"] == _POSTGRESQL:
        raise ImproperlyConfigured(
            f"{name} is for PostgreSQL alone: it and DATABASE_URL must both be postgresql://…"
        )
    same = all(read[key] == primary[key] for key in ("HOST", "PORT", "NAME"))
    # Of several hosts a standby is found.
    if same and read["OPTIONS"].get("target_session_attrs", "any") == "any":
        raise ImproperlyConfigured(
            f"{name} leads to the database of DATABASE_URL: name a replica of it, or leave it out"
        )
    # A page must not wait long for a replica that is away.
    read["OPTIONS"].setdefault("connect_timeout", "2")
    read["TEST"] = {"MIRROR": "default"}
    return read


def _database(url: str, session_attrs: Sequence[str]) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _UrlRefused(f"is no URL: {_FORMS}") from None
    if parts.fragment or "#" in url:
        raise _UrlRefused("holds a #, which ends a URL: write %23 for one in a name or password")
    if parts.scheme == "sqlite":
        return _sqlite(parts)
    if parts.scheme in {"postgres", "postgresql"}:
        return _postgresql(parts, session_attrs)
    raise _UrlRefused(f"has another scheme than these: {_FORMS}")


def _sqlite(parts: SplitResult) -> dict[str, Any]:
    name = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not name:
        raise _UrlRefused("names no file: sqlite:///PATH, with four slashes where PATH is absolute")
    if parts.query:
        raise _UrlRefused("has a query, which sqlite:///PATH cannot have")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": name,
        "OPTIONS": {
            # Readers go on while one process writes; a writer takes its lock at BEGIN, for a
            # deferred one that reads first can never be upgraded when another wrote meanwhile.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
        },
    }


_POSTGRESQL = "django.db.backends.postgresql"


def _postgresql(parts: SplitResult, session_attrs: Sequence[str]) -> dict[str, Any]:
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise _UrlRefused(f"names no database: {_FORMS}")
    hosts, ports = _hosts(parts)
    return {
        "ENGINE": _POSTGRESQL,
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": hosts,
        "PORT": ports,
        "OPTIONS": _options(parts.query, session_attrs),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }


def bound_sessions(
    database: dict[str, Any],
    *,
    pooled: bool,
    statement_seconds: int,
    lock_seconds: int,
    idle_transaction_seconds: int,
) -> None:
    """Set what every session of PostgreSQL is told: how long it may wait, work and idle.

    A `pooled` one is shared by many clients of a PgBouncer: it takes no such settings (the role
    has them, see docs/operations.md) and holds neither cursors nor prepared statements.
    """
    if not database["ENGINE"].endswith("postgresql"):
        return
    if pooled:
        database["DISABLE_SERVER_SIDE_CURSORS"] = True
        database["OPTIONS"]["prepare_threshold"] = None
        return
    times = {
        "statement_timeout": statement_seconds,
        "lock_timeout": lock_seconds,
        "idle_in_transaction_session_timeout": idle_transaction_seconds,
    }
    database["OPTIONS"]["options"] = " ".join(f"-c {k}={v}s" for k, v in times.items())


def _hosts(parts: SplitResult) -> tuple[str, str]:
    """Return host and port, of several hosts each separated by commas, as libpq takes them."""
    place = parts.netloc.rpartition("@")[2]
    if "," not in place:
        return unquote(parts.hostname or ""), _port(parts)
    each = [urlsplit(f"//{one}") for one in place.split(",")]
    if not all(one.hostname for one in each):
        raise _UrlRefused("names several hosts, and one of them is empty")
    ports = ",".join(_port(one) or "5432" for one in each)
    return ",".join(unquote(one.hostname or "") for one in each), ports


def _port(parts: SplitResult) -> str:
    try:
        port = parts.port
    except ValueError:
        # Without the cause: a password with a slash in it is read as the port, and told in full.
        raise _UrlRefused(
            "has a port that is none: a number up to 65535 is needed after HOST:, and in a "
            "password %2F for a slash, %3A for a colon, %40 for an at sign"
        ) from None
    if port == 0:
        raise _UrlRefused("has the port 0, on which no server listens")
    return str(port or "")


def _options(query: str, session_attrs: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in POSTGRESQL_OPTIONS:
            # A password with a question mark puts its rest here, so the key is not repeated.
            raise _UrlRefused(
                "has a key in its query that is not allowed; allowed are "
                f"{', '.join(POSTGRESQL_OPTIONS)}. In a password write %3F for a question mark"
            )
        if key in options or not value:
            raise _UrlRefused(f"gives {key} twice, or no value for it")
        options[key] = value
    if options.get("sslmode", "prefer") not in _SSL_MODES:
        raise _UrlRefused(f"has an unknown sslmode: it is one of {', '.join(_SSL_MODES)}")
    if options.get("target_session_attrs", "any") not in session_attrs:
        raise _UrlRefused(
            f"has an unknown target_session_attrs: it is one of {', '.join(session_attrs)}"
        )
    if not re.fullmatch("[0-9]{1,4}", options.get("connect_timeout", "0")):
        raise _UrlRefused("has a connect_timeout that is no whole number of seconds")
    return options


def check_redis(name: str, url: str) -> None:
    """Raise ImproperlyConfigured where `url` is not `redis://[:PASSWORD@]HOST:PORT/DB`.

    Celery and Django find that out with their first message, and repeat a part of the password.
    """
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, usable = urlsplit(""), False
    known = parts.scheme in {"redis", "rediss"} and "#" not in url
    if not (usable and known and re.fullmatch("/?|/[0-9]{1,4}", parts.path)):
        raise ImproperlyConfigured(
            f"{name} must be redis://[:PASSWORD@]HOST:PORT/DB, rediss:// for TLS, sentinel:// with "
            "HOST:PORT of each Sentinel, or as docs/configuration.md says. In a password write "
            "%2F for a slash, %23 for a hash, %3F for a question mark, %40 for an at sign"
        )


SENTINEL = "sentinel://"
_SENTINEL_PORT = 26379


class SentinelUrl(NamedTuple):
    """Where the Sentinels are; password and database are those of Redis itself."""

    hosts: tuple[tuple[str, int], ...]
    password: str
    database: int

    @classmethod
    def read(cls, name: str, url: str) -> Self:
        """Read `sentinel://[:PASSWORD@]HOST:PORT,HOST:PORT/DB`; raises ImproperlyConfigured."""
        try:
            place, _, database = url.removeprefix(SENTINEL).partition("/")
            secret, _, hosts = place.rpartition("@")
            each = [urlsplit(f"//{one}") for one in hosts.split(",")]
            found = tuple((str(one.hostname or ""), one.port or _SENTINEL_PORT) for one in each)
            read = cls(found, secret.removeprefix(":"), int(database or 0))
        except ValueError:
            read = cls((), "", 0)
        # Without the cause, which may repeat the password.
        if not read.hosts or not all(host for host, _ in read.hosts):
            raise ImproperlyConfigured(
                f"{name} must be sentinel://[:PASSWORD@]HOST:PORT,HOST:PORT/DB"
            )
        return read

    def for_celery(self) -> str:
        """Return the URL as Celery's transport takes it: each Sentinel with all of it."""
        before = f":{self.password}@" if self.password else ""
        return ";".join(f"{SENTINEL}{before}{h}:{port}/{self.database}" for h, port in self.hosts)
