"""`changepassword NAME`: Django's command, told to the audit."""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.management.commands import changepassword
from django.db import transaction
from django.utils import timezone

from apps.accounts.services import note_command


class Command(changepassword.Command):
    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> str | None:
        """Change the password, and tell of it where that was done; both or neither."""
        # Django's command does not say whether it set a password, or whose: the change shows it.
        before = dict(get_user_model().objects.values_list("pk", "password"))
        said: str | None = super().handle(*args, **options)
        for user in get_user_model().objects.order_by("pk"):
            if before.get(user.pk) != user.password:
                note_command("changepassword", user, now=timezone.now())
        return said
