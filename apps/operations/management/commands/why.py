"""`why NAMESPACE/NAME`: why a pod, or the work of a controller, is pending, and how to fix it."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.domain.formats import clock_words, duration, utc_words
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.resources import gpus, quantity
from apps.clusters.selectors import report
from apps.pending import selectors as pending
from apps.pending.selectors import (
    BlockingTeam,
    CauseIntervalRow,
    EpisodeRow,
    PendingRow,
    TypicalQueueTime,
)
from apps.usage.selectors import PodMatch, pods_named

WIDTH = 100
_MOST_TEAMS, _MOST_PODS = 5, 3
_ENDED = {
    "started": "started",
    "gave_up": "canceled before start",
    "refused": "rejected",
    "settled": "no longer pending",
}


def answer(
    found: EpisodeRow,
    *,
    now: datetime,
    zone: ZoneInfo,
    in_front: Sequence[BlockingTeam] = (),
    typical: TypicalQueueTime | None = None,
) -> str:
    """Return the whole answer for one episode: item, causes, how to fix it, and what is ahead of
    it.
    """
    row = found.row
    parts = [_head(row, now, zone)]
    if row.until is None:
        parts += [
            _why(row),
            _section("How to fix", _numbered(row)),
            _section("What the cluster says", _scheduler_message(row)),
            _section("Blocking teams", list(_in_front(in_front))),
            _section("How long", [_typical(typical)] if typical else []),
        ]
    parts.append(
        _section("So far", [_interval(interval, now, zone) for interval in found.intervals])
    )
    return "\n\n".join(part for part in parts if part)


def _head(row: PendingRow, now: datetime, zone: ZoneInfo) -> str:
    what = _printable(f"{row.kind} {row.cluster}/{row.namespace}/{row.name}")
    since = f"{clock_words(row.since, zone, now=now)} ({duration(row.wait_seconds)})"
    asks = "no data on its requests"
    if row.gpu_equivalents:
        resource = _printable(row.resource)
        asks = f"requests {quantity(row.units)} × {resource}, {gpus(row.gpu_equivalents)}"
    if row.until is not None:
        return f"{what} {_ENDED.get(row.outcome, 'ended')} after {duration(row.wait_seconds)}."
    again = " again" if row.again else ""
    verb = "has been starting" if row.counts == "starting" else "has been pending"
    lines = [f"{what} {verb}{again} since {since}; {asks}, tier {row.tier}, team {row.team}."]
    if row.stale:
        known = clock_words(row.as_of, zone, now=now) if row.as_of else "an unknown time"
        lines.append(f"The cluster is not watched now: this was so at {known} and may be over.")
    return "\n".join(lines)


def _why(row: PendingRow) -> str:
    detail = f" ({row.detail})" if row.detail else ""
    return _filled(f"{row.cause}{detail}: {row.explanation}" if row.explanation else row.cause)


def _numbered(row: PendingRow) -> list[str]:
    return [f"{n}. {one.text}" for n, one in enumerate(row.suggestions, start=1)]


def _scheduler_message(row: PendingRow) -> list[str]:
    reasons = sorted(row.node_reasons.items(), key=lambda item: (-item[1], item[0]))
    counts = [f"{count} node{'' if count == 1 else 's'}: {text}" for text, count in reasons]
    return [line for line in (row.message, *counts, *row.context) if line]


def _in_front(teams: Sequence[BlockingTeam]) -> Iterator[str]:
    for team in teams[:_MOST_TEAMS]:
        used = _share(team.utilization)
        yield f"{team.team}: {gpus(team.gpu_equivalents)} in {team.pods} pods, {used}"
        for pod in team.listed[:_MOST_PODS]:
            used = _share(pod.utilization)
            yield f"  {pod.namespace}/{pod.pod}: {gpus(pod.gpu_equivalents)}, {used}"
    if len(teams) > _MOST_TEAMS:
        yield f"and {len(teams) - _MOST_TEAMS} teams more"


def _share(utilization: float | None) -> str:
    return "no metrics" if utilization is None else f"{utilization:.0%} utilized"


def _typical(typical: TypicalQueueTime) -> str:
    return (
        f"Queue time of {typical.count} such requests of the last 30 days: p50 "
        f"{duration(typical.p50_seconds)}, p95 {duration(typical.p95_seconds)}."
    )


def _interval(interval: CauseIntervalRow, now: datetime, zone: ZoneInfo) -> str:
    end = interval.end or now
    detail = f" ({interval.detail})" if interval.detail else ""
    lasted = duration((end - interval.start).total_seconds())
    return f"{clock_words(interval.start, zone, now=now)}: {interval.cause}{detail}, {lasted}"


def _section(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return "\n".join([f"{title}:", *(_filled(line, indent="  ") for line in lines)])


def _filled(text: str, indent: str = "") -> str:
    text = _printable(text)
    inner = indent + " " * (len(text) - len(text.lstrip()))
    lines = wrap(
        # Words stay whole: names are copied from here.
        " ".join(text.split()),
        WIDTH - len(inner),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(f"{inner}{line}" for line in lines)


def _printable(text: str) -> str:
    """Return a text without what would steer a terminal: much of it is written by users."""
    return "".join(char if char.isprintable() else " " for char in text)


_MOST = 10


class Command(BaseCommand):
    help = (
        "Explain why a pod (or the pods of a Job, a Deployment, a gang) is pending, and how to "
        "fix it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAMESPACE/NAME", help="of the pod or its controller")
        parser.add_argument("--cluster", default="", help="where several clusters have one")

    def handle(self, *_: Any, **options: Any) -> None:
        now = datetime.now(UTC)
        namespace, slash, name = options["name"].partition("/")
        if not (namespace and slash and name):
            raise CommandError(f"{options['name']!r} is not NAMESPACE/NAME: say vision/train-0")
        found = pending.find_pending(
            namespace, name, at=now, visibility=EVERYTHING, cluster=options["cluster"]
        )
        if not found:
            self.stdout.write(self._without_episode(namespace, name, options["cluster"], now))
            return
        waiting = [one for one in found if one.row.until is None] or found[:1]
        answers = [self._answer(one, now) for one in waiting[:_MOST]]
        if len(waiting) > _MOST:
            answers.append(f"{len(waiting) - _MOST} more wait; the portal's page lists them.")
        self.stdout.write("\n\n".join(answers))

    def _answer(self, found: EpisodeRow, now: datetime) -> str:
        row, zone = found.row, report().zone
        if row.until is not None:
            return answer(found, now=now, zone=zone)
        typical = None
        if row.kind == "Pod" and row.resource:
            # Other kinds have no start from which a typical queue time could be known.
            typical = pending.typical_queue_time(
                row.tier, row.resource, row.units, now, cluster=row.cluster
            )
        return answer(
            found,
            now=now,
            zone=zone,
            in_front=pending.blocking_teams(row, now, visibility=EVERYTHING),
            typical=typical,
        )

    def _without_episode(self, namespace: str, name: str, cluster: str, now: datetime) -> str:
        """Say what is known of something without an episode. Raises CommandError for nothing."""
        known = pods_named(namespace, name, at=now, cluster=cluster, visibility=EVERYTHING)
        if not known:
            where = f" on {cluster}" if cluster else ""
            raise CommandError(
                f"the portal knows no pod or controller {namespace}/{name}{where} that asked for "
                "GPU. Check the name; one made just now is there within half a minute, if "
                "`manage.py watch` runs (`manage.py doctor` says)."
            )
        return "\n".join(_state(pod, now) for pod in known)


def _state(pod: PodMatch, now: datetime) -> str:
    what = f"Pod {pod.cluster}/{pod.namespace}/{pod.name}"
    if pod.ended_at is not None:
        return f"{what} is not pending: it ended at {utc_words(pod.ended_at, now=now)}."
    if pod.started_at is not None:
        return f"{what} is not pending: it runs since {utc_words(pod.started_at, now=now)}."
    return f"{what} is known since {utc_words(pod.created_at, now=now)} and not checked yet."
