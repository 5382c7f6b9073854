"""Who asks: the person of an API token."""

from typing import TYPE_CHECKING

from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

from apps.accounts.selectors import bearer_of

if TYPE_CHECKING:
    from apps.accounts.models import User


class BearerAuthentication(TokenAuthentication):
    """`Authorization: Token …`, with one short query for the person."""

    def authenticate_credentials(self, key: str) -> tuple["User", str]:
        """Return the person and the token. Raises AuthenticationFailed."""
        person = bearer_of(key)
        if person is None:
            raise AuthenticationFailed("Invalid token.")
        if not person.is_active:
            raise AuthenticationFailed("User inactive or deleted.")
        return person, key
