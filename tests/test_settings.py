"""What the settings make of the environment, and what they refuse."""

import io
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings

from gpuportal.env import (
    POSTGRESQL_OPTIONS,
    EnvironmentValueError,
    amount,
    bound_sessions,
    database,
    flag,
    origins,
    port,
    rate,
    refuse_renamed,
)

ROOT = Path(__file__).resolve().parent.parent
SECRET = "geheim-7c1"
KEY = "0123456789abcdefghijABCDEFGHIJ-0123456789abcdefghijABCDEFGHIJ"
PRODUCTION = {
    "GPUPORTAL_ENV": "production",
    "GPUPORTAL_SECRET_KEY": KEY,
    "GPUPORTAL_ALLOWED_HOSTS": "gpu.example.org",
}


class Read(NamedTuple):
    """What reading the settings came to: exit code, values by name, and what a person is told."""

    returncode: int
    values: dict[str, Any]
    stderr: str


def start(tmp_path: Path, given: Mapping[str, str]) -> Read:
    """Read the settings in an environment that holds nothing else of ours.

    Here, and not in a process each, which would import the same libraries again.
    """
    ours = ("GPUPORTAL_", "DATABASE_", "CACHE_", "CELERY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said):
        patch.setattr(os, "environ", {**kept, "GPUPORTAL_VAR_DIR": str(tmp_path), **given})
        patch.setattr(sys, "excepthook", sys.excepthook)  # the settings bring their own
        try:
            values = runpy.run_path(str(ROOT / "gpuportal" / "settings.py"))
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            return Read(1, {}, said.getvalue())
    return Read(0, values, said.getvalue())


def read(tmp_path: Path, given: Mapping[str, str], *names: str) -> list[Any]:
    told = start(tmp_path, given)
    assert told.returncode == 0, told.stderr
    return [told.values[name] for name in names]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"GPUPORTAL_DEBUG": "yes"}, "GPUPORTAL_DEBUG=yes", id="debug pages"),
        pytest.param({"GPUPORTAL_SECRET_KEY": ""}, "GPUPORTAL_SECRET_KEY", id="no key"),
        pytest.param(
            {"GPUPORTAL_SECRET_KEY": "development-only-key-never-used-in-production-0000000000"},
            "GPUPORTAL_SECRET_KEY",
            id="the key of development",
        ),
        pytest.param(
            {"GPUPORTAL_SECRET_KEY": SECRET * 6}, "GPUPORTAL_SECRET_KEY", id="a word repeated"
        ),
        pytest.param({"GPUPORTAL_ALLOWED_HOSTS": ""}, "GPUPORTAL_ALLOWED_HOSTS", id="no host"),
        pytest.param({"GPUPORTAL_ALLOWED_HOSTS": "*"}, "GPUPORTAL_ALLOWED_HOSTS", id="any host"),
        pytest.param(
            {"GPUPORTAL_ALLOWED_HOSTS": "a.example, *"}, "GPUPORTAL_ALLOWED_HOSTS", id="any too"
        ),
        pytest.param({"GPUPORTAL_API_RATE": "lots"}, "GPUPORTAL_API_RATE='lots'", id="rate"),
        pytest.param({"GPUPORTAL_LOG_LEVEL": "LOUD"}, "GPUPORTAL_LOG_LEVEL='LOUD'", id="level"),
        pytest.param(
            {"GPUPORTAL_TRUSTED_ORIGINS": "gpu.example.org"},
            "GPUPORTAL_TRUSTED_ORIGINS: 'gpu.example.org'",
            id="origin without scheme",
        ),
        pytest.param(
            {"CACHE_URL": f"valkey://:{SECRET}@cache/0"}, "CACHE_URL must be", id="another cache"
        ),
        pytest.param(
            {"DATABASE_URL": f"postgresql://portal:{SECRET}/x@db:5432/portal"},
            "DATABASE_URL has a port that is none",
            id="a slash in the password",
        ),
        pytest.param(
            {"CACHE_URL": f"redis://:{SECRET}/x@cache:6379/1"}, "CACHE_URL must be", id="a slash"
        ),
        pytest.param(
            {"CELERY_BROKER_URL": f"redis://:{SECRET}#x@redis:6379/0"},
            "CELERY_BROKER_URL must be",
            id="a hash in the password",
        ),
        pytest.param({"DATABASE_URL": "sqlite://"}, "DATABASE_URL names no file", id="no file"),
        pytest.param(
            {"GPUPORTAL_DATABASE_READ_URL": "postgresql://db-2/portal"},
            "GPUPORTAL_DATABASE_READ_URL is for PostgreSQL alone",
            id="a replica of SQLite",
        ),
        pytest.param(
            {
                "DATABASE_URL": "postgresql://db/portal",
                "GPUPORTAL_DATABASE_READ_URL": f"postgresql://u:{SECRET}/x@db-2/portal",
            },
            "GPUPORTAL_DATABASE_READ_URL has a port that is none",
            id="a slash in the password of a replica",
        ),
        pytest.param(
            {
                "DATABASE_URL": "postgresql://db/portal",
                "GPUPORTAL_DATABASE_READ_URL": f"postgresql://u:{SECRET}@db/portal",
            },
            "GPUPORTAL_DATABASE_READ_URL leads to the database of DATABASE_URL",
            id="no replica",
        ),
        pytest.param(
            {"CELERY_BROKER_URL": f"amqp://u:{SECRET}@broker"},
            "CELERY_BROKER_URL must be",
            id="another broker",
        ),
        pytest.param({"GPUPORTAL_VAR_DIR": "/proc/var"}, "/proc/var cannot be made", id="folder"),
        pytest.param(
            {"GPUPORTAL_SCHEDULE_SECONDS": "9" * 20}, "must be 1000000000 or less", id="for ever"
        ),
        pytest.param(
            {"GPUPORTAL_EXPORT_DAYS": "999999"}, "GPUPORTAL_EXPORT_DAYS=999999", id="no date"
        ),
        pytest.param(
            {"GPUPORTAL_OIDC_ISSUER": "https://[::1"}, "GPUPORTAL_OIDC_ISSUER", id="half an address"
        ),
        pytest.param(
            {"GPUPORTAL_API_RATE_FILE": sys.executable}, "is not UTF-8 text", id="a program as text"
        ),
    ],
)
def test_production_refuses_what_is_not_safe_or_cannot_work(
    given: dict[str, str], says: str, tmp_path: Path
) -> None:
    told = start(tmp_path, {**PRODUCTION, **given})
    assert told.returncode == 1
    # One sentence; a traceback hides it.
    assert says in told.stderr
    assert len(told.stderr.splitlines()) == 1
    assert SECRET not in told.stderr
    assert "development-only" not in told.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("manage.py", "migrate"), 1),
        (("-m", "celery", "--app=gpuportal", "beat"), 1),
        # At this status gunicorn ends, where it would begin a worker again and again.
        (("-c", "import gpuportal.wsgi"), 4),
    ],
    ids=["command", "beat", "web"],
)
def test_each_process_says_in_one_line_what_is_wrong_with_a_variable(
    words: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    told = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "GPUPORTAL_VAR_DIR": str(tmp_path), "GPUPORTAL_TASK_SECONDS": "long"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert told.returncode == status
    assert told.stderr == "GPUPORTAL_TASK_SECONDS='long': a whole number is needed\n"


def test_production_starts_with_a_key_and_a_host(tmp_path: Path) -> None:
    names = ("DEBUG", "SECURE_SSL_REDIRECT", "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE")
    assert read(tmp_path, PRODUCTION, *names) == [False, True, True, True]


def test_without_https_cookies_go_over_http_too(tmp_path: Path) -> None:
    names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS")
    without = {**PRODUCTION, "GPUPORTAL_HTTPS": "no"}
    assert read(tmp_path, without, *names) == [False, False, 0]


def test_static_files_are_compressed_and_named_by_content_in_production_only(
    tmp_path: Path,
) -> None:
    (production,) = read(tmp_path, PRODUCTION, "STORAGES")
    assert "CompressedManifest" in production["staticfiles"]["BACKEND"]
    development, finders = read(tmp_path, {}, "STORAGES", "WHITENOISE_USE_FINDERS")
    assert "Manifest" not in development["staticfiles"]["BACKEND"]
    assert finders


def test_a_cache_that_is_away_holds_a_page_up_for_a_second_at_most(tmp_path: Path) -> None:
    (caches,) = read(tmp_path, {"CACHE_URL": "redis://127.0.0.1:6379/1"}, "CACHES")
    assert caches["default"]["OPTIONS"] == {"socket_connect_timeout": 1, "socket_timeout": 1}

    ours = {"GPUPORTAL_REDIS_MASTER": "gpu", "GPUPORTAL_SENTINEL_PASSWORD": "s"}
    url = "sentinel://one:1,two/3"
    names = ("CACHES", "CELERY_BROKER_URL", "CELERY_BROKER_TRANSPORT_OPTIONS")
    caches, broker, options = read(
        tmp_path, ours | {"CACHE_URL": url, "CELERY_BROKER_URL": url}, *names
    )
    assert caches["default"]["LOCATION"] == [url]
    assert caches["default"]["OPTIONS"]["socket_timeout"] == 1
    assert broker == "sentinel://one:1/3;sentinel://two:26379/3"
    for told in (caches["default"]["OPTIONS"], options):
        assert told["master_name"] == "gpu"
        assert told["sentinel_kwargs"] == {"password": "s"}


# ---------------------------------------------------------------- DATABASE_URL


def test_a_task_is_ended_before_its_message_goes_to_another_worker(tmp_path: Path) -> None:
    given = {**PRODUCTION, "CELERY_BROKER_URL": "redis://broker/0", "GPUPORTAL_TASK_SECONDS": "90"}
    names = ("SOFT_TIME_LIMIT", "TIME_LIMIT")
    soft, hard, broker = read(
        tmp_path, given, *(f"CELERY_TASK_{n}" for n in names), "CELERY_BROKER_TRANSPORT_OPTIONS"
    )
    assert soft == 90 < hard < broker["visibility_timeout"]


def test_a_replica_is_named_beside_the_database(tmp_path: Path) -> None:
    hosts = "db-1:5432,db-2:5432/portal?target_session_attrs="
    given = {
        "DATABASE_URL": f"postgresql://u:p@{hosts}read-write",
        "GPUPORTAL_DATABASE_READ_URL": f"postgresql://u:p@{hosts}prefer-standby",
        "GPUPORTAL_STATEMENT_SECONDS": "7",
    }
    databases, routers, middleware = read(
        tmp_path, given, "DATABASES", "DATABASE_ROUTERS", "MIDDLEWARE"
    )
    replica = databases["replica"]
    assert replica["OPTIONS"]["target_session_attrs"] == "prefer-standby"
    assert replica["OPTIONS"]["connect_timeout"] == "2"
    assert "statement_timeout=7s" in replica["OPTIONS"]["options"]
    assert routers == ["gpuportal.replica.ReplicaRouter"]
    # Last, so that it stands right before the view.
    assert middleware[-1] == "gpuportal.replica.ReplicaMiddleware"
    (alone,) = read(tmp_path, {}, "DATABASES")
    assert alone.keys() == {"default"}


def test_every_part_of_a_database_url_is_read() -> None:
    read = database("postgresql://p%40l:a%2Fb%3Fc@db.example:6432/my%20portal")
    assert (read["USER"], read["PASSWORD"]) == ("p@l", "a/b?c")
    assert (read["HOST"], read["PORT"], read["NAME"]) == ("db.example", "6432", "my portal")
    assert read["OPTIONS"] == {}


def test_several_hosts_are_given_with_their_ports() -> None:
    read = database("postgresql://u:p%2C@db-1,db-2:6432/portal?target_session_attrs=read-write")
    assert (read["HOST"], read["PORT"]) == ("db-1,db-2", "5432,6432")
    assert read["PASSWORD"] == "p,"
    assert read["OPTIONS"] == {"target_session_attrs": "read-write"}
    for url, text in (
        ("postgresql://u:p@db-1,/portal", "one of them is empty"),
        ("postgresql://db-1/portal?target_session_attrs=master", "target_session_attrs"),
    ):
        with pytest.raises(ImproperlyConfigured, match=text):
            database(url)


def test_sessions_of_pgbouncer_are_told_nothing_that_would_stay_in_them() -> None:
    read = database("postgresql://u:p@db/portal")
    times = {"statement_seconds": 5, "lock_seconds": 1, "idle_transaction_seconds": 0}
    bound_sessions(read, pooled=True, **times)
    assert read["DISABLE_SERVER_SIDE_CURSORS"] is True
    assert read["OPTIONS"] == {"prepare_threshold": None}


def test_the_driver_is_told_what_the_query_says() -> None:
    query = (
        "sslmode=verify-full&sslrootcert=/etc/ca.pem&sslcert=/etc/c.pem&sslkey=/etc/k.pem"
        "&connect_timeout=5&application_name=gpu%20portal&target_session_attrs=any"
    )
    options = database(f"postgresql://u:p@db/portal?{query}")["OPTIONS"]
    assert tuple(options) == POSTGRESQL_OPTIONS
    assert options["sslmode"] == "verify-full"
    assert options["application_name"] == "gpu portal"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        pytest.param(f"postgresql://u:{SECRET}/x@db/n", "%2F for a slash", id="slash in password"),
        pytest.param(f"postgresql://u:{SECRET}#x@db/n", "write %23", id="hash in password"),
        pytest.param(f"postgresql://u:x?{SECRET}@db/n", "database|port|query", id="question mark"),
        pytest.param(f"postgresql://u:[{SECRET}@db/n", "is no URL", id="bracket in password"),
        pytest.param(f"postgresql://u:{SECRET}@db:0/n", "port 0", id="port 0"),
        pytest.param(f"postgresql://u:{SECRET}@db:70000/n", "port that is none", id="port 70000"),
        pytest.param(f"postgresql://u:{SECRET}@db:http/n", "port that is none", id="port of words"),
        pytest.param(f"postgresql://u:{SECRET}@db/", "names no database", id="no name"),
        pytest.param(f"postgresql://u:{SECRET}@db/n?options=-c", "allowed are sslmode", id="key"),
        pytest.param("postgresql://db/n?sslmode=on", "unknown sslmode", id="sslmode"),
        pytest.param("postgresql://db/n?connect_timeout=soon", "connect_timeout", id="time-out"),
        pytest.param("postgresql://db/n?sslkey=a&sslkey=b", "gives sslkey twice", id="twice"),
        pytest.param("postgresql://db/n?sslkey=", "no value", id="no value"),
        pytest.param(f"mysql://u:{SECRET}@db/n", "another scheme", id="another database"),
        pytest.param(SECRET, "another scheme", id="no URL"),
        pytest.param("", "another scheme", id="empty"),
        pytest.param("sqlite://", "names no file", id="sqlite without path"),
        pytest.param("sqlite:///", "names no file", id="sqlite with an empty path"),
        pytest.param("sqlite://portal.db", "four slashes", id="sqlite with two slashes"),
        pytest.param("sqlite:///portal.db?mode=ro", "has a query", id="sqlite with a query"),
    ],
)
def test_a_database_url_that_cannot_be_used_is_refused_and_not_repeated(
    url: str, says: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=says) as refused:
        database(url)
    assert "DATABASE_URL" in str(refused.value)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


# ---------------------------------------------------------------- readers


@pytest.mark.parametrize("value", ["600/min", "1/s", "30/hour", "100000/day", "5/m"])
def test_a_rate_is_a_number_in_a_time(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE", value)
    assert rate("RATE", "600/min") == value


@pytest.mark.parametrize("value", ["", "600", "0/min", "-1/min", "600/fortnight", "1.5/s", "/s"])
def test_a_rate_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE", value)
    with pytest.raises(EnvironmentValueError, match="RATE="):
        rate("RATE", "600/min")


@pytest.mark.parametrize(
    ("value", "number"), [("", None), ("0", Decimal(0)), ("2.5", Decimal("2.5"))]
)
def test_an_amount_is_a_number_or_not_given(
    value: str, number: Decimal | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPORTAL_REQUESTS_TWO_FROM_GPUS", value)
    assert amount("GPUPORTAL_REQUESTS_TWO_FROM_GPUS", None) == number


@pytest.mark.parametrize("value", ["-1", "many", "nan", "1e3", "1,000"])
def test_an_amount_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPORTAL_REQUESTS_TWO_FROM_GPUS", value)
    with pytest.raises(EnvironmentValueError, match="a number of 0 or more is needed"):
        amount("GPUPORTAL_REQUESTS_TWO_FROM_GPUS", None)


@pytest.mark.parametrize("value", ["gpu.example.org", "ftp://x", "https://x/path", "https://"])
def test_an_origin_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORIGINS", f"https://a.example,{value}")
    with pytest.raises(EnvironmentValueError, match="ORIGINS: "):
        origins("ORIGINS")


def test_origins_may_have_ports_and_stars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORIGINS", "https://gpu.example.org:8443, http://*.example.org")
    assert origins("ORIGINS") == ["https://gpu.example.org:8443", "http://*.example.org"]


@pytest.mark.parametrize("value", ["0", "-1", "65536", "http"])
def test_a_port_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", value)
    with pytest.raises(EnvironmentValueError, match="PORT="):
        port("PORT", 8000)


@pytest.mark.parametrize("default", [True, False])
def test_an_empty_yes_or_no_is_as_if_it_were_not_given(
    default: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAG", "")
    assert flag("FLAG", default=default) is default


# ---------------------------------------------------------------- what hangs together


@pytest.mark.django_db
def test_no_proxy_keeps_the_way_to_https_and_all_may_keep_static_files() -> None:
    with override_settings(SECURE_SSL_REDIRECT=True):
        response = Client().get("/")
    assert response.status_code == 301
    assert "no-store" in response["Cache-Control"]
    static = Client().get("/static/css/portal.css")
    static.close()  # the file itself is what answers
    assert static.status_code == 200
    assert "no-store" not in static["Cache-Control"]


def test_nothing_that_nobody_uses_is_installed() -> None:
    assert "django.contrib.admin" not in settings.INSTALLED_APPS


def test_the_api_goes_on_without_its_cache() -> None:
    throttles = settings.REST_FRAMEWORK["DEFAULT_THROTTLE_CLASSES"]
    assert throttles == ["apps.api.authentication.ForgivingUserRateThrottle"]


def test_a_variable_under_its_old_name_is_refused_with_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUPORTAL_NOTICES_HOSTS", "chat.example.org")
    with pytest.raises(EnvironmentValueError, match="is called GPUPORTAL_ALERTS_HOSTS now"):
        refuse_renamed("GPUPORTAL_NOTICES_", "GPUPORTAL_ALERTS_")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"GPUPORTAL_PEOPLE": "jupyterhub,jupiter"}, "'jupiter' is no known tool"),
        ({"GPUPORTAL_PEOPLE": "label:a b"}, "'a b' in 'label:a b' is no key"),
        ({"GPUPORTAL_PEOPLE_DAYS": "0"}, "GPUPORTAL_PEOPLE_DAYS=0: must be 1 or more"),
        ({"GPUPORTAL_PEOPLE_CAP_GPUS": "many"}, "a number of 0 or more is needed"),
    ],
)
def test_persons_that_cannot_be_read_are_refused(
    given: dict[str, str], told: str, tmp_path: Path
) -> None:
    found = start(tmp_path, given)
    assert found.returncode != 0
    assert told in found.stderr


def test_persons_are_off_by_default(tmp_path: Path) -> None:
    assert read(tmp_path, {}, "PEOPLE") == [None]
