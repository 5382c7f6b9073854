"""Redis found by its Sentinels, which name another master when the one before is lost."""

from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from redis.sentinel import Sentinel, SentinelConnectionPool

SCHEME = "sentinel://"
_PORT = 26379


class SentinelUrl(NamedTuple):
    """Where the Sentinels are; password and database are those of Redis itself."""

    hosts: tuple[tuple[str, int], ...]
    password: str
    database: int

    @classmethod
    def read(cls, name: str, url: str) -> Self:
        """Read `sentinel://[:PASSWORD@]HOST:PORT,HOST:PORT/DB`; raises ImproperlyConfigured."""
        try:
            place, _, database = url.removeprefix(SCHEME).partition("/")
            secret, _, hosts = place.rpartition("@")
            each = [urlsplit(f"//{one}") for one in hosts.split(",")]
            found = tuple((str(one.hostname or ""), one.port or _PORT) for one in each)
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
        return ";".join(f"{SCHEME}{before}{h}:{port}/{self.database}" for h, port in self.hosts)


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
