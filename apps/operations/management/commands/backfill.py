"""`backfill --cluster C --days N`: collect the past, newest day first; run it again to go on.

What follows from the hours is computed at once, after each day: pages wait for no round of beat.
With `--jobs 2` the next days are collected meanwhile.
"""

import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.selectors import cluster_rows, report
from apps.operations.management import outcomes
from apps.operations.management.collectors import (
    Collected,
    CollectorEnded,
    HourBatch,
    collect_here,
    collecting,
    signal_handled,
)
from apps.operations.services import (
    StepRun,
    derive_after_history,
    derive_after_hours,
    derive_now,
    derive_replays,
)
from apps.planning.services import BACKTEST_DAYS
from apps.usage import services
from apps.usage.services import HourOutcome

_MOST_DAYS = 4000
_MOST_JOBS = 32
_INTERRUPTED = 130


Tell = Callable[[Collected], None]
"""Told after each stretch."""


class Command(BaseCommand):
    help = (
        "Collect past days and today so far, newest day first, and compute what follows from them. "
        "Complete hours are skipped."
    )
    requires_system_checks = ()  # they import every page: a second, and 30 MB

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--cluster", required=True, action="append", help="its name in the catalog; repeatable"
        )
        parser.add_argument(
            "--days", type=whole_days, required=True, help="local days before today"
        )
        parser.add_argument(
            "--jobs",
            type=jobs,
            default=1,
            help="processes that collect at the same time (default 1)",
        )
        parser.add_argument("--again", action="store_true", help="collect complete hours too")

    def handle(self, *_: Any, **options: Any) -> None:
        # Each cluster once, however often it is named.
        plan = _plan(dict.fromkeys(options["cluster"]), options["days"], again=options["again"])
        if not plan:
            self.stdout.write("Nothing to do: all of these hours are complete.")
            return
        self._talks = options["verbosity"] > 1
        # Of fewer days a replay says little, and takes longer than they do.
        self._replays = options["days"] >= BACKTEST_DAYS
        # SIGTERM unwinds like Ctrl-C: the bar gives the terminal its cursor back.
        unwind = signal_handled(signal.SIGTERM, signal.default_int_handler)
        with unwind, self._teller(plan) as tell:
            ended = self._collect(plan, options["jobs"], tell)
        if outcomes.failed_outcomes(ended):
            raise CommandError(
                f"{outcomes.outcome_counts(ended)}\n{outcomes.outcome_failures(ended)}\n"
                "Put this right and run the same again: complete hours are skipped."
            )
        self.stdout.write(outcomes.outcome_counts(ended))

    def _collect(self, plan: Sequence[HourBatch], count: int, tell: Tell) -> list[HourOutcome]:
        try:
            with collecting(plan, count) if count > 1 else nullcontext(collect_here(plan)) as done:
                # First what needs no hours: people look at it while the history comes.
                self._report(derive_now(_now))
                ended = collect_all(plan, done, tell, self._derive)
            self._report(derive_after_history(_now))
            if self._replays:
                self._report(derive_replays(_now))
        except CollectorEnded as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt as stop:
            raise CommandError(
                "Stopped. What was collected is kept; run the same again to go on.",
                returncode=_INTERRUPTED,
            ) from stop
        return ended

    def _derive(self) -> None:
        self._report(derive_after_hours(_now))

    def _report(self, ran: Sequence[StepRun]) -> None:
        """Say how long each step took, when asked to talk more."""
        if self._talks:
            steps = (f"{one.step} {one.seconds:.1f} s" for one in ran)
            self.stdout.write(f"    {', '.join(steps)}")

    @contextmanager
    def _teller(self, plan: Sequence[HourBatch]) -> Iterator[Tell]:
        """Draw a progress bar of hours on a terminal, else write a line for each stretch."""
        console = Console(file=sys.stderr)
        if not console.is_terminal:
            yield self._write_line
            return
        with _bar(console) as progress:
            task = progress.add_task("starting", total=sum(_hours(one.window) for one in plan))

            def advance(done: Collected) -> None:
                day = _day(done.stretch.window)
                progress.update(task, advance=len(done.ended), description=day)

            yield advance

    def _write_line(self, done: Collected) -> None:
        day = f"{done.stretch.cluster}  {_day(done.stretch.window)}"
        self.stdout.write(f"{day}  {outcomes.outcome_counts(done.ended)}  ({done.seconds:.1f} s)")
        self.stdout.flush()


def _plan(clusters: Iterable[str], days: int, *, again: bool) -> list[HourBatch]:
    """Return what is to be collected of all clusters, newest first; each hour of it is noted."""
    found: list[HourBatch] = []
    for name in clusters:
        _check_cluster(name)
        plan = services.backfill_plan(name, days, now=_now(), again=again)
        # Before anything is collected, so that pages show how much is still to come.
        services.note_backfill(name, plan)
        found += (HourBatch(name, window) for window in plan)
    return sorted(found, key=lambda one: one.window.start, reverse=True)


def _now() -> datetime:
    return datetime.now(UTC)


def collect_all(
    plan: Sequence[HourBatch],
    done: Iterable[Collected],
    tell: Tell,
    derive: Callable[[], None],
) -> list[HourOutcome]:
    """Take in every stretch of the plan as it is done; return how all hours ended.

    What follows from the hours of a day follows from those of all clusters: `derive` comes when
    the last stretch of a day is done.
    """
    left = Counter(_day(stretch.window) for stretch in plan)
    ended: list[HourOutcome] = []
    for one in done:
        tell(one)
        ended.extend(one.ended)
        day = _day(one.stretch.window)
        left[day] -= 1
        if not left[day]:
            derive()
    return ended


def jobs(text: str) -> int:
    """Read a number of processes; argparse shows the error."""
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_JOBS:
        raise ArgumentTypeError(f"{text!r}: a whole number, 1 to {_MOST_JOBS}")
    return int(text)


def whole_days(text: str) -> int:
    """Read a number of days; argparse shows the error."""
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_DAYS:
        raise ArgumentTypeError(f"{text!r}: a whole number of days, 1 to {_MOST_DAYS}")
    return int(text)


def _check_cluster(name: str) -> None:
    known = [cluster.name for cluster in cluster_rows(visibility=EVERYTHING)]
    if name not in known:
        listed = f"known are {', '.join(known)}" if known else "none is loaded"
        raise CommandError(f"no cluster {name!r} in the catalog: {listed}; see `load_catalog`")


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("hours"),
        TimeRemainingColumn(),
        console=console,
    )


def _hours(window: Window) -> int:
    return sum(1 for _ in window.hours())


def _day(window: Window) -> str:
    """Return the local day in which a stretch begins."""
    return window.start.astimezone(report().zone).date().isoformat()
