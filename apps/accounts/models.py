"""People, their teams and their roles."""

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q

from apps.accounts.domain.roles import Role


class User(AbstractUser):
    """A person who signs in; `role` is for the whole portal, teams come by membership."""

    role = models.CharField(
        max_length=16, choices=[(r.value, r.value) for r in Role], default=Role.VIEWER.value
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(role__in=[r.value for r in Role]), name="user_role_known"
            )
        ]

    def __str__(self) -> str:
        return self.username


class Team(models.Model):
    """A team of the catalog; `builtin` marks `unassigned`, which nobody can load or close."""

    name = models.CharField(max_length=120, unique=True)
    cost_center = models.CharField(max_length=120, blank=True)
    active = models.BooleanField(default=True)
    builtin = models.BooleanField(default=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A person on a team, as a lead or not.

    The catalog names leads by user name; the row waits for a person of that name to exist.
    """

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="members")
    username = models.CharField(max_length=150, db_index=True)
    lead = models.BooleanField(default=False)

    class Meta:
        ordering = ["team__name", "username"]
        constraints = [models.UniqueConstraint(fields=["team", "username"], name="membership_once")]

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
