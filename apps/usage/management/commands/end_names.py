"""`manage.py end_names NAME … [--before 2026-11-01]`: give user names to other persons."""

from datetime import date, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.alerts import services as alerts
from apps.clusters import services as clusters
from apps.clusters.domain.resources import counted
from apps.clusters.domain.window import day_start
from apps.clusters.selectors import accounts_of, report


class Command(BaseCommand):
    help = (
        "Give a user name to another person: the new person sees no earlier work, and the record "
        "of who ran that is deleted. Give each spelling of the name that pods use."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="+", metavar="NAME", help="as pods or accounts have it")
        parser.add_argument(
            "--before", metavar="DAY", help="first day of the new person; now unless given"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        before = _before(options["before"])
        names = {name.strip().lower() for name in options["names"]}
        ended = clusters.end_names(names, before=before)
        said = alerts.end_names({*names, *accounts_of(names).values()}, before=before)
        self.stdout.write(
            f"{', '.join(sorted(names))}: {counted(ended, 'pod or object', 'pods or objects')} and "
            f"{counted(said, 'alert or answer', 'alerts or answers')} from before "
            f"{before:%Y-%m-%d %H:%M} UTC no longer name a person."
        )


def _before(day: str | None) -> datetime:
    now = timezone.now()
    if day is None:
        return now
    try:
        found = day_start(date.fromisoformat(day), report().zone)
    except ValueError as error:
        raise CommandError(f"{day!r} is not a date: write it as 2026-11-01") from error
    if found > now:
        raise CommandError(f"{day} is in the future: give today or an earlier day")
    return found
