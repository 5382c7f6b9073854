"""What Redis raises, for code that works on while a cache or a broker is away."""

import sys


def redis_errors() -> tuple[type[Exception], ...]:
    """Return the errors of Redis's client; none where nothing was asked of a Redis yet.

    The client is 60 modules and 7 MB, which installations without a Redis do not load.
    """
    client = sys.modules.get("redis.exceptions")
    return (client.RedisError,) if client else ()
