"""`manage.py import_bill FILE --month 2026-10`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.accounts.permissions import EVERYTHING
from apps.accounts.services import from_command
from apps.clusters.domain.resources import counted
from apps.costs.domain.bills.charges import BillRefused
from apps.costs.domain.bills.focus_charges import COST_COLUMNS
from apps.costs.domain.costing import money
from apps.costs.management.periods import month
from apps.costs.selectors import reconcile
from apps.costs.services import BillInput, check_size, import_bill


class Command(BaseCommand):
    help = "Import the bill of a month, and print by how much it differs from the portal's cost."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", type=Path, help="FOCUS or plain CSV, or Parquet"
        )
        parser.add_argument("--month", required=True, help="a month such as 2026-10")
        parser.add_argument("--provider", default="", help="to have several bills in a month")
        parser.add_argument("--cost-column", choices=COST_COLUMNS, default=COST_COLUMNS[0])

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        given = BillInput(
            month(options["month"]), path.name, options["provider"], options["cost_column"]
        )
        now = timezone.now()
        try:
            check_size(path.stat().st_size)
            with path.open("rb") as binary:
                bill = import_bill(binary, given, by=from_command("import_bill"), now=now)
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
        except BillRefused as refusal:
            raise CommandError(f"Nothing was imported. {refusal}") from refusal
        lines = counted(bill.line_count, "line")
        self.stdout.write(f"{bill}: {lines}, {money(bill.total):f} {bill.currency}")
        found = reconcile(bill.month, visibility=EVERYTHING, now=now)
        if found is not None:
            self._tell(found.parts.not_mapped, found.whole.difference, bill.currency)

    def _tell(self, not_mapped: int, difference: int, currency: str) -> None:
        self.stdout.write(f"billed - portal: {money(difference):f} {currency}")
        if not_mapped:
            self.stdout.write(f"not mapped: {money(not_mapped):f} {currency}; map SKUs on the page")
