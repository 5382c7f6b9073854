"""Inference services: what they served, per GPU-hour and for how much money, and which rest."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.serving_objectives import ttft_text
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import HELD, SCALE_DIGITS, Cause
from apps.costs.selectors.costs import WORKLOAD_GROUPS, cost_rows
from apps.costs.selectors.rows import CostQuery
from apps.usage.domain.amounts import hours
from apps.usage.domain.usage_query import GROUPS, Filters, UsageQuery
from apps.usage.selectors import (
    LastRequest,
    ServiceKey,
    ServingSums,
    check_serving_window,
    last_requests,
    serving_sums,
    usage_rows,
)

FORGOTTEN_DAYS = 7
_LOOKBACK = timedelta(days=FORGOTTEN_DAYS)
# Of a week nearly every hour must be known before a service is called forgotten.
_KNOWN_HOURS = 0.9 * FORGOTTEN_DAYS * 24
_MOSTLY_IDLE = 0.5
_MILLION = 1_000_000
# Where power has a tariff, the price of a GPU-hour is without it.
_COST_CAUSES = frozenset((*HELD, Cause.ENERGY))
_MOST_NAMES = 100


class ServiceUse(StrEnum):
    """How a service is used; of several, that of the one that is used most.

    `kept_for_latency`: idle most of the time, and requests come or a mark says that it stays.
    `no_requests`: none, in less time than it takes to be `forgotten`. Of an `unknown` one no series
    tell requests, or none tell whether the GPUs that serve them are idle.
    """

    ACTIVE = "active"
    KEPT_FOR_LATENCY = "kept_for_latency"
    NO_REQUESTS = "no_requests"
    FORGOTTEN = "forgotten"
    UNKNOWN = "unknown"


SERVING_GROUPS = (
    Column("Model", key="model", help="As the server names it; empty where it names none."),
    *(one for one in GROUPS if one.key in {"cluster", "namespace", "workload", "team", "tier"}),
)


class ServingRow(Struct, frozen=True):
    """What the services of a group served in a window, and with how many GPU-hours."""

    groups: Annotated[Mapping[str, str], Column(groups=SERVING_GROUPS)]
    use: Annotated[
        ServiceUse,
        Column(
            "Use",
            help="Kept for latency: at least half of its GPU-hours are idle, and requests come, or "
            "a mark says that it stays. "
            f"Forgotten: no request in {FORGOTTEN_DAYS} days. No requests: none in less time.",
            values=ServiceUse,
        ),
    ]
    kept_for_latency: Annotated[
        bool,
        Column(
            *("Marked", ""),
            help="Kept for latency, by the annotation gpuportal.io/kept-for-latency of its pods.",
        ),
    ]
    last_request_at: Annotated[
        datetime | None,
        Column(
            "Last request",
            help=f"Start of the last hour with a request, in the {FORGOTTEN_DAYS} days up to the "
            "end of the window, or up to now.",
            shown_as="hour",
            api_note="Null where there is none.",
        ),
    ]
    tokens_in: Annotated[int | None, Column("Tokens in", help="Read from prompts.")]
    tokens_out: Annotated[int | None, Column("Tokens out", help="Written in answers.")]
    requests: Annotated[int | None, Column("Requests", help="Finished requests.")]
    tokens_per_gpu_hour: Annotated[
        int | None,
        Column("Tokens per GPU-h", help="(Tokens in + tokens out) ÷ measured GPU-hours."),
    ]
    cost_per_million_tokens: Annotated[
        int | None,
        Column(
            *("Cost", "per 1M tokens"),
            help="Cost of the measured GPU-hours, energy with a tariff too, ÷ tokens in and out.",
            api_note="Null without tokens, and where a part of the GPU-hours has no price.",
            digits=SCALE_DIGITS,
        ),
    ]
    currency: Annotated[
        str | None, Column("Currency", api_note="Null without a cost.", off_page=True)
    ]
    ttft_ratio: Annotated[
        float | None,
        Column(
            *("TTFT met", "%", "Answers whose first token came within the objective."),
            api_note="0..1. Null where no engine tells.",
        ),
    ]
    ttft_objective: Annotated[
        str,
        Column(
            "TTFT objective",
            help="Time to first token that each answer is held against. A range where the row has "
            "several: each answer counts against its own.",
            api=False,
        ),
    ]
    ttft_objective_ms: Annotated[
        int | None,
        Column(
            *("Lowest objective", "ms", "Lowest objective of the time to first token."),
            api_note="Null where no engine tells, and where some hours are of a version that did "
            "not keep it.",
            off_page=True,
        ),
    ]
    ttft_objective_most_ms: Annotated[
        int | None,
        Column(
            *("Highest objective", "ms", "Highest objective of the time to first token."),
            api_note="That of ttft_objective_ms where the row has one alone.",
            off_page=True,
        ),
    ]
    waiting: Annotated[float | None, Column("Queue", help="Mean of queued requests of a pod.")]
    running: Annotated[float | None, Column("Running", help="Mean of running requests of a pod.")]
    kv_cache_ratio: Annotated[
        float | None, Column("KV cache", "%", "Mean usage of the KV cache.", api_note="0..1.")
    ]
    allocated_gpu_hours: Annotated[float, Column("Allocated", "GPU-h", "Held by the services.")]
    idle_gpu_hours: Annotated[
        float | None,
        Column(
            *("Idle", "GPU-h", "Allocated, and the GPU did next to nothing."),
            api_note="Null where no metrics tell it of any of the allocated GPU-hours.",
        ),
    ]
    measured_ratio: Annotated[
        float | None,
        Column(
            *("Measured", "%", "Part of the allocated GPU-hours whose series are there."),
            api_note="0..1.",
        ),
    ]


class _ServiceCost(Struct):
    """What a service held, nano-GPU-hours, and its cost by currency, units of 1e-8."""

    allocated: int = 0
    idle: int = 0
    unmeasured: int = 0
    unpriced: int = 0
    costs: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def known(self) -> int:
        """What metrics tell of: without any of it neither idle nor active is known."""
        return self.allocated - self.unmeasured


class _Group(Struct):
    """The services of a row, while they are summed up."""

    sums: ServingSums = field(default_factory=ServingSums)
    allocated: float = 0.0
    idle: float = 0.0
    is_idle_known: bool = False
    costs: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    is_priced: bool = True
    uses: set[ServiceUse] = field(default_factory=set)
    last: datetime | None = None


def serving_rows(
    window: Window,
    *,
    group_by: Sequence[str],
    filters: Filters,
    visibility: Visibility,
    now: datetime,
    zone: ZoneInfo | None = None,
) -> list[ServingRow]:
    """Return what services did, by groups of SERVING_GROUPS; most tokens first.

    A service is a workload of which series of an inference server are there in the window. Only
    services of teams that the reader sees. Costs are those of `cost_rows`, of the measured part of
    what each held. Queries as of `cost_rows` and `usage_rows`, and twelve more at most.
    Raises GroupingRefused for windows of which the hours of pods are no longer kept.
    """
    check_serving_window(window)
    found = serving_sums(window, filters=filters, visibility=visibility)
    if not found:
        return []
    names = tuple(sorted({key.workload for key in found}))
    # Reading all workloads of the filters costs less than naming hundreds of them.
    own = replace(filters, workload=names) if len(names) <= _MOST_NAMES else filters
    held = _held(window, own, visibility, zone)
    # Of a window that lasts, the hours to come would count as hours of which nothing is known.
    until = max(window.start, min(window.end, now))
    look_back = Window(until - _LOOKBACK, until)
    latest = last_requests(look_back, filters=own, visibility=visibility)
    groups: dict[tuple[str, ...], _Group] = defaultdict(_Group)
    for key, models in found.items():
        of_service = held.get(key, _ServiceCost())
        last = latest.get((key.cluster, key.namespace, key.workload))
        parts = _parts([one.measured for one in models.values()])
        is_marked = any(one.is_marked for one in models.values())
        for (model, sums), part in zip(models.items(), parts, strict=True):
            named = {**key._asdict(), "model": model}
            group = groups[tuple(named[name] for name in group_by)]
            group.uses.add(_use(sums, of_service, last, is_marked=is_marked))
            _add(group, sums, of_service, part, last)
    rows = [_row(dict(zip(group_by, names, strict=True)), one) for names, one in groups.items()]
    return sorted(rows, key=_most_tokens)


def _most_tokens(row: ServingRow) -> tuple[int, float, tuple[str, ...]]:
    tokens = (row.tokens_in or 0) + (row.tokens_out or 0)
    return -tokens, -row.allocated_gpu_hours, tuple(row.groups.values())


def _held(
    window: Window, filters: Filters, visibility: Visibility, zone: ZoneInfo | None
) -> dict[ServiceKey, _ServiceCost]:
    found: dict[ServiceKey, _ServiceCost] = defaultdict(_ServiceCost)
    query = UsageQuery(window, group_by=WORKLOAD_GROUPS, filters=filters)
    for row in usage_rows(query, visibility=visibility, zone=zone):
        one = found[ServiceKey(*(row.groups[name] for name in WORKLOAD_GROUPS))]
        one.allocated += row.amounts.allocated
        one.idle += row.amounts.idle
        one.unmeasured += row.amounts.unmeasured + row.amounts.not_running
    asked = CostQuery(window, group_by=WORKLOAD_GROUPS, filters=filters, waste=True)
    for cost in cost_rows(asked, visibility=visibility, zone=zone):
        if cost.cause not in _COST_CAUSES:
            continue
        one = found[ServiceKey(*(cost.groups[name] for name in WORKLOAD_GROUPS))]
        if cost.cost is None or not cost.currency:
            one.unpriced += cost.gpu_hours
        else:
            one.costs[cost.currency] += cost.cost
    return found


def _parts(measured: Sequence[int]) -> list[float]:
    """Return which part of a service each of its models is."""
    total = sum(measured)
    return [one / total if total else 1 / len(measured) for one in measured]


def _add(
    group: _Group, sums: ServingSums, held: _ServiceCost, part: float, last: LastRequest | None
) -> None:
    group.sums.add(sums)
    group.allocated += held.allocated * part
    group.idle += held.idle * part
    group.is_idle_known = group.is_idle_known or held.known > 0
    if last is not None and last.at is not None:
        group.last = max(filter(None, (group.last, last.at)))
    if sums.tokens is None:
        return
    # Nothing is said of hours that are not priced yet, nor of a part of the cost.
    if held.unpriced or not held.costs or not held.allocated:
        group.is_priced = False
    else:
        for currency, cost in held.costs.items():
            group.costs[currency] += cost * (sums.measured_of_tokens / held.allocated)


def _use(
    sums: ServingSums, held: _ServiceCost, last: LastRequest | None, *, is_marked: bool
) -> ServiceUse:
    # What its owner says holds where series cannot tell an idle service from a forgotten one.
    if last is None or sums.requests is None:
        return ServiceUse.KEPT_FOR_LATENCY if is_marked else ServiceUse.UNKNOWN
    if last.at is None and is_marked:
        return ServiceUse.KEPT_FOR_LATENCY
    if last.at is None:
        return ServiceUse.FORGOTTEN if last.hours >= _KNOWN_HOURS else ServiceUse.NO_REQUESTS
    # Requests come, and a server that idles between them has some too: without metrics of its
    # GPUs it is neither.
    if held.known <= 0:
        return ServiceUse.KEPT_FOR_LATENCY if is_marked else ServiceUse.UNKNOWN
    is_idle = held.idle >= _MOSTLY_IDLE * held.known
    return ServiceUse.KEPT_FOR_LATENCY if is_idle else ServiceUse.ACTIVE


def _most_used(uses: Iterable[ServiceUse]) -> ServiceUse:
    order = list(ServiceUse)
    return min(uses, key=order.index, default=ServiceUse.UNKNOWN)


def _row(groups: Mapping[str, str], group: _Group) -> ServingRow:
    sums = group.sums
    tokens, cost, currency = sums.tokens, None, None
    if tokens and group.is_priced and len(group.costs) == 1:
        ((currency, amount),) = group.costs.items()
        cost = round(amount * _MILLION / tokens)
    return ServingRow(
        groups=groups,
        use=_most_used(group.uses),
        kept_for_latency=sums.is_marked,
        last_request_at=group.last,
        tokens_in=sums.tokens_in,
        tokens_out=sums.tokens_out,
        requests=sums.requests,
        tokens_per_gpu_hour=(
            round(tokens / hours(sums.measured_of_tokens))
            if tokens is not None and sums.measured_of_tokens
            else None
        ),
        cost_per_million_tokens=cost,
        currency=currency,
        ttft_ratio=(
            sums.first_tokens_in_time / sums.first_tokens
            if sums.first_tokens and sums.first_tokens_in_time is not None
            else None
        ),
        ttft_objective=_objective_text(sums.ttft_ms),
        ttft_objective_ms=sums.ttft_ms[0] if sums.ttft_ms else None,
        ttft_objective_most_ms=sums.ttft_ms[1] if sums.ttft_ms else None,
        waiting=_mean(sums.waiting),
        running=_mean(sums.running),
        kv_cache_ratio=_mean(sums.kv_cache),
        allocated_gpu_hours=hours(round(group.allocated)),
        idle_gpu_hours=hours(round(group.idle)) if group.is_idle_known else None,
        measured_ratio=min(1.0, sums.measured / group.allocated) if group.allocated else None,
    )


def _objective_text(objectives: tuple[int, int] | None) -> str:
    """Return the objective; of several the range, for none of them is that of the row."""
    return " to ".join(ttft_text(ms) for ms in sorted(set(objectives or ())))


def _mean(sums: tuple[float, int]) -> float | None:
    return sums[0] / sums[1] if sums[1] else None
