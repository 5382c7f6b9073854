"""My workloads: what a person has allocated, pending and unused, and one fix with its answer."""

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import Http404, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import (
    NotAllowed,
    Visibility,
    visibility_of,
    visibility_of_led,
)
from apps.alerts.domain.alerts import (
    AnswerRefused,
    IdleChoice,
    workload_place,
)
from apps.alerts.permissions import Answerer, may_answer_person
from apps.alerts.selectors import IdleFinding, alert_of, idle_findings
from apps.alerts.services import ChannelRefused, answer_idle, silence_alert
from apps.clusters.domain.observed.objects import LocalQueueSnapshot, ObservedKind
from apps.clusters.selectors import active_clusters, names_of, people_of, report
from apps.clusters.services import observed_objects
from apps.costs.selectors import (
    PersonSumRow,
    PersonWork,
    PersonWorkloadRow,
    cap_text,
    has_metrics,
    last_week,
    person_sums,
    person_workloads,
)
from apps.pending.selectors import PendingFilters, PendingWorkload
from apps.planning.domain.queue_time_ranges import ForecastRow, row_for
from apps.planning.selectors import queue_forecasts
from apps.usage.domain.amounts import hours
from apps.usage.selectors import FactsState
from apps.web.alerts.alert_list import whose
from apps.web.components.commands import kubectl
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, day_text, duration, gpus_text, money, percent
from apps.web.components.page_query import Query, href, with_query, workload_href
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.components.tabs import Tab, tab_bar
from apps.web.pages import change, page, page_of, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    of_everything,
    quality_of,
    query_session,
)
from apps.web.usage.team_figures import unchecked_text
from apps.web.usage.team_tables import longest_pending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from apps.alerts.models import Alert

KEEP_DAYS = 7
_REASON = "its owner needs it"
_MOMENT = timedelta(microseconds=1)
_TABS = (Tab("own", "Workloads"), Tab("team", "My teams"))
_SCALED = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})


class PersonScope(Struct, frozen=True):
    """Whose work a page shows: `people` are the names that pods have for them.

    `name` is empty for the reader's own; else the person that a lead looks at, of whom
    `visibility` shows the work for the lead's teams alone.
    """

    people: frozenset[str]
    visibility: Visibility
    name: str = ""


class FindingLine(Struct, frozen=True):
    """A finding with its buttons; `answered` says what was said of it, `command` what frees it."""

    finding: IdleFinding
    href: str
    answered: str
    command: str

    @property
    def id(self) -> str:
        return f"free-{self.finding.alert_id}"


def of_reader(request: PageRequest, reading: QuerySession) -> PersonScope:
    """Return the reader's own scope. Two queries."""
    return PersonScope(people_of(request.user), reading.visibility)


def _scope(request: PageRequest, reading: QuerySession) -> PersonScope:
    """Return whose work the address names. Raises Http404 where the reader may not see it."""
    named = request.GET.get("person", "").strip().lower()[:253]
    own = of_reader(request, reading)
    if not named or named in own.people:
        return own
    led = visibility_of_led(request.user)
    # Who leads no team is told nothing: not even whether there is such a person.
    if not led.team_ids or "\0" in named:
        raise Http404("Person not found, or you may not see them.")
    return PersonScope(names_of(named), led, named)


@page
def my_workloads(request: PageRequest) -> HttpResponseBase:
    """Show the reader's own work, or that of a person of a team that the reader leads."""
    if settings.PEOPLE is None:
        raise Http404("The portal does not keep who is behind a pod.")
    reading = query_session(request)
    return work_page(request, reading, _scope(request, reading))


def work_page(request: PageRequest, reading: QuerySession, scope: PersonScope) -> HttpResponseBase:
    """Answer with the work of a person, or of the persons of the reader's teams.

    No filter narrows it: whatever the address says, it is all of that person's work.
    """
    # A filter that stayed from another page would hide what the reader pays for.
    reading = of_everything(reading)
    led = visibility_of_led(request.user)
    tabs = tab_bar(request, _TABS if led.team_ids and not scope.name else _TABS[:1], name="Work")
    if tabs.chosen == "team":
        return respond(
            request,
            reading,
            "my_workloads",
            tables=[_team_table(reading, led)],
            tabs=tabs,
            scope=scope,
        )
    work = person_workloads(
        reading.window,
        people=scope.people,
        reader=request.user,
        visibility=scope.visibility,
        now=reading.now,
        zone=reading.choice.zone,
    )
    week = last_week(reading.now, reading.choice.zone)
    days = [at.astimezone(reading.choice.zone).date() for at in (week.start, week.end - _MOMENT)]
    own = with_query(
        reverse("web:my-workloads"),
        [
            *([("person", scope.name)] if scope.name else []),
            *(("first", f"{days[0]}"), ("last", f"{days[1]}")),
        ],
    )
    return respond(
        request,
        reading,
        "my_workloads",
        tables=[_work_table(work, scope, reading), _pending_table(work, scope, reading)],
        tabs=tabs,
        scope=scope,
        figures=_figures(work, reading),
        findings=[_line(one, reading) for one in work.findings],
        fix=work.further_fix if work.rows else "",
        unknown=_unknown_text(work),
        cap=_cap_text(work),
        week_href=own,
        keep_days=_keep_days(),
        excluded=_excluded(reading),
        quality=quality_of(reading, freshness_of(reading), work.total if work.rows else None),
    )


# ---------------------------------------------------------------- figures


def _figures(work: PersonWork, reading: QuerySession) -> FigureRow:
    total, pending = work.total, len(work.pending)
    oldest = min((p.created_at for p in work.pods if p.bound_at is None), default=None)
    age = "" if oldest is None else f"oldest {duration((reading.now - oldest).total_seconds())}"
    measured = total.allocated - total.unmeasured
    # Of no hour nothing is known, and of hours without metrics what was held and not what of it.
    unknown = _unknown_text(work) or (
        "" if has_metrics(total) else "Nothing of yours has metrics in this time."
    )

    def amount(label: str, value: int, *, why: str = "", note: str = "") -> KeyFigure:
        if why:
            return no_data(label, why)
        exact = f"{hours(value)} GPU-h"
        return KeyFigure(label, f"{hours(value):,.0f}", "GPU-h", exact=exact, note=note)

    of = "allocated with metrics" if total.unmeasured else "allocated"
    share = f"{percent(total.not_used / measured)} of {of}" if measured else ""
    return figure_row(
        KeyFigure(
            "Allocated",
            gpus_text(work.running_gpus),
            "GPUs",
            basis="now",
            tone=Tone.WARNING if work.is_over_cap else Tone.NONE,
        ),
        KeyFigure(
            "Pending",
            f"{pending}",
            f"workload{'' if pending == 1 else 's'}",
            basis="now",
            note=age,
            tone=Tone.WARNING if pending else Tone.NONE,
        ),
        amount("Active", total.busy, why=unknown),
        amount("Unused", total.not_used, why=unknown, note=share),
        amount(
            "Pending GPU-hours",
            work.waited,
            # Pods are known from the watch before any hour is collected, and then it is exact.
            why="" if work.rows else _unknown_text(work),
            note="requested × time pending",
        ),
        name="My workloads",
    )


def _unknown_text(work: PersonWork) -> str:
    """Return why nothing is known of the window; empty where some of its hours are collected."""
    return {
        FactsState.NOT_CHECKED_YET: "Not checked yet: no hour of this time is collected.",
        FactsState.NO_DATA: "No hour of this time could be collected, or none is kept.",
    }.get(work.state, "")


def _cap_text(work: PersonWork) -> str:
    if settings.PEOPLE is None or not work.is_over_cap or settings.PEOPLE.cap_gpus is None:
        return ""
    return cap_text(work.running_gpus, settings.PEOPLE.cap_gpus)


def _excluded(reading: QuerySession) -> str:
    """Return what totals lack, where the window begins before persons or hours are kept."""
    hourly = settings.HOURLY_RETENTION_DAYS
    people = settings.PEOPLE.days if settings.PEOPLE else hourly
    since = reading.now - timedelta(days=min(hourly, people))
    if reading.window.start >= since:
        return ""
    what = "hours" if hourly <= people else "pods that ended"
    return f"Totals exclude {what} before {day_text(since, reading.choice.zone)}."


# ---------------------------------------------------------------- findings


def _line(one: IdleFinding, reading: QuerySession) -> FindingLine:
    link = workload_href(one.cluster, one.namespace, one.workload, reading.query) or ""
    kind, _, name = one.workload.partition("/")
    words = ("scale", kind.lower(), name, "--replicas=0")
    # What is scaled to nothing keeps its settings; a Job or a pod can only be deleted.
    command = kubectl(
        *(words if kind in _SCALED else ("delete", kind.lower(), name)), namespace=one.namespace
    )
    return FindingLine(one, link, _answered(one, reading.choice.zone), command)


def _answered(one: IdleFinding, zone: ZoneInfo) -> str:
    answer = one.answer
    if answer is None:
        return ""
    by = f" ({answer.person})" if answer.person else ""
    if answer.choice is IdleChoice.KEEP and answer.last_moment is not None:
        return f"Kept until {day_text(answer.last_moment, zone)}{by}."
    if answer.choice is IdleChoice.SILENCE:
        return f"Not asked again until it works and is idle anew{by}."
    return f"Released{by}. The portal deletes nothing: run the command."


@page
def finding(request: PageRequest, pk: int) -> HttpResponseBase:
    """Show one finding with its answers, as a digest links it: opening it changes nothing.

    The answer that the link named is offered first; it is given by its button.
    """
    alert, _ = _finding(request, pk)
    reading = of_everything(query_session(request))
    place = workload_place(alert.subject)
    found = idle_findings(
        [place] if place else [],
        reader=request.user,
        visibility=reading.visibility,
        now=reading.now,
    )
    if not found:
        # It works again, or is gone: there is nothing left to answer.
        return HttpResponseRedirect(f"{reverse('web:my-workloads')}#findings")
    if found[0].alert_id != pk:
        # A link of an older digest: the figures of then would stand beside those of now.
        newest = reverse("web:my-finding", args=(found[0].alert_id,))
        return HttpResponseRedirect(f"{newest}?{request.GET.urlencode()}".rstrip("?"))
    choices = {choice.value: choice for choice in IdleChoice}
    return respond(
        request,
        reading,
        "my_finding",
        line=_line(found[0], reading),
        text=alert.text,
        keep_days=_keep_days(),
        chosen=choices.get(request.GET.get("choice", ""), IdleChoice.KEEP).value,
    )


@change
def answer(request: PageRequest, pk: int) -> HttpResponseBase:
    """Answer an idle finding by one click: kept for a week, not asked again, or released."""
    now, zone = timezone.now(), report().zone
    alert, who = _finding(request, pk)
    given = request.POST.get("choice", "")
    last = now.astimezone(zone).date() + timedelta(days=_keep_days())
    try:
        if given == IdleChoice.SILENCE:
            silence_alert(who, alert, now=now)
        elif given in (IdleChoice.KEEP, IdleChoice.RELEASE):
            keeps = given == IdleChoice.KEEP
            reason = _REASON if keeps else ""
            until = f"{last}" if keeps else ""
            answer_idle(who, alert, until=until, reason=reason, now=now, zone=zone)
    except (NotAllowed, AnswerRefused, ChannelRefused) as refusal:
        raise Http404(str(refusal)) from refusal
    return HttpResponseRedirect(f"{page_of(request, reverse('web:my-workloads'))}#findings")


def _finding(request: PageRequest, pk: int) -> tuple["Alert", Answerer]:
    """Return a finding, and the reader as the one who answers for it.

    Raises Http404 for all others, whatever else they may see: of a person's work there is nothing
    here but for that person and leads of the team.
    """
    user = request.user
    alert = alert_of(pk, visibility=visibility_of(user)) if settings.PEOPLE is not None else None
    if alert is not None and alert.team_id is not None:
        accounts = whose([alert]).get(alert.subject)
        if may_answer_person(user, alert.team_id, accounts):
            return alert, Answerer(user, accounts)
    raise Http404("Finding not found, or you may not see it.")


def _keep_days() -> int:
    return min(KEEP_DAYS, settings.ALERTS_KEEP_DAYS)


# ---------------------------------------------------------------- tables


def _work_table(work: PersonWork, scope: PersonScope, reading: QuerySession) -> Table:
    # Amounts of several currencies must not stand under one: the first row decides.
    currency = next((row.currency for row in work.rows if row.currency), "")
    columns = [
        replace(column, unit=currency) if column.key == "unused_cost" else column
        for column in declared_columns(PersonWorkloadRow)
    ]
    return Table(
        id="work",
        title="Workloads",
        columns=columns,
        rows=[work_row(row, reading.query, currency) for row in work.rows],
        zone=reading.choice.zone,
        empty=_unknown_text(work) or f"No pod of this time names {scope.name or 'you'}.",
        on_phone=("workload", "running_gpus", "not_busy_gpu_hours"),
    )


def work_row(row: PersonWorkloadRow, query: Query, currency: str) -> TableRow:
    """Return the line of a workload; a cost in another currency than the column's names its own."""
    short = {}
    if row.cost is not None and row.currency and row.currency != currency:
        short["unused_cost"] = money(Decimal(repr(row.cost)), row.currency)
    link = workload_href(row.cluster, row.namespace, row.workload, query)
    return TableRow(declared_values(row), links={"workload": link}, short=short)


def _pending_table(work: PersonWork, scope: PersonScope, reading: QuerySession) -> Table:
    """Return what of the person is pending, with the reason and the queue time to expect."""
    # Of a person of a led team only the lead's teams are shown, as in the other table.
    seen = replace(reading, visibility=scope.visibility)
    expected = _Expected(work, reading)
    column = Column(
        "expected_seconds",
        "Typical queue time",
        Format.SECONDS,
        hint="Half of such workloads start within this time, with all pods. Empty where no replay "
        "tells it.",
    )
    whose = f"of {scope.name}" if scope.name else "of yours"
    return longest_pending(
        seen,
        PendingFilters(workload_ids=work.pending),
        empty=(not work.pending and f"Nothing {whose} is pending.")
        or unchecked_text(reading)
        or "The reason is not diagnosed yet.",
        beside=(
            column,
            expected.seconds,
        ),
    )


class _Expected:
    """The queue time to expect of pending work. Two queries for each cluster, and one for all."""

    def __init__(self, work: PersonWork, reading: QuerySession) -> None:
        self._now = reading.now
        # A Job of Kueue's names its queue, and pods of which nothing is diagnosed yet their own.
        self._queues = {
            (pod.key.cluster, pod.key.namespace, pod.key.workload): pod.queue
            for pod in work.pods
            if pod.bound_at is None and pod.queue
        }
        self._clusters: dict[str, int] | None = None
        self._forecasts: dict[int, Sequence[ForecastRow]] = {}
        self._cluster_queues: dict[int, Mapping[tuple[str, str], str]] = {}

    def seconds(self, one: PendingWorkload) -> float | None:
        """Return the median for all that is pending of a workload together, as preflight does.

        None where no replay tells it.
        """
        row = one.row
        if self._clusters is None:
            self._clusters = {cluster.name: cluster.pk for cluster in active_clusters()}
        cluster = self._clusters.get(row.cluster)
        if cluster is None or not row.gpu_equivalents:
            return None
        named = self._queues.get((row.cluster, row.namespace, row.workload)) or row.queue
        queue = self._cluster_queue(cluster, row.namespace, named)
        if queue is None:
            return None
        if cluster not in self._forecasts:
            self._forecasts[cluster] = queue_forecasts(cluster, now=self._now)
        # One of its pods starts sooner than all of them: that would promise too much.
        units = row.units * one.gpus / row.gpu_equivalents
        found = row_for(self._forecasts[cluster], row.tier, queue, units)
        return None if found is None else found.queued[1]

    def _cluster_queue(self, cluster: int, namespace: str, named: str) -> str | None:
        """Return the ClusterQueue that forecasts are by; None where it is not known.

        A forecast of work outside of queues would promise too much.
        """
        if not named:
            return ""
        if cluster not in self._cluster_queues:
            self._cluster_queues[cluster] = _cluster_queues(cluster)
        return self._cluster_queues[cluster].get((namespace, named))


def _cluster_queues(cluster: int) -> dict[tuple[str, str], str]:
    """Return the ClusterQueue of each LocalQueue, by namespace and name. One query."""
    return {
        (one.namespace, one.name): one.body.cluster_queue
        for one in observed_objects(cluster, [ObservedKind.LOCAL_QUEUE])
        if isinstance(one.body, LocalQueueSnapshot)
    }


def _team_table(reading: QuerySession, led: Visibility) -> Table:
    rows = person_sums(reading.window, visibility=led, now=reading.now)
    return Table(
        id="users",
        title="Team users",
        columns=list(declared_columns(PersonSumRow)),
        rows=[_person_row(row, reading) for row in rows],
        zone=reading.choice.zone,
        empty="No pod of your teams names anybody in this time.",
        on_phone=("person", "running_gpus", "not_busy_gpu_hours"),
    )


def _person_row(row: PersonSumRow, reading: QuerySession) -> TableRow:
    query: Sequence[tuple[str, str]] = [("person", row.person), *reading.query]
    values: dict[str, Any] = declared_values(row)
    return TableRow(values, links={"person": href("my-workloads", query)})
