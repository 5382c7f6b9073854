"""Reading DATABASE_URL. No text raised here repeats a part of the URL that may hold a secret."""

import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

_FORMS = "sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/NAME is needed"
# What libpq is told; see https://www.postgresql.org/docs/current/libpq-connect.html
POSTGRESQL_OPTIONS = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "connect_timeout",
    "application_name",
)
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


def database(url: str) -> dict[str, Any]:
    """Turn a URL into Django's form; raises ImproperlyConfigured naming DATABASE_URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _refused(f"is no URL: {_FORMS}") from None
    if parts.fragment or "#" in url:
        raise _refused("holds a #, which ends a URL: write %23 for one in a name or password")
    if parts.scheme == "sqlite":
        return _sqlite(parts)
    if parts.scheme in {"postgres", "postgresql"}:
        return _postgresql(parts)
    raise _refused(f"has another scheme than these: {_FORMS}")


def _sqlite(parts: SplitResult) -> dict[str, Any]:
    name = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not name:
        raise _refused("names no file: sqlite:///PATH, with four slashes where PATH is absolute")
    if parts.query:
        raise _refused("has a query, which sqlite:///PATH cannot have")
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


def _postgresql(parts: SplitResult) -> dict[str, Any]:
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise _refused(f"names no database: {_FORMS}")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": _port(parts),
        "OPTIONS": _options(parts.query),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }


def _port(parts: SplitResult) -> str:
    try:
        port = parts.port
    except ValueError:
        # Without the cause: a password with a slash in it is read as the port, and told in full.
        raise _refused(
            "has a port that is none: a number up to 65535 is needed after HOST:, and in a "
            "password %2F for a slash, %3A for a colon, %40 for an at sign"
        ) from None
    if port == 0:
        raise _refused("has the port 0, on which no server listens")
    return str(port or "")


def _options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in POSTGRESQL_OPTIONS:
            # A password with a question mark puts its rest here, so the key is not repeated.
            raise _refused(
                "has a key in its query that is not allowed; allowed are "
                f"{', '.join(POSTGRESQL_OPTIONS)}. In a password write %3F for a question mark"
            )
        if key in options or not value:
            raise _refused(f"gives {key} twice, or no value for it")
        options[key] = value
    if options.get("sslmode", "prefer") not in _SSL_MODES:
        raise _refused(f"has an unknown sslmode: it is one of {', '.join(_SSL_MODES)}")
    if not re.fullmatch("[0-9]{1,4}", options.get("connect_timeout", "0")):
        raise _refused("has a connect_timeout that is no whole number of seconds")
    return options


def _refused(text: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"DATABASE_URL {text}")
