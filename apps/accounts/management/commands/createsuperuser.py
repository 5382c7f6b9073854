"""`createsuperuser`: Django's command, told to the audit. `person NAME --role admin` is ours."""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.management.commands import createsuperuser
from django.db import transaction
from django.utils import timezone

from apps.accounts.services import note_command


class Command(createsuperuser.Command):
    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> str | None:
        """Make the account, and tell of it; both or neither."""
        # Django's command does not return what it made.
        before = set(get_user_model().objects.values_list("pk", flat=True))
        said: str | None = super().handle(*args, **options)
        for user in get_user_model().objects.exclude(pk__in=before).order_by("pk"):
            note_command("createsuperuser", user, now=timezone.now())
        return said
