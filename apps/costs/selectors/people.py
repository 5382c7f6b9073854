"""The workloads of persons with what they cost, what is wrong with them, and the week before."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, TypeGuard
from zoneinfo import ZoneInfo

from django.conf import settings
from msgspec import Struct

from apps.accounts.models import User
from apps.accounts.permissions import Visibility
from apps.alerts.selectors import IdleFinding, idle_findings
from apps.clusters.domain.columns import Column
from apps.clusters.domain.resources import counted, quantity
from apps.clusters.domain.window import Window, day_start
from apps.clusters.selectors import accounts_of
from apps.costs.domain.costing import money
from apps.costs.domain.person_fix import NOTHING_TO_FIX, JudgedWork, fix_of
from apps.costs.selectors.costs import (
    WORKLOAD_GROUPS,
    WorkloadCost,
    WorkloadKey,
    workload_costs,
)
from apps.pending.selectors import unstarted_of
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.domain.usage_query import Filters, TimeStep, UsageQuery
from apps.usage.selectors import (
    FactsState,
    PersonPod,
    PersonWorkload,
    facts_state,
    facts_states,
    person_pods,
    person_work,
    usage_rows,
)

_DAYS = 7
_Workload = tuple[str, str, str, str, str]


def has_metrics(amounts: Amounts | None) -> TypeGuard[Amounts]:
    """Say whether it is known what of it was used; where nothing was held, it is."""
    return amounts is not None and (amounts.allocated > amounts.unmeasured or not amounts.allocated)


class PersonWorkloadRow(Struct, frozen=True):
    """A workload of a person on a tier: what it holds now, and what of a window it held and used.

    `amounts` are None where no hour of its cluster is collected in the window.
    `cost` is what its unused allocation costs, by the person's part of the workload's.
    """

    cluster: Annotated[str, Column("Cluster", off_page=True)]
    namespace: Annotated[str, Column("Namespace")]
    workload: Annotated[str, Column("Workload", help="Kind/name of the top controller.")]
    team: Annotated[str, Column("Team")]
    tier: Annotated[str, Column("Tier", help="undetermined where several could serve it.")]
    running_gpus: Annotated[float, Column("Allocated now", "GPUs", "GPU-equivalents of its pods.")]
    pending_gpus: Annotated[float, Column("Pending now", "GPUs", "Requested by unbound pods.")]
    waited: Annotated[
        int,
        Column(
            *("Pending", "GPU-h", "Requested by pods that were not bound, × hours."),
            key="waited_gpu_hours",
            digits=9,
        ),
    ]
    amounts: Amounts | None
    cost: Annotated[
        float | None,
        Column(
            "Unused cost",
            help="Of the workload's, the person's part by unused GPU-hours.",
            key="unused_cost",
            api_note="Null without a price.",
            shown_as="decimal",
        ),
    ]
    currency: Annotated[str | None, Column("Currency", off_page=True)]
    finding: Annotated[
        str | None,
        Column(help="idle: it holds idle GPUs now, see *Idle GPUs*; null: nothing was found."),
    ]
    usage: Annotated[
        FactsState,
        Column(
            "Usage data",
            help="Whether it is known what of it was used.",
            api_note="known: 0 is none. not_checked_yet: no hour of this time is collected yet. "
            "no_data: the hours failed, are from before the first collected one or no longer "
            "kept, or its GPUs have no metrics.",
            values=FactsState,
            off_page=True,
        ),
    ]

    @property
    def allocated_gpu_hours(
        self,
    ) -> Annotated[
        float | None,
        Column(
            *("Allocated", "GPU-h", "Held by its pods."),
            after="waited",
            api_note="Null where no hour is collected.",
        ),
    ]:
        return None if self.amounts is None else hours(self.amounts.allocated)

    @property
    def busy_gpu_hours(
        self,
    ) -> Annotated[
        float | None,
        Column(
            *("Active", "GPU-h", "Allocated × activity."),
            after="allocated_gpu_hours",
            api_note="Null where usage is not known.",
        ),
    ]:
        return hours(self.amounts.busy) if has_metrics(self.amounts) else None

    @property
    def not_busy_gpu_hours(
        self,
    ) -> Annotated[
        float | None,
        Column(
            *("Unused", "GPU-h", "Idle, underutilized and not running."),
            after="busy_gpu_hours",
            api_note="Null where usage is not known.",
        ),
    ]:
        return hours(self.amounts.not_used) if has_metrics(self.amounts) else None


class PersonWork(Struct, frozen=True):
    """All workloads of some persons in a window, most unused first; `pods` are there now.

    `state` tells whether any hour of the window is known: `total` is a sum of those that are.
    `findings` are of workloads that hold GPUs now; `unstarted` are ids of pending workloads that
    have no pod yet.
    """

    rows: Sequence[PersonWorkloadRow]
    pods: Sequence[PersonPod]
    findings: Sequence[IdleFinding]
    total: Amounts
    waited: int
    unstarted: frozenset[int] = frozenset()
    state: FactsState = FactsState.NOT_CHECKED_YET

    @property
    def running_gpus(self) -> float:
        return _running(self.pods)

    @property
    def pending(self) -> frozenset[int]:
        """The ids of the workloads with pods that are not bound, or without any yet."""
        waiting = frozenset(pod.workload_id for pod in self.pods if pod.bound_at is None)
        return waiting | self.unstarted

    @property
    def is_over_cap(self) -> bool:
        """Say whether they hold more GPUs now than one person may."""
        return is_over_cap(self.running_gpus)

    @property
    def fix(self) -> str:
        """The one thing to do, in a sentence; empty where nothing is known to judge by."""
        idle = self._idle
        if self.state is not FactsState.KNOWN and not idle:
            return ""
        return fix_of(_judged(row, is_idle=_of(row) in idle) for row in self.rows)

    @property
    def further_fix(self) -> str:
        """What to do beside the open findings, in a sentence; empty where that is nothing."""
        idle = self._idle
        if self.state is not FactsState.KNOWN:
            return ""
        found = fix_of(_judged(row) for row in self.rows if _of(row) not in idle)
        return "" if idle and found == NOTHING_TO_FIX else found

    @property
    def _idle(self) -> frozenset[tuple[str, str, str]]:
        return frozenset(_of(one) for one in self.findings if one.is_open)


def _of(one: PersonWorkloadRow | IdleFinding) -> tuple[str, str, str]:
    return one.cluster, one.namespace, one.workload


def _judged(row: PersonWorkloadRow, *, is_idle: bool = False) -> JudgedWork:
    return JudgedWork(row.workload, row.amounts or Amounts(), is_idle)


def is_over_cap(gpus: float) -> bool:
    """Say whether a person holds more GPUs than GPUPORTAL_PEOPLE_CAP_GPUS."""
    cap = settings.PEOPLE.cap_gpus if settings.PEOPLE else None
    return cap is not None and gpus > cap


def cap_text(held: float, cap: float) -> str:
    """Return the finding about GPUs of a person over the cap, in a sentence."""
    # To two places, as the table of workloads: 4.04 would else read as the 4 that it exceeds.
    return f"{counted(held, 'GPU is', 'GPUs are')} allocated; one person may hold {quantity(cap)}."


def held_now(people: Collection[str], *, visibility: Visibility, now: datetime) -> float:
    """Return the GPU-equivalents that these persons hold at `now`, of teams that a reader sees.

    Four queries at most; none without persons.
    """
    if not people:
        return 0.0
    # Windows are half-open, so an empty one would hold no pod.
    moment = Window(now - timedelta(seconds=1), now)
    pods = person_pods(moment, people=people, visibility=visibility)
    return _running(pod for pod in pods if pod.ended_at is None)


def _running(pods: Iterable[PersonPod]) -> float:
    return sum(pod.gpus for pod in pods if pod.bound_at is not None)


def person_workloads(
    window: Window,
    *,
    people: Collection[str],
    reader: User,
    visibility: Visibility,
    now: datetime,
    zone: ZoneInfo,
) -> PersonWork:
    """Return the work of these persons, of teams that the reader sees in detail.

    Twenty queries at most and those of `workload_costs`; two without persons.
    """
    states = facts_states(window)
    if not people:
        return PersonWork((), (), (), Amounts(), 0, state=facts_state(states.values()))
    # Up to now, so that pods of this moment are among them for a window that is over.
    whole = Window(window.start, max(window.end, now))
    pods = person_pods(whole, people=people, visibility=visibility)
    held = _without_person(person_work(window, people=people, visibility=visibility))
    present = [pod for pod in pods if pod.ended_at is None]
    findings = idle_findings(
        {pod.key[1:4] for pod in present if pod.bound_at is not None},
        reader=reader,
        visibility=visibility,
        now=now,
    )
    costs = _unused_costs(window, held, visibility=visibility, zone=zone)
    rows = _rows(_WindowFacts(window, now, states, held, costs), pods, findings)
    total = Amounts()
    for amounts in held.values():
        total.add(amounts)
    waited = sum(row.waited for row in rows)
    unstarted = unstarted_of(people, visibility=visibility, now=now)
    state = facts_state(states.values())
    return PersonWork(rows, present, findings, total, waited, unstarted, state)


def _without_person(found: Mapping[PersonWorkload, Amounts]) -> dict[_Workload, Amounts]:
    """Return the same by workload: one account may have several names."""
    sums: dict[_Workload, Amounts] = defaultdict(Amounts)
    for key, amounts in found.items():
        sums[key[1:]].add(amounts)
    return sums


class _WindowFacts(Struct, frozen=True):
    """What is known of the hours of a window: which clusters have some, and what was held then."""

    window: Window
    now: datetime
    states: Mapping[str, FactsState]
    held: Mapping[_Workload, Amounts]
    costs: Mapping[_Workload, tuple[float, str]]

    def amounts(self, key: _Workload) -> Amounts | None:
        """Return what a workload held: nothing in collected hours, or None without any."""
        is_known = self.states.get(key[0]) is FactsState.KNOWN
        return self.held.get(key, Amounts() if is_known else None)

    def state(self, key: _Workload) -> FactsState:
        """Return whether it is known what was used of a workload."""
        amounts = self.amounts(key)
        if amounts is None:
            return self.states.get(key[0], FactsState.NO_DATA)
        return FactsState.KNOWN if has_metrics(amounts) else FactsState.NO_DATA


def _rows(
    known: _WindowFacts, pods: Iterable[PersonPod], findings: Iterable[IdleFinding]
) -> list[PersonWorkloadRow]:
    of_key: dict[_Workload, list[PersonPod]] = defaultdict(list)
    for pod in pods:
        of_key[pod.key[1:]].append(pod)
    idle = {(one.cluster, one.namespace, one.workload) for one in findings if one.is_open}
    rows = []
    # Also of pods that are only pending: they hold nothing, and are in no amounts.
    for key in {*known.held, *of_key}:
        there = [pod for pod in of_key[key] if pod.ended_at is None]
        cost, currency = known.costs.get(key, (None, None))
        running = _running(there)
        rows.append(
            PersonWorkloadRow(
                *key,
                running_gpus=running,
                pending_gpus=sum(pod.gpus for pod in there if pod.bound_at is None),
                waited=sum(pod.waited(known.window, known.now) for pod in of_key[key]),
                amounts=known.amounts(key),
                cost=cost,
                currency=currency,
                # A finding names no tier: it is shown where the workload holds GPUs now.
                finding="idle" if running and key[:3] in idle else None,
                usage=known.state(key),
            )
        )
    return sorted(
        rows,
        # What is not known comes after what is, as if it were nothing.
        key=lambda row: (
            -(row.amounts.not_used if row.amounts else 0),
            *(-row.running_gpus, row.namespace, row.workload),
        ),
    )


def _unused_costs(
    window: Window, held: Mapping[_Workload, Amounts], *, visibility: Visibility, zone: ZoneInfo
) -> dict[_Workload, tuple[float, str]]:
    """Return the cost of the unused part and its currency, of workloads with one currency.

    Prices are of workloads: a person has the part of it that they have of the unused GPU-hours.
    """
    if not held:
        return {}
    # Each name with each: more than the workloads asked for, which `keys` picks out.
    own = Filters(
        cluster=tuple(sorted({key[0] for key in held})),
        namespace=tuple(sorted({key[1] for key in held})),
        workload=tuple(sorted({key[2] for key in held})),
    )
    costs = workload_costs(window, filters=own, visibility=visibility, zone=zone)
    if not costs:
        return {}
    asked = UsageQuery(window, group_by=WORKLOAD_GROUPS, filters=own, interval=TimeStep.TOTAL)
    wholes: dict[WorkloadKey, int] = defaultdict(int)
    for row in usage_rows(asked, visibility=visibility, zone=zone):
        wholes[WorkloadKey(*(row.groups[name] for name in WORKLOAD_GROUPS))] += row.amounts.not_used
    keys = {key: WorkloadKey(*key) for key in held}
    return {
        key: _part(costs[name], held[key].not_used, wholes.get(name, 0))
        for key, name in keys.items()
        if len(costs.get(name, ())) == 1
    }


def _part(costs: Sequence[WorkloadCost], own: int, whole: int) -> tuple[float, str]:
    (cost,) = costs
    # The two come from two reads: no person may get more than all of it.
    part = min(1.0, own / whole) if whole else 0.0
    return float(money(round(cost.unused * part))), cost.currency


class PersonSumRow(Struct, frozen=True):
    """What one person of the teams that the reader leads holds, used and left unused.

    `amounts` are None where no hour of the window is collected.
    """

    person: Annotated[
        str, Column("User", help="As labels of pods name them; of several names the first.")
    ]
    account: Annotated[
        str | None, Column("Account", help="The account of that person, where it has one.")
    ]
    running_gpus: Annotated[float, Column("Allocated now", "GPUs")]
    pending_gpus: Annotated[float, Column("Pending now", "GPUs")]
    over_cap: Annotated[bool, Column("Over cap", help="More than one person may hold.")]
    amounts: Amounts | None

    @property
    def allocated_gpu_hours(self) -> Annotated[float | None, Column("Allocated", "GPU-h")]:
        return None if self.amounts is None else hours(self.amounts.allocated)

    @property
    def busy_gpu_hours(self) -> Annotated[float | None, Column("Active", "GPU-h")]:
        return hours(self.amounts.busy) if has_metrics(self.amounts) else None

    @property
    def not_busy_gpu_hours(self) -> Annotated[float | None, Column("Unused", "GPU-h")]:
        return hours(self.amounts.not_used) if has_metrics(self.amounts) else None


def person_sums(window: Window, *, visibility: Visibility, now: datetime) -> list[PersonSumRow]:
    """Return the persons of teams that the reader leads, most unused first.

    `visibility` is of these teams alone (`visibility_of_led`). Eight queries; none without a team.
    """
    if not visibility.team_ids or settings.PEOPLE is None:
        return []
    sums: dict[str, Amounts] = defaultdict(Amounts)
    for key, amounts in person_work(window, people=None, visibility=visibility).items():
        sums[key.person].add(amounts)
    there: dict[str, list[PersonPod]] = defaultdict(list)
    # Windows are half-open, so an empty one would hold no pod.
    moment = Window(now - timedelta(seconds=1), now)
    for pod in person_pods(moment, people=None, visibility=visibility):
        if pod.ended_at is None:
            there[pod.key.person].append(pod)
    people = {*sums, *there}
    accounts = accounts_of(people)
    # One account may have several names: each alone may be under the cap that they exceed.
    first: dict[str, str] = {}
    for one in sorted(people):
        name = first.setdefault(accounts.get(one, one), one)
        if name != one:
            sums[name].add(sums[one])
            there[name] += there[one]
    # A person without allocation in collected hours has zeros; without such hours there are none.
    is_known = facts_state(facts_states(window).values()) is FactsState.KNOWN
    rows = [
        _sum_row(one, accounts.get(one), there[one], sums[one] if is_known else None)
        for one in first.values()
    ]
    return sorted(
        rows,
        key=lambda row: (
            -(row.amounts.not_used if row.amounts else 0),
            *(-row.running_gpus, row.person),
        ),
    )


def _sum_row(
    person: str, account: str | None, pods: Sequence[PersonPod], amounts: Amounts | None
) -> PersonSumRow:
    running = _running(pods)
    pending = sum(pod.gpus for pod in pods if pod.bound_at is None)
    return PersonSumRow(person, account, running, pending, is_over_cap(running), amounts)


def last_week(now: datetime, zone: ZoneInfo) -> Window:
    """Return the last whole week, from Monday to Sunday in a zone."""
    today = now.astimezone(zone).date()
    monday = today - timedelta(days=today.weekday())
    return Window(day_start(monday - timedelta(days=_DAYS), zone), day_start(monday, zone))
