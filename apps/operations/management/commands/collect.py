"""`collect --cluster C --start T --end T`: turn a stretch of hours into facts, now and here."""

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import BaseCommand, CommandError

from apps.clusters.domain.window import Window, day_start, hour_floor
from apps.clusters.selectors import report
from apps.operations.management import outcomes
from apps.usage import services

_LONGEST = timedelta(hours=24)
# As in the catalog: nothing that the portal observes is older than its first year.
_FIRST_YEAR, _LAST_YEAR = 2000, 2199


class Command(BaseCommand):
    help = "Collect the facts of whole hours again or for the first time; any order is right."
    requires_system_checks = ()  # they import every page: a second, and 30 MB

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cluster", required=True, help="its name in the catalog")
        times = "RFC 3339, or a date: local midnight in the report's time zone"
        parser.add_argument("--start", required=True, help=times)
        parser.add_argument("--end", required=True, help=f"not included; {times}")

    def handle(self, *_: Any, **options: Any) -> None:
        now = datetime.now(UTC)
        window = window_of(options["start"], options["end"], zone=report().zone, now=now)
        ended = []
        for part in parts(window):
            try:
                outcome = services.collect_window(options["cluster"], part, now=now)
            except services.UnknownCluster as error:
                raise CommandError(f"{error}; `load_catalog` brings one in") from error
            for hour in outcome:
                self.stdout.write(outcomes.outcome_line(hour))
            ended.extend(outcome)
        if outcomes.failed_outcomes(ended):
            raise CommandError(
                f"{outcomes.outcome_counts(ended)}\n{outcomes.outcome_failures(ended)}"
            )
        self.stdout.write(outcomes.outcome_counts(ended))


def window_of(start: str, end: str, *, zone: ZoneInfo, now: datetime) -> Window:
    """Return the window of whole, closed fact hours; raises CommandError saying what is wrong."""
    first, last = instant("--start", start, zone), instant("--end", end, zone)
    if last <= first:
        raise CommandError(f"--end {end} must lie after --start {start}")
    for option, at in (("--start", first), ("--end", last)):
        floor = hour_floor(at, zone)
        if floor != at:
            raise CommandError(
                f"{option} {at.isoformat()} is not the start of an hour of facts in {zone}: "
                f"say {floor.isoformat()} or {(floor + timedelta(hours=1)).isoformat()}"
            )
    if last > now:
        raise CommandError(f"--end {end} lies in the future: an hour is collected once it is over")
    return Window(first, last)


def instant(option: str, text: str, zone: ZoneInfo) -> datetime:
    """Read RFC 3339, or a date as local midnight; raises CommandError naming the option."""
    at = _date_or_time(option, text)
    if not _FIRST_YEAR <= at.year <= _LAST_YEAR:
        raise CommandError(
            f"{option} {text!r} lies outside of the years {_FIRST_YEAR} to {_LAST_YEAR}"
        )
    return at.astimezone(UTC) if isinstance(at, datetime) else day_start(at, zone)


def _date_or_time(option: str, text: str) -> date | datetime:
    try:
        # First, for `datetime` would read a date as midnight without an offset.
        return date.fromisoformat(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(
            f"{option} {text!r} is no time: say 2026-11-20T10:00:00Z or 2026-11-20"
        ) from error
    if at.tzinfo is None:
        raise CommandError(f"{option} {text!r} has no offset: add Z for UTC, or +01:00")
    return at


def parts(window: Window) -> Iterator[Window]:
    """Cut a window into stretches of at most a day, which is what one query may span."""
    at = window.start
    while at < window.end:
        end = min(at + _LONGEST, window.end)
        yield Window(at, end)
        at = end
