"""`manage.py monthly_report MONTH [--team TEAM] FILE`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.resources import counted
from apps.costs.management.periods import month
from apps.operations.management.whole_file import write_whole
from apps.operations.services import UnknownTeamReport, month_report, month_report_file


class Command(BaseCommand):
    help = "Write the monthly report as one HTML file that opens without network."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", metavar="MONTH", help="such as 2026-10")
        parser.add_argument("file", metavar="FILE", help="where to; - is standard output")
        parser.add_argument("--team", default="", help="the page of this team alone")

    def handle(self, *args: Any, **options: Any) -> None:
        first = month(options["month"])
        try:
            # A user with a shell on this machine sees everything: no reader narrows it.
            found = month_report(
                first, team=options["team"], visibility=EVERYTHING, now=timezone.now()
            )
        except UnknownTeamReport as unknown:
            raise CommandError(str(unknown)) from unknown
        if write_whole(month_report_file(found), options["file"], self.stdout):
            pages = counted(len(found.pages), "page")
            self.stdout.write(f"Written to {options['file']}: {pages}.")
