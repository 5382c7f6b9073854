"""GPUs by how often work fails on them, beside the errors that they show themselves."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Struct, field

from apps.accounts.domain.rows import row_from
from apps.clusters.domain.columns import Column, Counts
from apps.clusters.domain.devices.errors import HealthMeasure
from apps.clusters.domain.devices.state import XidKind, meaning
from apps.clusters.models import Device
from apps.goodput.domain.advice import (
    GpuAction,
    GpuAdvice,
    GpuErrors,
    GpuFault,
    excess_text,
    gpu_action,
    gpu_advice,
    gpu_faults,
    gravest,
)
from apps.goodput.domain.reliability import GpuFailures, Judgement, NodeFailures, judgement
from apps.goodput.models import ReliabilityReport
from apps.goodput.selectors.reports import ClusterReport
from apps.usage.models import CollectionWindow, DeviceHealthHour

_SUMMED = (
    *("remapped_correctable", "remapped_uncorrectable", "ecc_corrected", "ecc_uncorrected"),
    *("thermal_seconds", "power_seconds"),
)
_MEASURES: Mapping[str, HealthMeasure] = {
    "xids": HealthMeasure.XID,
    "remapped_correctable": HealthMeasure.REMAPPED_CORRECTABLE,
    "remapped_uncorrectable": HealthMeasure.REMAPPED_UNCORRECTABLE,
    "ecc_corrected": HealthMeasure.ECC_CORRECTED,
    "ecc_uncorrected": HealthMeasure.ECC_UNCORRECTED,
    "thermal_seconds": HealthMeasure.THERMAL,
    "power_seconds": HealthMeasure.POWER,
}
# What the state of a GPU has where its exporter shows the measure at all.
_SHOWN_BY: Mapping[str, tuple[str, ...]] = {
    "xids": ("xid",),
    "remapped_correctable": ("remapped_correctable",),
    "remapped_uncorrectable": ("remapped_uncorrectable",),
    "ecc_corrected": ("ecc_corrected_volatile", "ecc_corrected_aggregate"),
    "ecc_uncorrected": ("ecc_uncorrected_volatile", "ecc_uncorrected_aggregate"),
    "thermal_seconds": ("thermal_throttled_seconds",),
    "power_seconds": ("power_throttled_seconds",),
}
_FAULTS_BY = ("xid", "remap_failure", "ecc_uncorrected_volatile")
_UNCHECKED = "Null until its cluster is checked."
_GONE = timedelta(days=7)
"""One that fell off its bus is no longer shown; after so long it was taken out."""


def _count(label: str, unit: str, note: str) -> Column:
    return Column(label, unit, note, api_note="Null where no hour has data.")


# Nodes and GPUs are judged alike: their lists have these columns in common.
JudgementColumn = Annotated[
    Judgement,
    Column(
        "Judgement",
        help="Too few to tell: chance or a few bad days explain it. Too little to compare: "
        "most of its work ran nowhere else.",
    ),
]
RatioColumn = Annotated[
    float | None,
    Column("Ratio", help="Compared ÷ expected.", api_note="Null where none are expected."),
]
RatioLowColumn = Annotated[
    float | None,
    Column("Low", help="Lower end of its 95 % range.", api_note="Null: not compared."),
]
RatioHighColumn = Annotated[
    float | None, Column("High", help="Upper end of its 95 % range.", api_note="Null: no end.")
]


class GpuReliabilityRow(Struct, frozen=True):
    """A GPU over the last 30 days: failures beside those expected, and what it showed itself."""

    cluster: Annotated[str, Column("Cluster")]
    node: Annotated[str, Column("Node")]
    gpu: Annotated[str, Column("GPU", help="Its number on the node.")]
    uuid: Annotated[str, Column("UUID", off_page=True)]
    model: Annotated[str, Column("Model")]
    judgement: JudgementColumn
    action: Annotated[
        GpuAction | None,
        Column(
            "Action",
            help="What to do first: it is unreliable, or broken by what it shows now.",
            api_note="Null where nothing is.",
        ),
    ]
    is_unreliable: Annotated[
        bool,
        Column(
            "Unreliable",
            off_page=True,
            help="More failures than chance and its node explain: 1 % for all GPUs of a cluster.",
        ),
    ]
    incidents: Annotated[
        int | None,
        Column(
            "Failures",
            help="Pods that held it and failed; ten minutes count once.",
            api_note=_UNCHECKED,
        ),
    ]
    compared: Annotated[
        int | None,
        Column(
            "Compared", help="Failures of work that ran on other GPUs too.", api_note=_UNCHECKED
        ),
    ]
    expected: Annotated[
        float | None,
        Column(
            "Expected",
            help="What this work would have at its rate on other GPUs.",
            api_note="Null where nothing is compared.",
        ),
    ]
    ratio: RatioColumn
    ratio_low: RatioLowColumn
    ratio_high: RatioHighColumn
    lost_gpu_hours: Annotated[
        float | None,
        Column(
            "Lost", "GPU-h", "What failures cost on all GPUs of these runs.", api_note=_UNCHECKED
        ),
    ]
    gpu_hours: Annotated[
        float | None, Column("Run", "GPU-h", "GPU-hours of the runs on it.", api_note=_UNCHECKED)
    ]
    reasons: Annotated[Counts, Column("", help="Failed runs by the reason of their end.")]
    xids_hardware: Annotated[
        int | None, _count("XIDs, hardware", "", "Errors of hardware that followed another code.")
    ]
    xids_driver: Annotated[int | None, _count("XIDs, driver", "", "Errors of the driver.")]
    xids_application: Annotated[
        int | None, _count("XIDs, application", "", "Errors of programs: the GPU is well.")
    ]
    xids_other: Annotated[
        int | None,
        _count("XIDs, other", "", "Codes that are not in the list here: NVIDIA's has them."),
    ]
    last_xid: Annotated[
        int | None, Column("Last XID", help="Code of the newest error.", api_note="Null: none.")
    ]
    remapped_correctable: Annotated[
        int | None, _count("Remapped, correctable", "rows", "Rows replaced in these days.")
    ]
    remapped_uncorrectable: Annotated[
        int | None, _count("Remapped, uncorrectable", "rows", "Rows replaced in these days.")
    ]
    ecc_corrected: Annotated[int | None, _count("ECC corrected", "", "Single-bit errors.")]
    ecc_uncorrected: Annotated[int | None, _count("ECC uncorrected", "", "Double-bit errors.")]
    thermal_seconds: Annotated[
        float | None, _count("Thermal throttling", "s", "Clocks held down for heat.")
    ]
    power_seconds: Annotated[
        float | None, _count("Power throttling", "s", "Clocks held down for power.")
    ]
    known_hours: Annotated[
        int,
        Column("Errors known", "h", "Hours with data of these days, of the least known figure."),
    ]
    compared_ratio: Annotated[
        float | None,
        Column(
            "Compared run time",
            help="Of work that ran on other GPUs too.",
            api_note=_UNCHECKED,
            off_page=True,
        ),
    ]
    advice: Annotated[
        str, Column("Advice", help="What to do and why, in a sentence.", off_page=True)
    ]


# Of failures that are not counted yet: that is not none.
_UNCOUNTED: Mapping[str, Any] = dict.fromkeys(
    ("incidents", "compared", "compared_ratio", "lost_gpu_hours", "gpu_hours")
)


class _Health(Struct):
    """What a GPU showed in a window; `blank` are by figure the hours without a sum of it."""

    sums: Counter[str] = field(default_factory=Counter)
    xids: list[tuple[float, int]] = field(default_factory=list)
    blank: defaultdict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_well(self) -> bool:
        """Whether no error and no throttling was seen."""
        return not (self.xids or any(self.sums.values()))


class _ClusterErrors(Struct, frozen=True):
    """What a cluster's exporters show: states of GPUs, when each was `seen` last and what is broken
    in them now, and the hours with data by figure, in order. `is_judged`: there is a report of it.
    """

    cluster: str
    devices: Mapping[str, Mapping[str, Any]]
    seen: Mapping[str, datetime]
    hours: Mapping[str, Sequence[datetime]]
    faults: Mapping[str, Sequence[GpuFault]]
    is_judged: bool

    def hours_of(self, uuid: str, own: _Health) -> dict[str, int]:
        """Return by figure in how many hours it is known of a GPU: of one that went, no later."""
        found = {}
        for name, hours in self.hours.items():
            seen = self.seen.get(uuid)
            until = len(hours) if seen is None else bisect_left(hours, seen)
            there = hours[:until] if name in own.blank else ()
            found[name] = until - len(set(own.blank.get(name, ())).intersection(there))
        return found


def gpu_reliability_rows(reports: Iterable[ClusterReport]) -> list[GpuReliabilityRow]:
    """Return GPUs that had a failure or show an error, the least likely to be sound first.

    GPUs that are broken by their own word are listed before any report too. Three queries for each
    cluster.
    """
    return [row for report in reports for row in gpu_rows(report.row)]


def gpu_rows(report: ReliabilityReport) -> Iterator[GpuReliabilityRow]:
    """Yield the GPUs of a report as `gpu_reliability_rows` has them. Three queries.

    Of one that is not computed yet, only those that are broken now, which takes one.
    """
    devices, seen, faults = _devices(report.cluster_id)
    judged: list[GpuFailures] = []
    health: dict[str, _Health] = {}
    hours: Mapping[str, Sequence[datetime]] = dict.fromkeys(_MEASURES, ())
    if report.start is not None and report.end is not None:
        judged = msgspec.convert(report.gpus or [], list[GpuFailures])
        health = _health(report.cluster_id, report.start, report.end)
        hours = _hours_known(report.cluster_id, report.start, report.end)
    shown = _ClusterErrors(
        report.cluster.name, devices, seen, hours, faults, is_judged=report.end is not None
    )
    known = {one.uuid for one in judged}
    for one in judged:
        yield _row(shown, one, health.get(one.uuid) or _Health())
    errors = {uuid for uuid, own in health.items() if not own.is_well}
    for one in _without_failures(devices, (errors | faults.keys()) - known):
        yield _row(shown, one, health.get(one.uuid) or _Health())


def gpus_to_act_on(report: ReliabilityReport) -> list[GpuAdvice]:
    """Return the GPUs of a report of which `gpu_rows` has an action, with what to do.

    One query, two where a GPU is unreliable: of the others errors of past days change nothing.
    """
    devices, seen, faults = _devices(report.cluster_id)
    judged: list[GpuFailures] = []
    health: dict[str, _Health] = {}
    if report.start is not None and report.end is not None:
        judged = msgspec.convert(report.gpus or [], list[GpuFailures])
        if bad := [one.uuid for one in judged if one.is_unreliable]:
            health = _health(report.cluster_id, report.start, report.end, bad)
    shown = _ClusterErrors(
        report.cluster.name, devices, seen, {}, faults, is_judged=report.end is not None
    )
    others = faults.keys() - {one.uuid for one in judged}
    found = []
    for one in (*judged, *_without_failures(devices, others)):
        own = health.get(one.uuid) or _Health()
        action = _action(one, own, faults.get(one.uuid, ()))
        if action:
            gpu = str(devices.get(one.uuid, {}).get("index", "")) or one.uuid
            text = _advice(shown, one, action)
            found.append(GpuAdvice(gpu, one.node, action, text, one.is_unreliable))
    return found


def _without_failures(
    devices: Mapping[str, Mapping[str, Any]], uuids: Iterable[str]
) -> Iterator[GpuFailures]:
    """Yield GPUs that had no failure, by their place."""
    for uuid in sorted(uuids, key=lambda uuid: (_place(devices, uuid), uuid)):
        yield GpuFailures(
            node=devices.get(uuid, {}).get("node", ""),
            incidents=0,
            expected=0.0,
            p_value=1.0,
            is_unreliable=False,
            ratio=None,
            ratio_low=None,
            ratio_high=None,
            gpu_hours=0.0,
            lost_gpu_hours=0.0,
            reasons={},
            uuid=uuid,
            compared_ratio=0.0,
        )


def _place(devices: Mapping[str, Mapping[str, Any]], uuid: str) -> tuple[str, str]:
    state = devices.get(uuid, {})
    return state.get("node", ""), f"{state.get('index', ''):>04}"


def _row(shown: _ClusterErrors, one: GpuFailures, own: _Health) -> GpuReliabilityRow:
    state = shown.devices.get(one.uuid, {})
    kinds = Counter(meaning(code).kind for _, code in own.xids)
    hours = shown.hours_of(one.uuid, own)
    known = {
        name
        for name, by in _SHOWN_BY.items()
        # An exporter that came to show a measure today says nothing of the days before.
        if hours[name] and any(state.get(key) is not None for key in by)
    }
    known.update(name for name in _SUMMED if own.sums[name])
    if own.xids:
        known.add("xids")

    def xids(kind: XidKind) -> int | None:
        return kinds[kind] if "xids" in known else None

    sums = {name: own.sums[name] if name in known else None for name in _SUMMED}
    action = _action(one, own, shown.faults.get(one.uuid, ()))
    counted = failure_columns(one) if shown.is_judged else {**failure_columns(one), **_UNCOUNTED}
    return row_from(
        GpuReliabilityRow,
        one,
        cluster=shown.cluster,
        gpu=str(state.get("index", "")),
        model=str(state.get("model", "")),
        judgement=judgement(one) if shown.is_judged else Judgement.UNCHECKED,
        xids_hardware=xids(XidKind.HARDWARE),
        xids_driver=xids(XidKind.DRIVER),
        xids_application=xids(XidKind.APPLICATION),
        xids_other=xids(XidKind.UNKNOWN),
        last_xid=max(own.xids)[1] if own.xids else None,
        **sums,
        known_hours=min((hours[name] for name in known), default=0),
        action=action,
        advice=_advice(shown, one, action) if action else "",
        **counted,
    )


def failure_columns(one: NodeFailures) -> dict[str, Any]:
    """Return the columns of failures that their row does not have under the same name and type."""
    return {
        "compared": one.incidents if one.compared is None else one.compared,
        # Compared with nothing, nothing is expected: that is not zero.
        "expected": one.expected if one.compared_ratio else None,
        "reasons": Counts(one.reasons),
    }


def _action(one: GpuFailures, own: _Health, faults: Sequence[GpuFault]) -> GpuAction | None:
    """Return what to do first about a GPU, by its faults of now and, where it is unreliable, by
    the errors that it showed in these days."""
    actions = [fault.action for fault in faults]
    if one.is_unreliable:
        kinds = {meaning(code).kind for _, code in own.xids}
        rows = own.sums["ecc_uncorrected"] or own.sums["remapped_uncorrectable"]
        actions.append(
            gpu_action(
                hardware=bool(rows or XidKind.HARDWARE in kinds),
                driver=XidKind.DRIVER in kinds,
                application=XidKind.APPLICATION in kinds,
            )
        )
    return gravest(*actions) if actions else None


def _advice(shown: _ClusterErrors, one: GpuFailures, action: GpuAction) -> str:
    index = shown.devices.get(one.uuid, {}).get("index", "")
    why = [fault.text for fault in shown.faults.get(one.uuid, ())]
    if one.is_unreliable:
        excess = excess_text(one.ratio, one.ratio_low, one.ratio_high, one.lost_gpu_hours)
        # Errors that are over, as after a reset, are why it is to be replaced all the same.
        past = action is GpuAction.REPLACE and not why
        why.append(f"{excess}, and it showed errors of hardware" if past else excess)
    return gpu_advice(
        action, f"GPU {index or one.uuid} of {shown.cluster}/{one.node}", "; ".join(why)
    )


def _health(
    cluster_id: int, start: datetime, end: datetime, uuids: Collection[str] = ()
) -> dict[str, _Health]:
    """Return by UUID what GPUs showed, of all or of some. One query."""
    hours = DeviceHealthHour.objects.filter(cluster_id=cluster_id, hour__gte=start, hour__lt=end)
    if uuids:
        hours = hours.filter(uuid__in=uuids)
    found: defaultdict[str, _Health] = defaultdict(_Health)
    for hour, uuid, xids, *values in hours.order_by().values_list("hour", "uuid", "xids", *_SUMMED):
        own = found[uuid]
        own.xids += [(at, code) for at, code in xids]
        for name, value in zip(_SUMMED, values, strict=True):
            if value is None:
                own.blank[name].append(hour)
            else:
                own.sums[name] += value
    return dict(found)


def _hours_known(cluster_id: int, start: datetime, end: datetime) -> dict[str, list[datetime]]:
    """Return by figure the hours in which it was collected: those without errors have no rows."""
    hours = CollectionWindow.objects.filter(cluster_id=cluster_id, hour__gte=start, hour__lt=end)
    measures: defaultdict[str, list[datetime]] = defaultdict(list)
    shown = hours.exclude(health="").order_by("hour").values_list("hour", "health")
    for hour, exported in shown:
        for measure in exported.split():
            measures[measure].append(hour)
    return {name: measures[measure.value] for name, measure in _MEASURES.items()}


def _devices(
    cluster_id: int,
) -> tuple[dict[str, dict[str, Any]], dict[str, datetime], dict[str, list[GpuFault]]]:
    """Return by UUID the newest state of each GPU, when it was seen, and what is broken in it now.

    Of MIG instances one tells, for errors are the GPU's.
    """
    rows = Device.objects.filter(cluster_id=cluster_id).order_by("last_seen", "pk")
    states: dict[str, dict[str, Any]] = {}
    newest: dict[str, datetime] = {}
    faults: dict[str, list[GpuFault]] = {}
    for uuid, state, seen, looked in rows.values_list("uuid", "state", "last_seen", "looked_at"):
        states[uuid], newest[uuid] = state, seen
        found = gpu_faults(GpuErrors(*(state.get(key) for key in _FAULTS_BY)))
        if found and looked - seen < _GONE:
            faults[uuid] = found
        else:
            faults.pop(uuid, None)
    return states, newest, faults
