"""How many requests a person may make."""

import logging
from time import monotonic
from typing import TYPE_CHECKING

from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import UserRateThrottle

if TYPE_CHECKING:  # views import the throttle that the settings name
    from rest_framework.views import APIView

logger = logging.getLogger(__name__)


class ForgivingUserRateThrottle(UserRateThrottle):
    """Count requests by person in the cache; while that is away, let everybody through.

    A limit protects the portal: an outage of what counts must not become one of the API. Outage
    and return are logged once for each process. After a failure the cache is left alone for
    `pause_seconds`, so that a server which does not answer holds few requests up.
    """

    pause_seconds = 5.0
    away = False
    _ask_again = 0.0

    def allow_request(self, request: Request, view: "APIView") -> bool:
        shared = ForgivingUserRateThrottle
        if shared.away and monotonic() < shared._ask_again:
            return True
        try:
            allowed = bool(super().allow_request(request, view))
        except (RedisError, OSError) as error:
            if not shared.away:
                logger.error(  # noqa: TRY400 - its trace says nothing more
                    "The cache is away (%s): requests to the API are not limited meanwhile",
                    type(error).__name__,
                )
            shared.away, shared._ask_again = True, monotonic() + self.pause_seconds
            return True
        if shared.away:
            logger.warning("The cache is back: requests to the API are limited again")
            shared.away = False
        return allowed
