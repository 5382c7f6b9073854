"""What Redis raises, for code that works on while a cache or a broker is away."""

import sys


def redis_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return others and the errors of Redis's client, if something was asked of a Redis yet.

    The client is 60 modules and 7 MB, which installations without a Redis do not load.
    """
    client = sys.modules.get("redis.exceptions")
    return (*others, client.RedisError) if client else others
