"""`manage.py close_period 2026-10 [--force REASON]`."""

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.costs.domain.costing import Basis, Policy
from apps.costs.management.periods import month
from apps.costs.selectors import charging
from apps.costs.services import CloseRefused, close_period
from apps.costs.services.exports import keep_closed_files


class Command(BaseCommand):
    help = "Close a month: freeze its costs; later differences become adjustment lines."

    def add_arguments(self, parser: CommandParser) -> None:
        basis, policy = charging()
        parser.add_argument("period", metavar="PERIOD", help="a month such as 2026-10")
        parser.add_argument("--basis", choices=[b.value for b in Basis], default=basis.value)
        parser.add_argument("--policy", choices=[p.value for p in Policy], default=policy.value)
        parser.add_argument("--by", default="", help="who closes it; default: who runs this")
        parser.add_argument(
            "--force",
            default="",
            metavar="REASON",
            help="close it although hours or prices are missing, for this reason",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            closed = close_period(
                month(options["period"]),
                by=options["by"] or _whoever(),
                basis=Basis(options["basis"]),
                policy=Policy(options["policy"]),
                forced=options["force"],
                now=timezone.now(),
            )
        except CloseRefused as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{closed} is closed: {closed.row_count} rows, {closed.rows_sha256}")
        for name, sha in sorted(closed.files.items()):
            self.stdout.write(f"{name}: {sha}")
        self._keep()

    def _keep(self) -> None:
        """Keep the files beside their hashes; where that fails, a worker tries again."""
        try:
            keep_closed_files(now=timezone.now())
        except OSError as error:
            self.stderr.write(f"The files could not be kept yet: {error.strerror}.")


def _whoever() -> str:
    try:
        return f"{getpass.getuser()} (command line)"
    except (KeyError, OSError):
        return "command line"
