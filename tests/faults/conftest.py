"""What tests of faults share: the proxy and the facts of runs that nothing disturbs."""

import shutil
from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from apps.clusters.adapters.prometheus import client
from tests.faults.collecting import HOURS, collecting, doors, installed
from tests.faults.facts import Facts
from tests.faults.proxy import Proxy
from tests.faults.stores import database
from tests.servers import migrated_file


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.0)


@pytest.fixture(scope="session")
def door() -> Iterator[Proxy]:
    with doors() as made:
        yield made


@pytest.fixture(scope="session")
def quiet_run(door: Proxy, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Facts:
    """Return the facts of two hours, of which the API server tells the first one."""
    with django_db_blocker.unblock(), collecting(door) as portal:
        return portal.run()


@pytest.fixture(scope="session")
def quiet_series(door: Proxy, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Facts:
    """Return the facts of two hours that series alone tell."""
    with django_db_blocker.unblock(), collecting(door) as portal:
        portal.collect_all()
        return portal.finish(HOURS[-1].end)


@pytest.fixture(scope="session")
def quiet_file(
    door: Proxy,
    tmp_path_factory: pytest.TempPathFactory,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
) -> Facts:
    """Return the facts of a run on SQLite that nobody disturbs."""
    file = shutil.copy(migrated_file(), tmp_path_factory.mktemp("quiet"))
    with database(f"sqlite:///{file}", django_db_blocker), installed(door) as portal:
        return portal.whole_run()
