"""Writes of API tokens: making them, revoking them, and noting that they are used."""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import OperationalError, transaction

from apps.accounts.domain.scopes import Scope, packed
from apps.accounts.models import ApiToken, User
from apps.accounts.permissions import can_review

# Says to whoever finds one, and to programs that search for lost secrets, what it is.
PREFIX = "gpuportal_"
MOST_TOKENS = 20
LONGEST_DAYS = 366
USUAL_DAYS = 90
LONGEST_NAME = 80


class TokenRefused(ValueError):
    """A token cannot be made; the text is for the person who asked."""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token. `key` is what the header carries; it cannot be read again."""

    key: str
    name: str
    expires_at: datetime


def digest_of(key: str) -> str:
    """Return what is kept of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


@transaction.atomic
def issue_token(
    user: User,
    *,
    name: str,
    now: datetime,
    scopes: Iterable[Scope] = (Scope.READ,),
    days: int = USUAL_DAYS,
    limited: bool = True,
) -> IssuedToken:
    """Make a token of `user` that expires after `days`. Raises TokenRefused.

    `limited`: no more than MOST_TOKENS, as for who makes their own.
    """
    name, chosen = _checked_name(name), frozenset(scopes)
    if not 1 <= days <= LONGEST_DAYS:
        raise TokenRefused(f"A token holds from 1 to {LONGEST_DAYS} days.")
    if Scope.DECIDE in chosen and not can_review(user):
        raise TokenRefused("Only administrators review requests, so only their tokens can decide.")
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # so that two do not both count 19
    live = ApiToken.objects.filter(user=user, revoked_at=None, expires_at__gt=now)
    if limited and live.count() >= MOST_TOKENS:
        raise TokenRefused(f"There are {MOST_TOKENS} tokens already: revoke one that is not used.")
    key = f"{PREFIX}{secrets.token_urlsafe(32)}"
    expires_at = now + timedelta(days=days)
    ApiToken.objects.create(
        user=user,
        name=name,
        digest=digest_of(key),
        ending=key[-4:],
        scopes=packed(chosen),
        created_at=now,
        expires_at=expires_at,
    )
    return IssuedToken(key=key, name=name, expires_at=expires_at)


def _checked_name(text: str) -> str:
    name = " ".join(text.split())
    if not name or not name.isprintable():
        raise TokenRefused("A token needs a name of letters, digits and signs: what it is for.")
    if len(name) > LONGEST_NAME:
        raise TokenRefused(f"The name of a token has {LONGEST_NAME} characters at most.")
    return name


def revoke_token(user: User, pk: int, *, now: datetime) -> bool:
    """Make a token of `user` useless for good; says whether there was a live one. One query."""
    return bool(_revoke(user, now, pk=pk))


def revoke_named(user: User, name: str, *, now: datetime) -> int:
    """Revoke all tokens of `user` of this name; returns how many. One query."""
    return _revoke(user, now, name=name)


def revoke_all(user: User, *, now: datetime) -> int:
    """Revoke all tokens of `user`; returns how many. One query."""
    return _revoke(user, now)


def _revoke(user: User, now: datetime, **which: object) -> int:
    return ApiToken.objects.filter(user=user, revoked_at=None, **which).update(revoked_at=now)


def note_use(pk: int, *, now: datetime) -> None:
    """Keep the minute in which a token was last used. One query.

    It is left out while the database is busy: a reader must not wait for what is kept aside.
    """
    minute = now.replace(second=0, microsecond=0)
    try:
        with transaction.atomic():
            ApiToken.objects.filter(pk=pk).update(last_used_at=minute)
    except OperationalError:
        return
