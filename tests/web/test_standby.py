"""Pages on a real standby of PostgreSQL, which replays what the primary writes, or pauses."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import Error, connections
from django.test import Client
from pytest_django import Settings

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.operations.services.heartbeats import note_heartbeat
from gpuportal.replica import REPLICA, seconds_behind
from tests.factories import make_cluster, make_user
from tests.servers import temporary_standby
from tests.web.conftest import LOOKED
from tests.web.test_replica import asked_of_replica, clusters, forget_replica, name_replica

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(
        "connections['default'].vendor != 'postgresql'", reason="SQLite has no standby"
    ),
]


def wait_for_replay() -> None:
    """Return once the standby has the heartbeat of the primary."""
    end = time.monotonic() + 60
    while seconds_behind() != 0.0:
        assert time.monotonic() < end, "the standby does not replay"
        time.sleep(0.05)


def order_standby(function: str) -> None:
    with connections[REPLICA].cursor() as cursor:
        cursor.execute(f"SELECT {function}()")


def test_pages_read_from_a_standby_until_it_falls_behind(
    transactional_db: None, signed_in: Callable[[User], Client], settings: Settings
) -> None:
    settings.DATABASE_ROUTERS = ["gpuportal.replica.ReplicaRouter"]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "gpuportal.replica.ReplicaMiddleware"]
    place = connections["default"].settings_dict
    primary = (
        f"postgresql://{place['USER']}:{place['PASSWORD']}@{place['HOST']}:{place['PORT']}"
        f"/{place['NAME']}"
    )
    user = make_user("ada", role=Role.ADMIN)
    with temporary_standby(primary) as url:
        name_replica(url)
        try:
            make_cluster("west")
            note_heartbeat(LOOKED, now=LOOKED)
            wait_for_replay()
            client = signed_in(user)
            assert clusters(client) == ["west"]
            for path in ("/", "/costs/"):
                assert "clusters_cluster" in asked_of_replica(client, path)
            # Nothing is written there, whatever a page would do.
            with pytest.raises(Error, match="read-only transaction"):
                User.objects.using(REPLICA).filter(pk=user.pk).update(first_name="Ada")
            order_standby("pg_wal_replay_pause")
            make_cluster("east")
            assert clusters(signed_in(user)) == ["west"], "behind, though not by a minute"
            note_heartbeat(LOOKED + timedelta(minutes=2), now=LOOKED + timedelta(minutes=2))
            assert clusters(signed_in(user)) == ["east", "west"], "from the primary"
            order_standby("pg_wal_replay_resume")
            wait_for_replay()
            client = signed_in(user)
            assert clusters(client) == ["east", "west"]
            assert "clusters_cluster" in asked_of_replica(client, "/")
        finally:
            forget_replica()
