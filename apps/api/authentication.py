"""Authentication with API tokens, their scopes, and the throttling of requests."""

import logging
from time import monotonic
from typing import TYPE_CHECKING

from django.utils import timezone
from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import UserRateThrottle

from apps.accounts.domain.identity import TokenScope
from apps.accounts.selectors import Bearer, bearer_of
from apps.accounts.services import note_use
from gpuportal.redis_errors import redis_errors

if TYPE_CHECKING:
    from rest_framework.views import APIView

    from apps.accounts.models import User


_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSED = {
    "revoked": "This token was revoked. Make another on the page “Your tokens”.",
    "expired": "This token has expired. Make another on the page “Your tokens”.",
    "reserved": "This is a name of the portal itself: use an account with another name.",
    "unobserved": (
        "The person of this token has not signed in through the sign-in provider for so long that "
        "their groups may have changed. It works again once they have signed in."
    ),
}


class BearerAuthentication(TokenAuthentication):
    """`Authorization: Token …`, with one short query for person and token."""

    def authenticate_credentials(self, key: str) -> tuple["User", Bearer]:
        """Return the person and their token. Raises AuthenticationFailed."""
        now = timezone.now()
        bearer = bearer_of(key, now=now)
        if bearer is None:
            raise AuthenticationFailed("Invalid token.")
        if bearer.refused:
            raise AuthenticationFailed(_REFUSED[bearer.refused])
        if not bearer.person.is_active:
            raise AuthenticationFailed("User inactive or deleted.")
        # Not with each request: writing each use down would cost more than answering it.
        if bearer.unnoted:
            note_use(bearer.token_id, now=now)
        return bearer.person, bearer


class WithinScope(BasePermission):
    """A token is used only for what it was made for; a session may do all that its person may.

    A view that writes says by `scopes` what each verb needs, as `{"POST": Scope.REQUEST}`; a verb
    that it leaves out is for no token. What the person may do is asked elsewhere, of the person.
    """

    def has_permission(self, request: Request, view: "APIView") -> bool:
        # A session carries no bearer, and is bound by what its person may alone.
        bearer = request.auth
        if not isinstance(bearer, Bearer) or not hasattr(view, (request.method or "").lower()):
            return True  # what the view cannot do at all is answered with 405
        needed = self._needed(request.method or "", view)
        if needed in bearer.scopes:
            return True
        said = f"scope “{needed.value}”" if needed else "a session: sign in with a browser"
        self.message = f"This token may not be used for that: it needs {said}."
        return False

    def _needed(self, verb: str, view: "APIView") -> TokenScope | None:
        if verb in _SAFE_METHODS:
            return TokenScope.READ
        scopes: dict[str, TokenScope] = getattr(view, "scopes", {})
        return scopes.get(verb)


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
        # State of the class: DRF makes a throttle for each request.
        shared = ForgivingUserRateThrottle
        if shared.away and monotonic() < shared._ask_again:
            return True
        try:
            allowed = bool(super().allow_request(request, view))
        except redis_errors(OSError) as error:
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
