"""Reads of how the portal runs: what is set up, asked for and wrong, and which workers live."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Now
from django.utils import timezone
from msgspec import Struct

from apps.accounts.models import ProcessLease, Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Tier
from apps.clusters.selectors import active_clusters
from apps.costs.models import PricedHour, RecommendationRun
from apps.fairness.models import FairnessWindow
from apps.operations.domain.findings import KINDS, SEVERITIES, Finding, Severity
from apps.operations.models import BEAT_LEASE, DoctorFinding, Heartbeat
from apps.pending.models import RefreshState
from apps.quotas.models import QuotaHour
from apps.usage.domain.collection import CollectionState
from apps.usage.models import HAS_FACTS, CollectionWindow
from apps.usage.selectors import node_tiers
from gpuportal.queries import BatchQuery, BoundQuery, read_once


class LoadedCatalog(Struct, frozen=True):
    """How much of a catalog is loaded; the built-in tiers and team do not count."""

    clusters: int
    tiers: int
    teams: int


_STANDSTILL = timedelta(minutes=10)


class ClusterProgress(Struct, frozen=True):
    """How far the collection of a cluster has come since it was first asked for.

    `first_hour` and `last_hour` are the oldest and newest hour ever asked for, None before that;
    `done_hours` of `due_hours` have facts. `failed_hours` have none, and `error` is that of the
    newest of them, empty for who may not see how the portal runs. `last_attempt` is when an hour
    was last begun, `leased_until` up to when the newest of those under way is leased.
    `watched_until` is up to when the Kubernetes API was followed; `has_api` tells whether the
    catalog gives it, `collect_from` from when on hours are due where it says so.
    """

    cluster: str
    has_api: bool
    watched_until: datetime | None
    collect_from: datetime | None
    first_hour: datetime | None
    last_hour: datetime | None
    due_hours: int
    done_hours: int
    failed_hours: int
    last_attempt: datetime | None
    leased_until: datetime | None
    error: str

    @property
    def pending_hours(self) -> int:
        """Hours that were asked for and have neither facts nor failed."""
        return self.due_hours - self.done_hours - self.failed_hours

    def is_moving(self, now: datetime) -> bool:
        """Return whether an hour is being collected, or was begun in the last ten minutes."""
        begun = self.last_attempt is not None and self.last_attempt >= now - _STANDSTILL
        return begun or (self.leased_until is not None and self.leased_until > now)


def loaded_catalog() -> LoadedCatalog:
    """Return how much of a catalog is loaded. Three queries."""
    return LoadedCatalog(
        clusters=Cluster.objects.filter(active=True).count(),
        tiers=Tier.objects.filter(active=True, builtin=False).count(),
        teams=Team.objects.filter(active=True, builtin=False).count(),
    )


def collection_progress(*, visibility: Visibility) -> list[ClusterProgress]:
    """Return the progress of each active cluster, by name. Four queries."""
    clusters = active_clusters()
    pks = [cluster.pk for cluster in clusters]
    asked = _hour_totals(pks)
    errors = _newest_errors(pks) if visibility.operations else {}
    return [
        ClusterProgress(
            cluster=cluster.name,
            has_api=cluster.kubernetes is not None,
            watched_until=cluster.watched_until,
            collect_from=cluster.collect_from,
            error=errors.get(cluster.pk, ""),
            **asked.get(cluster.pk, _NO_HOURS),
        )
        for cluster in clusters
    ]


_NO_HOURS: dict[str, Any] = {
    **dict.fromkeys(("first_hour", "last_hour")),
    **dict.fromkeys(("due_hours", "done_hours", "failed_hours"), 0),
    **dict.fromkeys(("last_attempt", "leased_until")),
}


# Withheld hours were collected too, and their facts are not believed.
_NO_FACTS = Q(state=CollectionState.FAILED.value) | Q(withheld=True)


def _hour_totals(clusters: list[int]) -> dict[int, dict[str, Any]]:
    rows = (
        CollectionWindow.objects.filter(cluster_id__in=clusters)
        .order_by()
        .values("cluster_id")
        .annotate(
            first_hour=Min("hour"),
            last_hour=Max("hour"),
            due_hours=Count("pk"),
            done_hours=Count("pk", filter=HAS_FACTS),
            failed_hours=Count("pk", filter=_NO_FACTS),
            last_attempt=Max("attempted_at"),
            leased_until=Max("lease_until"),
        )
    )
    return {
        pk: dict(zip(_NO_HOURS, values, strict=True))
        for pk, *values in rows.values_list("cluster_id", *_NO_HOURS)
    }


def _newest_errors(clusters: list[int]) -> dict[int, str]:
    failed = CollectionWindow.objects.filter(_NO_FACTS, cluster_id__in=clusters).exclude(error="")
    newest = failed.order_by().values("cluster_id").annotate(hour=Max("hour"))
    hours = {row["cluster_id"]: row["hour"] for row in newest}
    # Where no hour failed this matches nothing; an empty Q would match every row.
    wanted = Q(pk__in=[])
    for pk, hour in hours.items():
        wanted |= Q(cluster_id=pk, hour=hour)
    return dict(failed.filter(wanted).values_list("cluster_id", "error"))


class FindingRow(Struct, frozen=True):
    """An open finding of the doctor; see `apps.operations.domain.findings.Finding`.

    `since` is when it began, as far as that is known, else when it was first seen; `seen_at` when
    it was last found. `places` is empty for who may not see how the portal runs.
    """

    cluster: str
    code: str
    severity: str
    group: str
    title: str
    subject: str
    what: str
    fix: str
    pods: int | None
    gpu_hours: float | None
    places: tuple[str, ...]
    since: datetime
    seen_at: datetime


def open_findings(*, visibility: Visibility, clusters: Collection[str] = ()) -> list[FindingRow]:
    """Return the open findings of the last examination, the worst first. Two queries.

    `clusters` narrows to these and to the portal itself. Readers who may not see how the portal
    runs get only what names no server, namespace, pod or node. For the others a standstill of beat,
    which stops the doctor too, comes first.
    """
    found = [
        _finding(row, visibility)
        for row in _open_rows()
        if row.cluster is None
        or (row.cluster.active and row.cluster.name in (clusters or (row.cluster.name,)))
        # A kind of an older version may be gone from the catalogue.
        if row.code in KINDS and (visibility.operations or KINDS[row.code].public)
    ]
    found.sort(key=_worst_first)
    still = overdue_heartbeat() if visibility.operations else None
    return [*([_standstill(still)] if still else []), *found]


def _standstill(found: Finding) -> FindingRow:
    now = timezone.now()
    return FindingRow(
        *("", found.code, found.severity.value, found.kind.group, found.title, ""),
        what=found.what,
        fix=found.fix,
        pods=None,
        gpu_hours=None,
        places=(),
        since=found.since or now,
        seen_at=now,
    )


@read_once
def _open_rows() -> Sequence[DoctorFinding]:
    """Return what is open of all clusters and of the portal, with its cluster. One query."""
    rows = DoctorFinding.objects.filter(resolved_at__isnull=True).select_related("cluster")
    return list(rows.order_by("pk"))


def _finding(row: DoctorFinding, visibility: Visibility) -> FindingRow:
    cost = row.body.get("cost") or {}
    return FindingRow(
        cluster=row.cluster.name if row.cluster else "",
        code=row.code,
        severity=row.severity,
        group=KINDS[row.code].group,
        title=KINDS[row.code].title,
        subject=row.subject,
        what=str(row.body.get("what", "")),
        fix=str(row.body.get("fix", "")),
        pods=cost.get("pods"),
        gpu_hours=cost.get("gpu_hours"),
        places=tuple(row.body.get("places", ())) if visibility.operations else (),
        since=row.first_seen,
        seen_at=row.last_seen,
    )


class DoctorVerdict(Struct, frozen=True):
    """The doctor's verdict on a cluster or tier: its open findings by severity.

    `checked_at` is the last check, of a tier the oldest of all clusters; None: not checked yet.
    `unread` names the sources that did not answer then.
    """

    scope: str
    name: str
    checked_at: datetime | None
    errors: int = 0
    warnings: int = 0
    notes: int = 0
    unread: tuple[str, ...] = ()


def verdicts(*, clusters: Collection[str] = ()) -> list[DoctorVerdict]:
    """Return the verdict on each active cluster, or these, then on each tier. Five queries.

    A finding counts for the tiers that it is about, and for those of the nodes where it was
    found. Everybody may read the counts; what each finding says is for `open_findings` to decide.
    """
    rows = Cluster.objects.filter(active=True).order_by("name")
    rows = rows.filter(name__in=clusters) if clusters else rows
    checks = list(rows.values_list("name", "doctorcheck__at", "doctorcheck__unread"))
    active = Tier.objects.filter(active=True, builtin=False).order_by("position", "name")
    tiers = list(active.values_list("name", flat=True))
    counts = _finding_counts({name for name, _, _ in checks}, set(tiers))
    times = [at for _, at, _ in checks]
    known = [at for at in times if at is not None]
    # A cluster that was never checked may hold anything, so the tier was not checked either.
    oldest = min(known) if known and len(known) == len(times) else None
    return [
        *(_verdict("cluster", name, at, counts, unread) for name, at, unread in checks),
        *(_verdict("tier", name, oldest, counts, None) for name in tiers),
    ]


Counts = Mapping[tuple[str, str], Mapping[str, int]]


def _finding_counts(clusters: Collection[str], tiers: Collection[str]) -> Counts:
    """Return how many findings of each severity are open, by scope and name."""
    rows = [
        (row.cluster.name, row.severity, row.body.get("tiers"), row.body.get("places"))
        for row in _open_rows()
        if row.cluster is not None and row.cluster.name in clusters
    ]
    nodes = {(cluster, place) for cluster, _, _, places in rows for place in places or ()}
    of_nodes = node_tiers(nodes) if nodes else {}
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for cluster, severity, about, places in rows:
        # A tier may have left the catalog since the check, and then has no verdict. What an older
        # version found names no tiers until the next check writes it anew.
        named = {name for name in about or () if name in tiers}
        for place in places or ():
            named.update(of_nodes.get((cluster, place), ()))
        for scope in (("cluster", cluster), *(("tier", name) for name in named)):
            own = counts.setdefault(scope, {})
            own[severity] = own.get(severity, 0) + 1
    return counts


def _verdict(
    scope: str, name: str, at: datetime | None, counts: Counts, unread: Sequence[str] | None
) -> DoctorVerdict:
    own = counts.get((scope, name), {})
    errors, warnings, notes = (
        own.get(s.value, 0) for s in (Severity.ERROR, Severity.WARNING, Severity.NOTE)
    )
    return DoctorVerdict(scope, name, at, errors, warnings, notes, tuple(unread or ()))


_SEVERITY_ORDER = [severity.value for severity in SEVERITIES]


def _worst_first(row: FindingRow) -> tuple[Any, ...]:
    cost = (-(row.gpu_hours or 0.0), -(row.pods or 0))
    order = (_SEVERITY_ORDER.index(row.severity), row.group != "data")
    return (*order, *cost, row.cluster, row.code, row.subject)


# ---------------------------------------------------------------- what is still being computed


class DerivedFigure(StrEnum):
    """What is computed from hours after they are collected; `HOURS` are these themselves."""

    HOURS = "hours"
    COSTS = "costs"
    FAIRNESS = "fairness"
    QUOTAS = "quota usage"
    PENDING = "pending history"
    RECOMMENDATIONS = "recommendations"


class Computing(NamedTuple):
    """A figure that is still being computed: `done` of its `due` hours have it."""

    figure: DerivedFigure
    done: int
    due: int


_RECENT = timedelta(minutes=15)
"""What did not follow from an hour for so long after it was collected is not being computed."""
_SAME_HOUR = Q(hour=OuterRef("hour"))
_SAME = _SAME_HOUR & Q(cluster=OuterRef("cluster"))
_BY_HOUR = {
    DerivedFigure.COSTS: Exists(PricedHour.objects.filter(_SAME)),
    DerivedFigure.FAIRNESS: Exists(FairnessWindow.objects.filter(_SAME_HOUR)),
    DerivedFigure.QUOTAS: Exists(QuotaHour.objects.filter(_SAME)),
}


def computing(
    window: Window,
    figures: Collection[DerivedFigure],
    *,
    clusters: Collection[str],
    visibility: Visibility,
    now: datetime,
) -> list[Computing]:
    """Return which of these figures of a window are not computed yet, and how far they are.

    Empty `clusters` means all active ones. Hours that are not collected yet count as long as others
    were tried recently. Every user may see how far the portal is, so `visibility` narrows nothing.
    One query; one more for each of pending history and recommendations.
    """
    of = _of(clusters)
    counts = hour_counts_query(window, figures, clusters=clusters, now=now)
    names = ("asked", "waiting", "collected", "tried", *(one.name for one in _by_hour(figures)))
    state = dict(zip(names, counts.read()[0], strict=True))
    # Where no hour was tried of late nothing is under way: "still computing" would never end.
    runs = state["tried"] is not None and state["tried"] >= now - _RECENT
    found: list[Computing] = []
    if runs and state["waiting"]:
        found.append(
            Computing(DerivedFigure.HOURS, state["asked"] - state["waiting"], state["asked"])
        )
    for figure in figures:
        if state.get(figure.name):
            left = state[figure.name]
            found.append(Computing(figure, state["collected"] - left, state["collected"]))
    if (
        DerivedFigure.PENDING in figures
        and RefreshState.objects.filter(of, rolled_to=None).exists()
    ):
        found.append(Computing(DerivedFigure.PENDING, 0, state["collected"]))
    if DerivedFigure.RECOMMENDATIONS in figures and runs:
        found += _recommendations(of)
    return found


def hour_counts_query(
    window: Window,
    figures: Collection[DerivedFigure],
    *,
    clusters: Collection[str],
    now: datetime,
) -> BoundQuery:
    """Return the query that `computing` begins with, for a page to read it with others."""
    return _HOUR_COUNTS.query(window, _by_hour(figures), tuple(clusters), now)


def _by_hour(figures: Collection[DerivedFigure]) -> tuple[DerivedFigure, ...]:
    return tuple(one for one in figures if one in _BY_HOUR)


def _of(clusters: Collection[str]) -> Q:
    """Return the condition on rows of clusters, of all active ones where none is named."""
    of = Q(cluster__active=True)
    return of & Q(cluster__name__in=clusters) if clusters else of


def _hour_counts(
    window: Window, figures: tuple[DerivedFigure, ...], clusters: tuple[str, ...], now: datetime
) -> QuerySet[CollectionWindow, Any]:
    """Return the query of one row: hours asked for, open, collected, when last tried, …"""
    with_facts = Q(collected_at__isnull=False)
    lately = with_facts & Q(collected_at__gte=now - _RECENT)
    counts: dict[str, Any] = {
        "asked": Count("pk"),
        "waiting": Count("pk", filter=Q(state=CollectionState.WAITING.value)),
        "collected": Count("pk", filter=with_facts),
        "tried": Max("attempted_at"),
        **{one.name: Count("pk", filter=lately & ~Q(_BY_HOUR[one])) for one in figures},
    }
    hours = CollectionWindow.objects.filter(
        _of(clusters), hour__gte=window.start, hour__lt=window.end
    )
    # Grouped by what all hours share: one row, of zeros where there are none.
    alike = hours.order_by().annotate(alike=Value(1)).values("alike")
    return alike.annotate(**counts).values_list(*counts)


_HOUR_COUNTS = BatchQuery(_hour_counts, is_pure=True)


def _recommendations(of: Q) -> list[Computing]:
    """Return how many of all hours that were asked for are there, until something was looked at."""
    if RecommendationRun.objects.filter(of).exists():
        return []
    hours = CollectionWindow.objects.filter(of).aggregate(
        asked=Count("pk"), collected=Count("pk", filter=Q(collected_at__isnull=False))
    )
    return [Computing(DerivedFigure.RECOMMENDATIONS, hours["collected"], hours["asked"])]


HEARTBEAT_LATE = timedelta(minutes=5)
"""Beat sends one every 30 seconds; one behind a long task is no standstill."""
WORKER = "worker:"


def worker_lease(queue: str, token: str) -> str:
    """Return the name of the lease of a worker for a queue."""
    return f"{WORKER}{queue}:{token}"


def present_workers(now: datetime) -> dict[str, int]:
    """Return by queue how many workers take from it, by their heartbeat; 0 too. One query."""
    names = ProcessLease.objects.filter(name__startswith=WORKER, lease_until__gt=now)
    counts = Counter(name.split(":")[1] for name in names.values_list("name", flat=True))
    # With 0 for queues of the settings, so that a missing worker shows.
    return {queue: counts[queue] for queue in sorted({*settings.QUEUES, *counts})}


@read_once
def overdue_heartbeat() -> Finding | None:
    """Return a finding where nothing that beat sends is carried out; else None.

    None too before the first heartbeat: beat may not be set up yet. Times are of the database's
    clock, on which all processes agree. One query.
    """
    lives = ProcessLease.objects.filter(name=BEAT_LEASE, lease_until__gt=Now())
    found = Heartbeat.objects.annotate(clock=Now(), beats=Exists(lives))
    row = found.order_by("pk").values_list("at", "clock", "beats").first()
    if row is None or row[1] - row[0] < HEARTBEAT_LATE:
        return None
    since, _, beats = row
    if beats:
        what = (
            "Beat runs, but no heartbeat that it sends is carried out. The broker is away, or the "
            "worker of the queue alerts is stopped or behind."
        )
        fix = (
            "# does the broker answer, and what does the worker's log say?\n"
            "celery -A gpuportal worker --queues alerts"
        )
        return Finding("tasks-overdue", "", "", what, fix, since=since)
    what = (
        "No beat holds its lease, and no heartbeat comes any more. Beat was ended, hangs, or "
        "cannot reach the database."
    )
    fix = "# is it running, and what does its log say?\ncelery -A gpuportal beat"
    return Finding("beat-stopped", "", "", what, fix, since=since)
