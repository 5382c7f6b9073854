"""What all tests share: servers on demand, hypothesis profiles, no network but the loopback."""

import gc
import ipaddress
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.core.cache import cache
from django.db import connection
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from apps.accounts.adapters.audit_triggers import backwards
from tests.programs import ProgramMissing, find
from tests.saved_rows import vacuum
from tests.servers import TEMPLATE, temporary_redis
from tests.shared_rows import close_others, least_first
from tests.statements import function_of, repeated

# Marker → the programs that its tests start.
NEEDED = {
    "prometheus": ("prometheus", "promtool"),
    "redis": ("redis-server",),
    "browser": ("chromium",),
}
_DATABASE_FIXTURES = {"db", "transactional_db", "django_db_reset_sequences", "live_server"}
_SLOW = (hypothesis.HealthCheck.too_slow,)

# No deadlines: two cores are shared by servers, browsers and the tests themselves.
hypothesis.settings.register_profile(
    "quick", deadline=None, max_examples=50, suppress_health_check=_SLOW
)
hypothesis.settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=_SLOW,
    print_blob=True,
)
hypothesis.settings.register_profile(
    "exhaustive", deadline=None, max_examples=1000, suppress_health_check=_SLOW
)


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database-only", action="store_true", help="only the tests that use the database"
    )
    parser.addoption(
        "--without-repeats",
        action="store_true",
        help="none of the tests whose statements others make too (tests/statements.py)",
    )
    parser.addoption(
        "--require-servers",
        action="store_true",
        default=_in_ci(),
        help="fail, do not skip, where a server is not installed (always so when CI=true)",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Thousands of collected tests stay: looking through them for garbage is a tenth of all time.
    gc.set_threshold(50_000, 20, 100)
    if not config.getoption("--hypothesis-profile", default=None):
        hypothesis.settings.load_profile("ci" if _in_ci() else "quick")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while tests are collected: what is made then stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    least_first(items)
    left_out = repeated() if config.getoption("--without-repeats") else frozenset()
    is_database_only = config.getoption("--database-only")
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        is_chosen = function_of(item) not in left_out
        is_chosen = is_chosen and (not is_database_only or _uses_database(item))
        (chosen if is_chosen else others).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = chosen


def pytest_collection_finish() -> None:
    gc.freeze()


def _uses_database(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    return item.get_closest_marker("django_db") is not None or bool(fixtures & _DATABASE_FIXTURES)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose server is missing on a laptop; fail it where all must be there."""
    close_others(item)
    for marker, programs in NEEDED.items():
        if item.get_closest_marker(marker) is None:
            continue
        try:
            for program in programs:
                find(program)
        except ProgramMissing as missing:
            if item.config.getoption("--require-servers"):
                pytest.fail(str(missing), pytrace=False)
            pytest.skip(str(missing))


@pytest.fixture(scope="session", autouse=True)
def _settings_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write nothing under the checkout's `var/`, share no cache, and hash passwords fast."""
    folder = tmp_path_factory.mktemp("var")
    with override_settings(
        VAR_DIR=folder,
        CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    ):
        yield folder


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> Iterator[None]:
    """Let Django begin with a copy of the migrated database; `migrate` finds nothing to do."""
    template = os.environ.get(TEMPLATE, "")
    with ExitStack() as until_end:
        if connection.vendor == "postgresql":
            connection.settings_dict["TEST"]["TEMPLATE"] = template or None
        elif template:
            # A database in memory is there as long as somebody is connected to it.
            name = "file:memorydb_default?mode=memory&cache=shared"
            memory = until_end.enter_context(closing(sqlite3.connect(name, uri=True)))
            with closing(sqlite3.connect(template)) as file:
                file.backup(memory)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Let tests empty the audit, which a migration makes the database refuse.

    Those of the triggers put them back for themselves.
    """
    with django_db_blocker.unblock():
        backwards(None, connection.SchemaEditorClass(connection))


@pytest.fixture(scope="module", autouse=True)
def _vacuumed(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Free what the module's tests rolled back, when its shared world is closed too."""
    yield
    with django_db_blocker.unblock():
        if not connection.in_atomic_block:
            vacuum()


@pytest.fixture(autouse=True)
def _fresh_cache() -> None:
    """Forget throttling counts, sums and the like of the test before."""
    cache.clear()
    # A database that is rolled back gives out the same keys again.
    from apps.fairness.selectors.window_sums import CACHED_SUMS  # needs the apps to be ready

    CACHED_SUMS.clear()


@pytest.fixture(scope="session", autouse=True)
def _loopback_only() -> Iterator[None]:
    """Refuse connections that leave the machine, so that a test cannot come to need them."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in {socket.AF_INET, socket.AF_INET6} and not _is_loopback(address[0]):
            raise AssertionError(f"a test tried to reach {address}: only 127.0.0.1 may be used")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[str]:
    with temporary_redis() as url:
        yield url


@pytest.fixture
def redis_url(_redis_server: str) -> str:
    """Return the URL of a real, empty Redis. Mark the test `redis`."""
    import redis

    with redis.Redis.from_url(_redis_server) as client:
        client.flushall()
    return _redis_server
