"""Alerts of all rooms, gathered; the room of alerts says each once."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import Max

from apps.accounts.domain.formats import day_words, money, percent, utc_words, whole_duration
from apps.accounts.permissions import EVERYTHING
from apps.accounts.selectors import team_names
from apps.alerts.domain.alerts import AlertKind, Threshold, is_idle_due, workload_subject
from apps.alerts.selectors import answers_to
from apps.alerts.services import (
    Measurement,
    NewAlert,
    evaluate,
    go_on,
    note_history,
    notify,
)
from apps.clusters.domain.resources import counted, gpus, quantity
from apps.clusters.domain.window import Window, hour_floor
from apps.clusters.models import Cluster, WatchCoverage
from apps.clusters.selectors import report
from apps.fairness.domain.objectives import RISEN_TIMES, Burn
from apps.fairness.selectors import (
    ObjectiveRow,
    RisingQueueTime,
    queue_time_objectives,
    rising_queue_times,
)
from apps.operations.domain.proposals import ProposalKind, ProposalTarget
from apps.operations.models import CatalogProposal
from apps.operations.selectors import PROPOSAL_PHRASES, PROPOSAL_SUBJECT
from apps.operations.services.person_digests import gather_over_cap, gather_person_digests
from apps.pending.selectors import PendingPage, PendingRow, pending_now
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import portal
from apps.quota_requests.selectors import AuditRow, audit_since, last_audit_check
from apps.quotas.selectors import BudgetAlertRow, QuotaRow, budget_alerts, quota_rows
from apps.usage.domain.usage_query import every_row
from apps.usage.models import HAS_FACTS, CollectionWindow
from apps.usage.selectors import IdleWorkload, idle_workloads

logger = logging.getLogger(__name__)
_BUDGETS_BACK = timedelta(days=2)
_GPU_HOURS = "gpu_hours"
_HOUR = timedelta(hours=1)
_MOMENT = timedelta(microseconds=1)
_HOUR_SECONDS = 3600.0
# A key that fills and empties as work comes and goes is one alert a day.
_AGAIN = timedelta(days=1)
_OBJECTIVE, _RISING = "objective:", "rising:"
_BURNS: Mapping[str, float] = {Burn.SLOW: 1.0, Burn.FAST: 2.0}
_ALERTED_COUNTS = {"pending", "suppressed"}
_ABOUT = "quota-request/"
_AT_ONCE = 500
_REQUESTS_BACK = timedelta(days=2)
_REQUEST_PHRASES: Mapping[str, str] = {
    "submit": "was submitted",
    "take": "is in review",
    "ask_changes": "needs changes",
    "counter_offer": "has a counter-offer",
    "approve": "was approved",
    "approve_by_rule": "was approved by rule",
    "hand_over": "could not be applied at its start",
    "reject": "was rejected",
    "withdraw": "was withdrawn",
    "apply": "is being applied",
    "confirm_applied": "was applied",
    "send_back": "went back to review",
    "fail": "could not be applied",
    "revert": "is being reverted",
    "confirm_reverted": "was reverted",
    "stop_revert": "was not reverted",
    "expire": "has expired",
    "comment": "has a comment",
    "put_off_revert": "could not be reverted yet",
    "announce_revert": "ends soon",
    "drift": "differs from the cluster",
}
"""What is told of the audit's actions; of others, such as edits of a draft, nothing is."""
_KINDS = {"announce_revert": AlertKind.REVERT, "drift": AlertKind.DRIFT}
_BACK_AGAIN = frozenset({"revert", "confirm_reverted", "stop_revert"})
_OF_APPLIED_CHANGES = frozenset({"announce_revert", "put_off_revert", "drift"})
_OF_DRAFTS = frozenset({"comment", "withdraw"})
_URGENT = frozenset({"fail", "drift", "hand_over"})
AlertSource = Callable[[datetime, ZoneInfo], int]


def gather_audit(now: datetime, zone: ZoneInfo) -> int:
    """Say once what the last check of the audit found, as long as it does not hold."""
    found = last_audit_check(portal())
    if found is None or found.holds:
        return 0
    said = NewAlert(
        kind=AlertKind.DATA_GAP,
        subject="audit",
        team_id=None,
        title="Audit was altered",
        text=f"{found.words} The page of the audit says up to which line it held, and when.",
        path="/admin/audit/",
        urgent=True,
        occasion=(found.words,),
    )
    return notify([said], now=now, zone=zone)


def gather_budgets(now: datetime, zone: ZoneInfo) -> int:
    """Say what was noted about budgets since the day before yesterday."""
    # Half-open: what was noted at this very moment belongs to it too.
    window = Window(now - _BUDGETS_BACK, now + timedelta(seconds=1))
    ids = {name: pk for pk, name in team_names().items()}
    rows = budget_alerts(window, visibility=EVERYTHING)
    return notify((_budget_alert(row, ids[row.team], zone) for row in rows), now=now, zone=zone)


def _budget_alert(row: BudgetAlertRow, team_id: int, zone: ZoneInfo) -> NewAlert:
    in_hours = row.unit == _GPU_HOURS
    unit = "GPU-hours" if in_hours else row.unit
    # The end itself is the first moment of the next period, on another day.
    last = day_words(row.period_end - _MOMENT, zone, now=row.at)
    spent = (
        f"{row.used:,.0f} of {row.allowance:,.0f} {unit}"
        if in_hours
        else f"{money(row.used, unit)} of {money(row.allowance, unit)}"
    )
    if row.kind == "used":
        title = f"{row.team}: {row.threshold * 100:.0f} % of the budget in {unit} is used"
        text = f"{spent} are used; the period ends on {last}."
    else:
        title = f"{row.team}: the budget in {unit} will be used up too soon"
        when = day_words(row.exhausted_at, zone, now=row.at) if row.exhausted_at else "before"
        text = f"{spent} are used. At this pace it is used up on {when}; the period ends on {last}."
    return NewAlert(
        kind=AlertKind.BUDGET,
        subject=f"budget:{row.team}/{row.unit}",
        team_id=team_id,
        title=title,
        text=text,
        path=f"/costs/budgets/?{urlencode({'team': row.team})}",
        occasion=(row.period_start.isoformat(), row.kind, f"{row.threshold:g}"),
    )


def gather_gaps(now: datetime, zone: ZoneInfo) -> int:
    """Hold the hours since a cluster's last data against the levels, also while none comes."""
    threshold = Threshold(AlertKind.DATA_GAP, settings.ALERTS_GAP_HOURS)
    return evaluate(threshold, list(_measured_gaps(now, zone)), now=now, zone=zone)


def _measured_gaps(now: datetime, zone: ZoneInfo) -> Iterator[Measurement]:
    for cluster in Cluster.objects.filter(active=True).order_by("name"):
        done = CollectionWindow.objects.filter(HAS_FACTS, cluster=cluster)
        last = done.aggregate(last=Max("hour"))["last"]
        # The hour that runs cannot be collected yet.
        end = None if last is None else last + _HOUR
        closed = hour_floor(now, zone)
        yield _gap(cluster, "collected", "is not collected", end, closed)
        if cluster.kubernetes is not None:
            spans = WatchCoverage.objects.filter(cluster=cluster)
            seen = spans.aggregate(last=Max("end"))["last"]
            yield _gap(cluster, "watched", "is not watched", seen, now)


def _gap(
    cluster: Cluster, what: str, trouble: str, until: datetime | None, now: datetime
) -> Measurement:
    hours = None if until is None else max(0.0, (now - until) / _HOUR)
    since = "" if until is None else f" since {utc_words(until, now=now)}"
    said = NewAlert(
        kind=AlertKind.DATA_GAP,
        subject=f"cluster:{cluster.name}/{what}",
        team_id=None,
        title=f"{cluster.name} has not been {what} for {counted(round(hours or 0), 'hour')}",
        text=f"{cluster.name} {trouble}{since}. Data quality shows what failed.",
        path=f"/admin/data-quality/?{urlencode({'cluster': cluster.name})}",
        urgent=True,
    )
    return Measurement(said, hours)


def gather_idle(now: datetime, zone: ZoneInfo) -> int:
    """Hold the hours without work of every workload that holds GPUs against the levels.

    A workload with an answer counts as active until its answer ends.
    """
    known = idle_workloads(now)
    found = known.workloads
    names = team_names()
    answers = answers_to([_workload_subject(one) for one in found])
    measured = []
    for one in found:
        hours = (one.until - one.since).total_seconds() / _HOUR_SECONDS
        due = is_idle_due(
            idle_since=one.since,
            busy_since=one.worked_at,
            answer=answers.get(_workload_subject(one)),
            now=now,
        )
        measured.append(Measurement(_idle_alert(one, hours, names), hours if due else 0.0))
    threshold = Threshold(AlertKind.IDLE, settings.ALERTS_IDLE_HOURS)
    # Only workloads of clusters that were read can have become active; other alerts stay open.
    prefixes = tuple(f"workload:{name}/" for name in known.clusters)
    return evaluate(
        threshold, measured, now=now, zone=zone, over=lambda subject: subject.startswith(prefixes)
    )


def _workload_subject(one: IdleWorkload) -> str:
    return workload_subject((one.cluster, one.namespace, f"{one.kind}/{one.name}"))


def _idle_alert(one: IdleWorkload, hours: float, names: Mapping[int, str]) -> NewAlert:
    more = " or longer" if one.since_at_least else ""
    lasted = counted(round(hours), "hour")
    parts = (one.cluster, one.namespace, one.kind, one.name)
    return NewAlert(
        kind=AlertKind.IDLE,
        subject=_workload_subject(one),
        team_id=one.team_id if one.team_id in names else None,
        title=f"{one.namespace}/{one.name} holds {gpus(one.gpus)} idle for {lasted}",
        text=(
            f"{one.kind} {one.namespace}/{one.name} on {one.cluster} has not used its GPUs for "
            f"{lasted}{more}. Stop it, or say in the portal how long you keep it and why."
        ),
        path=f"/workloads/{'/'.join(quote(part, safe='') for part in parts)}/",
    )


def gather_pending(now: datetime, zone: ZoneInfo) -> int:
    """Compare the time of the longest pending item of every workload with the levels."""
    ids = {name: pk for pk, name in team_names().items()}
    threshold = Threshold(AlertKind.WAIT, settings.ALERTS_WAIT_HOURS, again_after=_AGAIN)
    least = threshold.levels[0] * _HOUR_SECONDS
    found: dict[str, Measurement] = {}
    for row in _pending_rows(now, least):
        # The longest pending comes first: of each workload that is the one to tell of.
        found.setdefault(_pending_subject(row), _measured_pending(row, ids))
    return evaluate(threshold, list(found.values()), now=now, zone=zone)


def _pending_rows(now: datetime, least: float) -> Iterator[PendingRow]:
    rows = every_row(
        lambda cursor: pending_now(now, visibility=EVERYTHING, page=PendingPage(cursor, 500))
    )
    # The longest pending come first, so that none after one of less is due.
    due = takewhile(lambda row: row.wait_seconds >= least, rows)
    return (row for row in due if row.counts in _ALERTED_COUNTS)


def _pending_subject(row: PendingRow) -> str:
    return f"wait:{row.cluster}/{row.namespace}/{row.workload}"


def _measured_pending(row: PendingRow, ids: dict[str, int]) -> Measurement:
    hours = row.wait_seconds / _HOUR_SECONDS
    advice = f"\n{row.suggestion}" if row.suggestion else ""
    said = NewAlert(
        kind=AlertKind.WAIT,
        subject=_pending_subject(row),
        team_id=ids.get(row.team),
        title=f"{row.namespace}/{row.name} has been pending for {counted(round(hours), 'hour')}",
        text=f"{row.explanation}{advice}",
        path=f"/pending/?{urlencode({'cluster': row.cluster, 'namespace': row.namespace})}",
    )
    return Measurement(said, None if row.stale else hours)


def gather_objectives(now: datetime, zone: ZoneInfo) -> int:
    """Say of which tiers the error budget of the queue-time objective burns: slowly, then fast."""
    rows = queue_time_objectives(now, visibility=EVERYTHING)
    measured = [_measured_objective(row) for row in rows]
    return _gather_queue_times(tuple(_BURNS.values()), measured, _OBJECTIVE, now, zone)


def _gather_queue_times(
    levels: tuple[float, ...],
    measured: Sequence[Measurement],
    prefix: str,
    now: datetime,
    zone: ZoneInfo,
) -> int:
    """Hold measurements against levels; alerts of subjects without the prefix stay as they are."""
    threshold = Threshold(AlertKind.QUEUE_TIME, levels, again_after=_AGAIN)
    return evaluate(
        threshold, measured, now=now, zone=zone, over=lambda subject: subject.startswith(prefix)
    )


def _measured_objective(row: ObjectiveRow) -> Measurement:
    pace = "fast" if row.burn == Burn.FAST else "too fast to last"
    pending = f", {row.missed_pending} of them pending" if row.missed_pending else ""
    left = percent(max(row.budget_left_ratio or 0.0, 0.0))
    said = NewAlert(
        kind=AlertKind.QUEUE_TIME,
        subject=f"{_OBJECTIVE}{row.tier}",
        team_id=None,
        title=f"{row.tier}: the queue-time objective is missed {pace}",
        text=(
            f"{row.missed} of {row.total} pieces of work missed "
            f"{whole_duration(row.p95_seconds)} in the last {row.days} days{pending}. "
            f"Error budget left: {left}."
        ),
        path=_tier_path(row.tier),
        urgent=row.burn == Burn.FAST,
    )
    value = _BURNS.get(row.burn, 0.0)
    # Where pending work is not known, missed is the least: an end cannot be told.
    return Measurement(said, value if row.complete or value else None)


def gather_rising(now: datetime, zone: ZoneInfo) -> int:
    """Say of which tiers of whole GPUs training is pending for twice as long as the week before."""
    rows = rising_queue_times(now, visibility=EVERYTHING)
    measured = [_measured_rise(row) for row in rows]
    return _gather_queue_times((RISEN_TIMES,), measured, _RISING, now, zone)


def _measured_rise(row: RisingQueueTime) -> Measurement:
    said = NewAlert(
        kind=AlertKind.QUEUE_TIME,
        subject=f"{_RISING}{row.tier}",
        team_id=None,
        title=f"{row.tier}: queue times rise",
        text=(
            f"The p95 queue time of the last 24 hours is {row.rise or 0:.1f}× that of the week "
            "before. It is of work that runs to its end."
        ),
        path=_tier_path(row.tier),
    )
    return Measurement(said, row.rise)


def _tier_path(tier: str) -> str:
    return f"/capacity/tiers/{quote(tier, safe='')}/"


def gather_quotas(now: datetime, zone: ZoneInfo) -> int:
    """Hold what is used of every key that limits something against the levels."""
    ids = {name: pk for pk, name in team_names().items()}
    threshold = Threshold(AlertKind.QUOTA, settings.ALERTS_QUOTA, again_after=_AGAIN)
    return evaluate(
        threshold, [_measured_quota(row, ids) for row in _limiting_rows(now)], now=now, zone=zone
    )


def _limiting_rows(now: datetime) -> Iterator[QuotaRow]:
    rows = every_row(
        lambda cursor: quota_rows(now, visibility=EVERYTHING, cursor=cursor, page_size=500)
    )
    return (row for row in rows if row.effective and row.hard > 0)


def _measured_quota(row: QuotaRow, ids: dict[str, int]) -> Measurement:
    name = "/".join(part for part in (row.cluster, row.namespace, row.name, row.key) if part)
    refused = ""
    if row.suppressed:
        refused = f" Blocked at admission: {quantity(row.suppressed)}."
    how_full = "full" if (row.used or 0.0) >= row.hard else "nearly full"
    said = NewAlert(
        kind=AlertKind.QUOTA,
        subject=f"quota:{name}",
        team_id=None if row.team is None else ids.get(row.team),
        title=f"{row.namespace or row.name} ({row.cluster}): the quota of {row.key} is {how_full}",
        text=(
            f"{quantity(row.used or 0)} of {quantity(row.hard)} {row.unit} are used; "
            f"bound pods hold {quantity(row.held or 0)}.{refused}"
        ),
        path=f"/quotas/?{urlencode({'cluster': row.cluster, 'namespace': row.namespace})}",
    )
    # Amounts of an hour ago say nothing of now: the cluster is not watched.
    known = row.used is not None and not row.stale
    return Measurement(said, row.used / row.hard if known and row.used is not None else None)


def gather_requests(now: datetime, zone: ZoneInfo) -> int:
    """Say what the audit has of requests and proposals since it was last read."""

    def read(position: int) -> tuple[Iterable[NewAlert], int]:
        rows = audit_since(position, at_most=_AT_ONCE)
        # What was read late is told of, but not what was there before anybody was told.
        recent = [row for row in rows if row.at > now - _REQUESTS_BACK]
        # One position for both: a crash between them would lose or repeat one.
        told = [*_request_alerts(recent), *_proposal_alerts(recent)]
        return told, rows[-1].number if rows else position

    return go_on("audit", read, now=now, zone=zone)


def _request_alerts(rows: Iterable[AuditRow]) -> list[NewAlert]:
    told = [
        row for row in rows if row.subject.startswith(_ABOUT) and row.action in _REQUEST_PHRASES
    ]
    ids = {_request_id(row) for row in told}
    found = ChangeRequest.objects.select_related("team", "cluster").in_bulk(sorted(ids))
    pairs = [(row, found[_request_id(row)]) for row in told if _request_id(row) in found]
    return [_request_alert(row, one) for row, one in pairs if not _is_private(row, one)]


def _is_private(row: AuditRow, request: ChangeRequest) -> bool:
    """Say whether a step is of a draft, which its authors and their team alone know of."""
    return request.submitted_at is None and row.action in _OF_DRAFTS


def _request_id(row: AuditRow) -> int:
    return int(row.subject.removeprefix(_ABOUT))


def _request_change(row: AuditRow, request: ChangeRequest) -> str:
    """Return the amounts of a step, from → to; a revert goes the other way.

    Empty for steps that only tell about an applied change: their note has the amounts.
    """
    if row.action in _OF_APPLIED_CHANGES:
        return ""
    if row.action in _BACK_AGAIN:
        wanted = (row.after or {}).get("wanted") or request.before
        return f": {request.after} → {wanted}"
    return f": {request.before} → {request.after}"


def _request_alert(row: AuditRow, request: ChangeRequest) -> NewAlert:
    where = f"{request.namespace}/{request.name}" if request.namespace else request.name
    lines = [
        f"{request.key} of {where} on {request.cluster.name}{_request_change(row, request)}.",
        f"{row.actor}: {row.note}" if row.note else f"By {row.actor}.",
    ]
    return NewAlert(
        kind=_KINDS.get(row.action, AlertKind.REQUEST),
        subject=f"request:{request.pk}",
        team_id=request.team_id,
        title=f"Request {request.pk} of {request.team.name} {_REQUEST_PHRASES[row.action]}",
        text="\n".join(lines),
        path=f"/quotas/requests/{request.pk}/",
        urgent=row.action in _URGENT,
        occasion=(str(row.number),),
    )


def _proposal_alerts(rows: Iterable[AuditRow]) -> list[NewAlert]:
    told = [row for row in rows if row.subject.startswith(PROPOSAL_SUBJECT)]
    ids = {row.number: int(row.subject.removeprefix(PROPOSAL_SUBJECT)) for row in told}
    found = CatalogProposal.objects.select_related("team").in_bulk(sorted(set(ids.values())))
    return [
        _proposal_alert(row, found[ids[row.number]]) for row in told if ids[row.number] in found
    ]


def _proposal_alert(row: AuditRow, proposal: CatalogProposal) -> NewAlert:
    target = ProposalTarget(ProposalKind(proposal.kind), proposal.team.name, proposal.subject)
    said = f"{row.actor}: {row.note}" if row.note else f"By {row.actor}."
    return NewAlert(
        kind=AlertKind.REQUEST,
        subject=f"proposal:{proposal.pk}",
        team_id=proposal.team_id,
        title=f"Proposal {proposal.pk} was {PROPOSAL_PHRASES[row.action]}: {target}",
        text=said,
        path=f"/quotas/proposals/{proposal.pk}/",
        occasion=(str(row.number),),
    )


SOURCES: Mapping[str, AlertSource] = {
    "gaps": gather_gaps,
    "audit": gather_audit,
    "requests": gather_requests,
    "budgets": gather_budgets,
    "quotas": gather_quotas,
    "pending": gather_pending,
    "objectives": gather_objectives,
    "rising queue times": gather_rising,
    "idle": gather_idle,
    "person digests": gather_person_digests,
    "caps of persons": gather_over_cap,
}


class NotGathered(Exception):
    """Some sources failed; the others were gathered. The text names them."""


def gather_alerts(*, now: datetime, sources: Mapping[str, AlertSource] = SOURCES) -> int:
    """Say what is new in every room; return how many alerts that made.

    One source that fails does not hold up the others. Raises NotGathered in the end.
    """
    zone = report().zone
    new, failed = 0, []
    for name, source in sources.items():
        try:
            new += source(now, zone)
        except Exception:
            logger.exception("alerts: %s could not be gathered", name)
            failed.append(name)
    # Even where a source failed: what the others said is noted by now.
    note_history(now=now)
    if failed:
        raise NotGathered(f"These were not gathered: {', '.join(failed)}.")
    return new
