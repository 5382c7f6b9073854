"""Redis found by its Sentinels, which name another master when the one before is lost."""

from typing import Any, Self
from urllib.parse import unquote

from redis.sentinel import Sentinel, SentinelConnectionPool

from gpuportal.env import SentinelUrl


class SentinelPool(SentinelConnectionPool):
    """Connections of Django's cache to the master, for which each new one asks the Sentinels."""

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """Return the pool of a `sentinel://` URL; Django's cache calls it with its options."""
        read = SentinelUrl.read("CACHE_URL", url)
        master_name, own = options.pop("master_name"), options.pop("sentinel_kwargs")
        times = {name: options[name] for name in options if name.startswith("socket_")}
        sentinels = Sentinel(  # type: ignore[no-untyped-call]
            read.hosts, sentinel_kwargs=times | own
        )
        password = unquote(read.password) or None
        return cls(master_name, sentinels, db=read.database, password=password, **options)
