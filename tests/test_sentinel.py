"""Broker and cache in a Redis that its Sentinels name."""

from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from celery import Celery
from django.core.cache.backends.redis import RedisCache
from django.core.exceptions import ImproperlyConfigured

from gpuportal.env import SentinelUrl
from tests.servers import temporary_redis, temporary_sentinel

_PASSWORD = "sentinels-own"
_MASTER: dict[str, Any] = {"master_name": "portal", "sentinel_kwargs": {"password": _PASSWORD}}
_POOL = {"pool_class": "gpuportal.sentinel.SentinelPool", "socket_timeout": 1}


def _names(sentinel_url: str, redis_url: str) -> None:
    """Let the Sentinel name another Redis as master, as it does when the one before is lost."""
    place = urlsplit(redis_url)
    assert place.hostname
    assert place.port
    url = sentinel_url.replace("sentinel://", "redis://")
    with redis.Redis.from_url(url, password=_PASSWORD) as asked:
        asked.sentinel_remove("portal")
        asked.sentinel_monitor("portal", place.hostname, place.port, 1)


@pytest.mark.redis
def test_broker_and_cache_follow_the_master_that_sentinels_name(redis_url: str) -> None:
    with temporary_redis() as lost, temporary_sentinel(lost, "portal", _PASSWORD) as sentinel:
        cache = RedisCache([sentinel], {"OPTIONS": _POOL | _MASTER})
        app = Celery(
            broker=SentinelUrl.read("CELERY_BROKER_URL", sentinel).for_celery(),
            set_as_current=False,
        )
        app.conf.broker_transport_options = _MASTER
        try:
            for server in (lost, redis_url):
                _names(sentinel, server)
                with redis.Redis.from_url(server) as client:
                    cache.set("kept", server)
                    assert cache.get("kept") == server
                    assert client.keys() == [b":1:kept"]
                    app.send_task("operations.note_heartbeat", queue="alerts")
                    assert client.llen("alerts") == 1
                    if server == lost:
                        client.client_kill_filter(_type="normal", skipme=True)
        finally:
            app.close()
            cache.close()


def test_a_url_of_sentinels_names_each_of_them() -> None:
    read = SentinelUrl.read("CACHE_URL", "sentinel://:p%2Fw@one:1,two/3")
    assert tuple(read) == ((("one", 1), ("two", 26379)), "p%2Fw", 3)
    assert read.for_celery() == "sentinel://:p%2Fw@one:1/3;sentinel://:p%2Fw@two:26379/3"
    for broken in ("sentinel://one:s3cret/0", "sentinel:///0", "sentinel://:s3cret@one/x"):
        with pytest.raises(ImproperlyConfigured, match="CACHE_URL must be") as raised:
            SentinelUrl.read("CACHE_URL", broken)
        assert "s3cret" not in str(raised.value)
