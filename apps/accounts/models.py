"""People, their teams, their roles, their API tokens, and the audit."""

from collections.abc import Iterator

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import F, Q
from django.utils.crypto import salted_hmac

from apps.accounts.domain.identity import SCOPE_SETS, Role


class User(AbstractUser):
    """A person who signs in; `role` is for the whole portal, teams come by membership.

    `role_from_groups` says that the sign-in provider's groups decide the role, anew at each
    sign-in. `session_round` counts up when all sessions of the person shall end.
    """

    role = models.CharField(
        max_length=16, choices=[(r.value, r.value) for r in Role], default=Role.VIEWER.value
    )
    role_from_groups = models.BooleanField(default=False)
    session_round = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(role__in=[r.value for r in Role]), name="user_role_known"
            )
        ]

    def __str__(self) -> str:
        return self.username

    def get_session_auth_hash(self) -> str:
        """Return what a session must hold to be valid: it changes with password and round."""
        return self._of_round(super().get_session_auth_hash(), secret=None)

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        """Yield the same for each former secret key, so that a change of key ends no session."""
        fallbacks = zip(
            settings.SECRET_KEY_FALLBACKS, super().get_session_auth_fallback_hash(), strict=True
        )
        for secret, made in fallbacks:
            yield self._of_round(made, secret=secret)

    def _of_round(self, made: str, *, secret: str | bytes | None) -> str:
        """Return Django's hash, bound to the round; in the first, Django's own."""
        if not self.session_round:
            return made
        value = f"{made}:{self.session_round}"
        salt = "apps.accounts.models.User.session_round"
        return salted_hmac(salt, value, secret=secret, algorithm="sha256").hexdigest()


class Team(models.Model):
    """A team of the catalog; `builtin` marks `unassigned`, which cannot be loaded or closed."""

    name = models.CharField(max_length=120, unique=True)
    cost_center = models.CharField(max_length=120, blank=True)
    active = models.BooleanField(default=True)
    builtin = models.BooleanField(default=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A person on a team, as a lead or not: by the catalog, by groups, or by an administrator.

    The catalog names leads by user name; the row takes effect when a person of that name exists.
    Memberships from groups of the sign-in provider and from an administrator (`portal`) are kept
    beside it. None of the three sources removes what another gave.
    """

    class Source(models.TextChoices):
        CATALOG = "catalog"
        GROUPS = "groups"
        PORTAL = "portal"

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="members")
    username = models.CharField(max_length=150, db_index=True)
    lead = models.BooleanField(default=False)
    source = models.CharField(
        max_length=8, choices=Source.choices, default=Source.CATALOG, db_default="catalog"
    )

    class Meta:
        ordering = ["team__name", "username", "source"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "username", "source"], name="membership_once_by_source"
            ),
            models.CheckConstraint(
                condition=Q(source__in=["catalog", "groups", "portal"]),
                name="membership_source_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.username} on {self.team_id}"


class SavedView(models.Model):
    """A page with its window and filters that a person keeps under a name of their own.

    `address` is a path of this portal with its query; a window such as `7d` stays relative.
    """

    user = models.ForeignKey("accounts.User", on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=80)
    address = models.CharField(max_length=2000)

    class Meta:
        ordering = ["name", "pk"]
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="savedview_once")]

    def __str__(self) -> str:
        return self.name


class ApiToken(models.Model):
    """A key to the API with a part of a person's rights, for a time.

    Only the SHA-256 of the key is kept: it is 256 random bits, so that nothing slower is needed,
    and who reads the table cannot use it. `ending` are its last characters, to tell keys apart.
    `last_used_at` is exact to the minute.
    """

    user = models.ForeignKey("accounts.User", on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=80)
    # Unique, which is its index: each request to the API looks for one.
    digest = models.CharField(max_length=64, unique=True)
    ending = models.CharField(max_length=4)
    scopes = models.CharField(max_length=24)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(scopes__in=SCOPE_SETS), name="apitoken_scopes_known"
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("created_at")), name="apitoken_expires_later"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.user_id}"


class AuditEntry(models.Model):
    """One line of the audit; never changed and never deleted.

    `at`, `before` and `after` are the very texts that `digest` was taken of (RFC 3339, canonical
    JSON; empty for nothing), so that no database can write them differently.
    """

    # The key, so that two entries of one number collide whatever lock was missed.
    number = models.PositiveBigIntegerField(primary_key=True)
    at = models.CharField(max_length=32)
    actor = models.CharField(max_length=150)
    origin = models.CharField(max_length=200)
    action = models.CharField(max_length=40)
    subject = models.CharField(max_length=200)
    before = models.TextField(blank=True)
    after = models.TextField(blank=True)
    note = models.TextField(blank=True)
    previous = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)

    class Meta:
        ordering = ["number"]
        indexes = [models.Index(fields=["subject", "number"], name="audit_of_subject")]

    def __str__(self) -> str:
        return f"{self.number} {self.action} {self.subject}"


class AuditHead(models.Model):
    """The number and digest of the last audit entry; one row.

    Who writes an entry holds this row's lock, so that entries follow one another. Kept apart from
    the entries, it shows when their end is cut off.
    """

    number = models.PositiveBigIntegerField()
    digest = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


class ProcessLease(models.Model):
    """Work that one process of several does at a time; `holder` does it until `lease_until`."""

    name = models.CharField(max_length=300, unique=True)
    holder = models.CharField(max_length=400, blank=True)
    lease = models.CharField(max_length=32, blank=True, db_index=True)
    lease_until = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} by {self.holder or 'nobody'}"
