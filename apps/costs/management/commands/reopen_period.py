"""`manage.py reopen_period --period 2026-10 --reason TEXT --by ADMIN`."""

from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.costs.management.periods import month
from apps.costs.services import CloseRefused, reopen_period


class Command(BaseCommand):
    help = "Open a closed month again: it is priced anew, and its adjustment lines are taken back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--period", required=True, help="a month such as 2026-10")
        parser.add_argument("--reason", required=True, help="why; it is kept with the month")
        parser.add_argument("--by", required=True, metavar="ADMIN", help="user name of an admin")

    def handle(self, *args: Any, **options: Any) -> None:
        by = get_user_model().objects.filter(username=options["by"], is_active=True).first()
        if by is None:
            raise CommandError(f"No account has the name {options['by']}: name an admin with --by.")
        try:
            opened = reopen_period(
                month(options["period"]), by=by, reason=options["reason"], now=timezone.now()
            )
        except (CloseRefused, PermissionDenied) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"{opened} is open again; its hours are priced anew by the next run of pricing"
        )
