"""Writes of API tokens: making them, revoking them, and noting that they are used."""

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import DEFAULT_DB_ALIAS, OperationalError, connections, transaction
from msgspec import Struct

from apps.accounts.domain.identity import ActingParty, TokenScope, is_reserved, packed_scopes
from apps.accounts.models import ApiToken, User
from apps.accounts.permissions import can_administer
from apps.accounts.services.audit import note, the_portal

# Tells people and secret scanners that find one what it is.
PREFIX = "gpuportal_"
MOST_TOKENS = 20
LONGEST_DAYS = 366
USUAL_DAYS = 90
LONGEST_NAME = 80


class TokenRefused(ValueError):
    """A token cannot be made; the text is for the person who asked."""


class IssuedToken(Struct, frozen=True):
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
    scopes: Iterable[TokenScope] = (TokenScope.READ,),
    days: int = USUAL_DAYS,
    by: ActingParty | None = None,
) -> IssuedToken:
    """Make a token of `user`, of whom there are no more than MOST_TOKENS. Else as `add_token`."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # so that two do not both count 19
    live = ApiToken.objects.filter(user=user, revoked_at=None, expires_at__gt=now)
    if live.count() >= MOST_TOKENS:
        raise TokenRefused(f"There are {MOST_TOKENS} tokens already: revoke one that is not used.")
    return add_token(user, name=name, now=now, scopes=scopes, days=days, by=by)


@transaction.atomic
def add_token(
    user: User,
    *,
    name: str,
    now: datetime,
    scopes: Iterable[TokenScope] = (TokenScope.READ,),
    days: int = USUAL_DAYS,
    by: ActingParty | None = None,
) -> IssuedToken:
    """Make a token of `user` that expires after `days`, however many there are.

    `by` is who makes it, the portal itself unless given. Raises TokenRefused.
    """
    name, chosen = _checked_name(name), frozenset(scopes)
    _check_may(user, chosen, days)
    key = f"{PREFIX}{secrets.token_urlsafe(32)}"
    expires_at = now + timedelta(days=days)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        digest=digest_of(key),
        ending=key[-4:],
        scopes=packed_scopes(chosen),
        created_at=now,
        expires_at=expires_at,
    )
    actor, subject = by or the_portal("portal"), _subject_of(token)
    note(actor, "make_token", subject, at=now, after=_audit_values(token, user))
    return IssuedToken(key=key, name=name, expires_at=expires_at)


def _check_may(user: User, chosen: frozenset[TokenScope], days: int) -> None:
    if not 1 <= days <= LONGEST_DAYS:
        raise TokenRefused(f"A token holds from 1 to {LONGEST_DAYS} days.")
    if TokenScope.DECIDE in chosen and not can_administer(user):
        raise TokenRefused("Only administrators review requests, so only their tokens can decide.")
    if is_reserved(user.username):
        raise TokenRefused(f"{user.username!r} is a name of the portal itself, and gets no token.")


def _audit_values(token: ApiToken, user: User) -> dict[str, Any]:
    """Return what the audit tells of a token: nothing of the key, not even its last characters."""
    return {
        "of": user.username,
        "name": token.name,
        "scopes": token.scopes,
        "expires_at": token.expires_at.isoformat(),
    }


def _subject_of(token: ApiToken) -> str:
    return f"token/{token.pk}"


def _checked_name(text: str) -> str:
    name = " ".join(text.split())
    if not name or not name.isprintable():
        raise TokenRefused("A token needs a name of letters, digits and signs: what it is for.")
    if len(name) > LONGEST_NAME:
        raise TokenRefused(f"The name of a token has {LONGEST_NAME} characters at most.")
    return name


def revoke_token(user: User, pk: int, *, now: datetime, by: ActingParty | None = None) -> bool:
    """Make a token of `user` useless for good; says whether there was a live one."""
    return bool(_revoke(user, now, by, pk=pk))


def revoke_named(user: User, name: str, *, now: datetime, by: ActingParty | None = None) -> int:
    """Revoke all tokens of `user` of this name; returns how many."""
    return _revoke(user, now, by, name=name)


def revoke_all(user: User, *, now: datetime, by: ActingParty | None = None) -> int:
    """Revoke all tokens of `user`; returns how many."""
    return _revoke(user, now, by)


@transaction.atomic
def _revoke(user: User, now: datetime, by: ActingParty | None, **which: object) -> int:
    """Revoke tokens, and tell of each: who made one long ago is found by its line alone."""
    # The person first, as all that is audited about them: two that take turns the other way round
    # would wait for each other.
    User.objects.select_for_update(no_key=True).filter(pk=user.pk).first()
    live = ApiToken.objects.filter(user=user, revoked_at=None, **which)
    tokens = list(live.select_for_update().order_by("pk"))
    ApiToken.objects.filter(pk__in=[token.pk for token in tokens]).update(revoked_at=now)
    actor = by or the_portal("portal")
    for token in tokens:
        note(actor, "revoke_token", _subject_of(token), at=now, before=_audit_values(token, user))
    return len(tokens)


def note_use(pk: int, *, now: datetime, using: str = DEFAULT_DB_ALIAS) -> None:
    """Keep the minute in which a token was last used. One query.

    It is left out while somebody else writes: a reader must not wait for what is kept aside, and
    the next use in the minute tries again.
    """
    minute = now.replace(second=0, microsecond=0)
    tokens = ApiToken.objects.using(using).order_by()
    free = tokens.filter(pk=pk).select_for_update(skip_locked=True)
    try:
        with _no_busy_timeout(using), transaction.atomic(using=using):
            tokens.filter(pk__in=free.values("pk")).update(last_used_at=minute)
    except OperationalError:
        return


@contextmanager
def _no_busy_timeout(using: str) -> Iterator[None]:
    """Have SQLite, which has one writer at a time, refuse at once while there is another."""
    connection = connections[using]
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    # Not by a cursor: it is no query, and Django would set the time-out when it connects alone.
    raw = connection.connection
    (usual,) = raw.execute("PRAGMA busy_timeout").fetchone()
    raw.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        raw.execute(f"PRAGMA busy_timeout = {int(usual)}")
