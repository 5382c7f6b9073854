"""Ledger figures that can be explained: meaning, formula, and scope as an address names it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.http import QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.usage_query import Filters, Grouping
from apps.web.components.page_query import LABELS, SCOPES, Query, explain_href, href, workload_href
from apps.web.components.tables import LEDGER
from apps.web.query_session import QuerySession

Number = int | float | None


class LedgerFigure(Struct, frozen=True):
    """A figure by its column key.

    `formula` is made of operators and of the keys of other figures, as `("busy_gpu_hours", "÷",
    …)`; empty for what is counted, not computed. `facts` are the fields of Amounts it rests on.
    `of_capacity`: only nodes have it, so a team, a namespace, a workload and a pod have none.
    `sources` say which queries are behind it: capacity, holding or activity.
    """

    key: str
    label: str
    meaning: str
    anchor: str
    value: Callable[[Amounts], Number]
    facts: Sequence[str]
    formula: Sequence[str] = ()
    sources: Sequence[str] = ("holding", "activity")
    of_capacity: bool = False

    @property
    def is_ratio(self) -> bool:
        return self.key.endswith("_ratio")


_HELD = ("holding",)
_MEASURED = ("holding", "activity")
_CAPACITY = ("capacity",)
_OF_NODES = ("capacity", "holding")


def _amount(
    name: str,
    meaning: str,
    anchor: str,
    formula: Sequence[str] = (),
    sources: Sequence[str] = _MEASURED,
) -> LedgerFigure:
    key = f"{name}_gpu_hours"
    return LedgerFigure(
        key=key,
        label=LEDGER[key].label,
        meaning=meaning,
        anchor=anchor,
        value=lambda amounts: getattr(amounts, name),
        facts=(name,),
        formula=formula,
        sources=sources,
    )


def _of_capacity(*figure: Any, **others: Any) -> LedgerFigure:
    return replace(_amount(*figure, **others), of_capacity=True)


_SPLIT = (
    *("not_running_gpu_hours", "+", "unmeasured_gpu_hours", "+", "idle_gpu_hours", "+"),
    *("underused_gpu_hours", "+", "busy_gpu_hours"),
)
_ALL = (
    _of_capacity(
        "capacity",
        "The GPUs that the tier's nodes have, for as long as each node exists, whether anybody "
        "holds them or not. Comes from the nodes, never from which devices happen to be measured.",
        "capacity",
        (
            *("planned_outage_gpu_hours", "+", "unhealthy_gpu_hours", "+"),
            *("unallocated_gpu_hours", "+", "allocated_gpu_hours"),
        ),
        _CAPACITY,
    ),
    _of_capacity(
        "planned_outage",
        "Held by no pod while its node was away as announced beforehand. It is in neither "
        "unavailable nor unallocated, and no waste.",
        "planned-outages",
        sources=_OF_NODES,
    ),
    _of_capacity(
        "unhealthy",
        "Held by no pod, on a node that is not ready or takes no pods, or on a device that "
        "cannot be allocated. A pod on such a node counts as allocated.",
        "ledger",
        sources=_OF_NODES,
    ),
    _of_capacity(
        "unallocated",
        "Healthy, and held by no pod.",
        "ledger",
        (
            *("capacity_gpu_hours", "−", "planned_outage_gpu_hours", "−"),
            *("unhealthy_gpu_hours", "−", "allocated_gpu_hours"),
        ),
        _OF_NODES,
    ),
    _of_capacity(
        "stranded",
        "The part of unallocated that no unit of its GPU's layout can use.",
        "ledger",
        sources=_OF_NODES,
    ),
    _of_capacity(
        "unattributed",
        "Activity on a device while no pod explains it. It stands beside the ledger and belongs "
        "to no team.",
        "attribution",
    ),
    _amount(
        "allocated",
        "Held by pods, each from the moment it is bound to a node until it ends, to the second, "
        "weighed with what it asked for.",
        "allocated",
        _SPLIT,
        _HELD,
    ),
    _amount(
        "not_running",
        "Allocated while no container that asked for GPU runs: an image is pulled, or a container "
        "crashed and has not started again.",
        "ledger",
        sources=_HELD,
    ),
    _amount(
        "unmeasured",
        "Running, with no device sample to say what happened. It is neither waste, nor idle, "
        "nor zero.",
        "no-metrics",
    ),
    _amount(
        "idle",
        "Measured and not active, in whole half hours whose mean activity is under the idle "
        "threshold (10 % unless set otherwise). The half hour in which a pod starts or ends is "
        "never idle.",
        "idle",
    ),
    _amount(
        "underused",
        "Measured and not active, in all half hours that are not idle.",
        "idle",
    ),
    _amount(
        "busy",
        "Measured time × mean activity × weight. Activity is the fraction of time in which the "
        "engines of the GPU were active. It says that the GPU worked, not that it worked well.",
        "busy",
    ),
    _amount(
        "burst",
        "Activity of a shared GPU above what its tenants held. It stands beside the ledger.",
        "attribution",
    ),
    LedgerFigure(
        key="not_busy_gpu_hours",
        label="Unused allocation",
        meaning="Not running, idle and underutilized. GPU-hours without metrics are left out.",
        anchor="waste",
        value=lambda amounts: amounts.not_running + amounts.idle + amounts.underused,
        facts=("not_running", "idle", "underused"),
        formula=("not_running_gpu_hours", "+", "idle_gpu_hours", "+", "underused_gpu_hours"),
    ),
    LedgerFigure(
        key="measured_gpu_hours",
        label="Measured",
        meaning="Allocated, running and covered by device samples.",
        anchor="measured",
        value=lambda amounts: amounts.measured,
        facts=("idle", "underused", "busy"),
        formula=(
            *("allocated_gpu_hours", "−", "unmeasured_gpu_hours", "−", "not_running_gpu_hours"),
        ),
    ),
    LedgerFigure(
        key="allocation_ratio",
        label=LEDGER["allocation_ratio"].label,
        meaning="The share of the capacity that pods held.",
        anchor="ratios",
        value=lambda amounts: amounts.allocation_ratio,
        facts=("allocated",),
        formula=("allocated_gpu_hours", "÷", "capacity_gpu_hours"),
        sources=("capacity", "holding"),
        of_capacity=True,
    ),
    LedgerFigure(
        key="utilization_ratio",
        label=LEDGER["utilization_ratio"].label,
        meaning="Active GPU-hours ÷ GPU-hours that were allocated, running and have metrics. "
        "Read it together with metrics coverage: 90 % says little when half has no "
        "metrics.",
        anchor="ratios",
        value=lambda amounts: amounts.utilization_ratio,
        facts=("busy",),
        formula=(
            *("busy_gpu_hours", "÷", "(", "allocated_gpu_hours", "−", "unmeasured_gpu_hours"),
            *("−", "not_running_gpu_hours", ")"),
        ),
    ),
    LedgerFigure(
        key="coverage_ratio",
        label=LEDGER["coverage_ratio"].label,
        meaning="The share of the running time that device samples cover.",
        anchor="ratios",
        value=lambda amounts: amounts.coverage_ratio,
        facts=("unmeasured",),
        formula=(
            *("1", "−", "unmeasured_gpu_hours", "÷", "(", "allocated_gpu_hours", "−"),
            *("not_running_gpu_hours", ")"),
        ),
    ),
)
FIGURES: Mapping[str, LedgerFigure] = {figure.key: figure for figure in _ALL}
"""All figures by column key."""

CAPACITY_EQUATION = ("capacity_gpu_hours", "=", *FIGURES["capacity_gpu_hours"].formula)
ALLOCATED_EQUATION = ("allocated_gpu_hours", "=", *_SPLIT)


def figure_named(name: str) -> LedgerFigure | None:
    """Return the figure of a column key, or of a ledger field alone (`busy`); None for others."""
    return FIGURES.get(name) or FIGURES.get(f"{name}_gpu_hours")


def terms_of(figure: LedgerFigure) -> list[LedgerFigure]:
    """Return the figures that the formula is made of, in its order; empty for what is counted."""
    return [FIGURES[part] for part in figure.formula if part in FIGURES]


_LABELS = {**LABELS, "workload": "workload", "pod": "pod"}


class ScopePart(Struct, frozen=True):
    """A part of a scope in words, and its page where it has one."""

    label: str
    name: str
    href: str | None


class FigureScope(Struct, frozen=True):
    """Names by the keys of SCOPES, as far as given; a workload reads `Kind/name`."""

    names: Mapping[str, str]

    def __getitem__(self, key: str) -> str:
        return self.names.get(key, "")

    @property
    def is_detailed(self) -> bool:
        """Whether it is finer than a team, so that only who sees the team may read it."""
        return bool(self["namespace"] or self["workload"] or self["pod"])

    @property
    def has_capacity(self) -> bool:
        """Whether nodes are its own: teams and what they run have none."""
        return not (self["team"] or self.is_detailed)

    def filters(self, reading: QuerySession) -> Filters:
        """Return the filters of facts; a pod is not among them."""
        # The reading is narrowed to the cluster already.
        kept = {g.value for g in Grouping if g.value in self.names and g is not Grouping.CLUSTER}
        return replace(reading.filters, **{key: (self.names[key],) for key in kept})

    def href(self, figure: str, query: Query, **more: str) -> str:
        """Return where a figure of this scope, narrowed by `more`, is explained."""
        return explain_href(figure, query, **{**self.names, **more})

    def parts(self, query: Query, *, pod_name: str = "") -> list[ScopePart]:
        """Return the scope in words, the widest first, with the pages of its parts."""
        shown = {**self.names, "pod": pod_name} if pod_name else self.names
        return [
            ScopePart(_LABELS[key], shown[key], self._page(key, query))
            for key in SCOPES
            if key in shown
        ]

    def _page(self, key: str, query: Query) -> str | None:
        if key in {"tier", "team"}:
            return href(key, query, name=self[key])
        if key == "pod":
            return href("pod", query, cluster=self["cluster"], uid=self["pod"])
        # Names of workloads are told apart by both: without one of them there is no page.
        if key == "workload" and self["cluster"] and self["namespace"]:
            return workload_href(self["cluster"], self["namespace"], self["workload"], query)
        return None


def several(params: QueryDict) -> list[str]:
    """Return the keys under which an address has several names.

    These are filters that the reader chose; one name alone is what a figure is of.
    """
    return [key for key in LABELS if len({name for name in params.getlist(key) if name}) > 1]


def scope_from(params: QueryDict) -> FigureScope | None:
    """Return what an address names; None where a name cannot be one."""
    chosen = several(params)
    given = {key: params.get(key, "") for key in SCOPES if key not in chosen}
    if any("\0" in name for name in given.values()):
        return None  # PostgreSQL refuses to compare with it
    return FigureScope({key: name for key, name in given.items() if name})
