"""GPUs by how often work fails on them, beside the errors that they show themselves."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import msgspec

from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column, Counts
from apps.clusters.domain.devices.errors import HealthMeasure
from apps.clusters.domain.devices.state import XidKind, meaning
from apps.clusters.models import Device
from apps.goodput.domain.reliability import (
    GpuAction,
    GpuFailures,
    Judgement,
    gpu_action,
    judgement,
)
from apps.goodput.models import ReliabilityReport
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


def _count(label: str, unit: str, note: str) -> Column:
    return Column(label, unit, note, api_note="Null where no hour has data.")


@dataclass(frozen=True, slots=True)
class GpuReliabilityRow:
    """A GPU over the last 30 days: failures beside those expected, and what it showed itself."""

    cluster: Annotated[str, Column("Cluster")]
    node: Annotated[str, Column("Node")]
    gpu: Annotated[str, Column("GPU", help="Its number on the node.")]
    uuid: Annotated[str, Column("UUID", off_page=True)]
    model: Annotated[str, Column("Model")]
    is_unreliable: Annotated[
        bool,
        Column(
            "Unreliable",
            help="More failures than chance and its node explain: 1 % for all GPUs of a cluster.",
        ),
    ]
    incidents: Annotated[
        int, Column("Failures", help="Pods that held it and failed; ten minutes count once.")
    ]
    expected: Annotated[float, Column("Expected", help="What its work has on other GPUs.")]
    ratio: Annotated[
        float | None,
        Column("Ratio", help="Failures ÷ expected.", api_note="Null where none are expected."),
    ]
    ratio_low: Annotated[float | None, Column("Low", help="Lower end of its 95 % range.")]
    ratio_high: Annotated[float | None, Column("High", help="Upper end of its 95 % range.")]
    lost_gpu_hours: Annotated[
        float, Column("Lost", "GPU-h", "What failures cost on all GPUs of these runs.")
    ]
    gpu_hours: Annotated[float, Column("Run", "GPU-h", "GPU-hours of the runs on it.")]
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

    @property
    def judgement(
        self,
    ) -> Annotated[
        Judgement,
        Column(
            "Judgement",
            help="Too few to tell: more than expected, and chance or a few bad days explain it.",
        ),
    ]:
        """What can be said by its failures."""
        return judgement(is_unreliable=self.is_unreliable, low=self.ratio_low)

    @property
    def action(self) -> GpuAction:
        """What to do first, where it is unreliable."""
        return gpu_action(
            hardware=any((self.xids_hardware, self.ecc_uncorrected, self.remapped_uncorrectable)),
            driver=bool(self.xids_driver),
            application=bool(self.xids_application),
        )


@dataclass(slots=True)
class _Health:
    """What a GPU showed in a window."""

    sums: Counter[str] = field(default_factory=Counter)
    xids: list[tuple[float, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a cluster's exporters show: states of GPUs now, and hours with data by figure."""

    cluster: str
    devices: Mapping[str, Mapping[str, Any]]
    hours: Mapping[str, int]


def gpu_reliability_rows(*, visibility: Visibility) -> list[GpuReliabilityRow]:
    """Return GPUs that had a failure or showed an error, the least likely to be sound first.

    One query, and three for each cluster; empty for who sees some teams only.
    """
    if not visibility.everything:
        return []
    reports = ReliabilityReport.objects.filter(cluster__active=True, end__isnull=False)
    ordered = reports.select_related("cluster").order_by("cluster__name", "pk")
    return [row for report in ordered for row in gpu_rows(report)]


def gpu_rows(report: ReliabilityReport) -> Iterator[GpuReliabilityRow]:
    """Yield the GPUs of a report as `gpu_reliability_rows` has them. Three queries."""
    if report.start is None or report.end is None:
        return
    health = _health(report.cluster_id, report.start, report.end)
    shown = _Shown(
        *(report.cluster.name, _devices(report.cluster_id)),
        _hours_known(report.cluster_id, report.start, report.end),
    )
    devices = shown.devices
    judged = msgspec.convert(report.gpus or [], list[GpuFailures])
    known = {one.uuid for one in judged}
    for one in judged:
        yield _row(shown, one, health.get(one.uuid) or _Health())
    for uuid in sorted(health.keys() - known, key=lambda uuid: (_place(devices, uuid), uuid)):
        nothing = GpuFailures(
            node=devices.get(uuid, {}).get("node", ""),
            incidents=0,
            expected=0.0,
            p_value=1.0,
            is_unreliable=False,
            **dict.fromkeys(("ratio", "ratio_low", "ratio_high")),
            gpu_hours=0.0,
            lost_gpu_hours=0.0,
            reasons={},
            uuid=uuid,
        )
        yield _row(shown, nothing, health[uuid])


def _place(devices: Mapping[str, Mapping[str, Any]], uuid: str) -> tuple[str, str]:
    state = devices.get(uuid, {})
    return state.get("node", ""), f"{state.get('index', ''):>04}"


def _row(shown: _Shown, one: GpuFailures, own: _Health) -> GpuReliabilityRow:
    state = shown.devices.get(one.uuid, {})
    kinds = Counter(meaning(code).kind for _, code in own.xids)
    known = {
        name
        for name, by in _SHOWN_BY.items()
        # An exporter that came to show a measure today says nothing of the days before.
        if shown.hours[name] and any(state.get(key) is not None for key in by)
    }
    known.update(name for name in _SUMMED if own.sums[name])
    if own.xids:
        known.add("xids")

    def xids(kind: XidKind) -> int | None:
        return kinds[kind] if "xids" in known else None

    sums = {name: own.sums[name] if name in known else None for name in _SUMMED}
    return GpuReliabilityRow(
        cluster=shown.cluster,
        node=one.node,
        gpu=str(state.get("index", "")),
        uuid=one.uuid,
        model=str(state.get("model", "")),
        is_unreliable=one.is_unreliable,
        incidents=one.incidents,
        expected=one.expected,
        ratio=one.ratio,
        ratio_low=one.ratio_low,
        ratio_high=one.ratio_high,
        lost_gpu_hours=one.lost_gpu_hours,
        gpu_hours=one.gpu_hours,
        reasons=Counts(one.reasons),
        xids_hardware=xids(XidKind.HARDWARE),
        xids_driver=xids(XidKind.DRIVER),
        xids_application=xids(XidKind.APPLICATION),
        xids_other=xids(XidKind.UNKNOWN),
        last_xid=max(own.xids)[1] if own.xids else None,
        **sums,
        known_hours=min((shown.hours[name] for name in known), default=0),
    )


def _health(cluster_id: int, start: datetime, end: datetime) -> dict[str, _Health]:
    hours = DeviceHealthHour.objects.filter(cluster_id=cluster_id, hour__gte=start, hour__lt=end)
    found: defaultdict[str, _Health] = defaultdict(_Health)
    for uuid, xids, *values in hours.order_by().values_list("uuid", "xids", *_SUMMED):
        own = found[uuid]
        own.xids += [(at, code) for at, code in xids]
        for name, value in zip(_SUMMED, values, strict=True):
            own.sums[name] += value or 0
    return dict(found)


def _hours_known(cluster_id: int, start: datetime, end: datetime) -> dict[str, int]:
    """Return by figure in how many hours it was collected: hours without errors have no rows."""
    hours = CollectionWindow.objects.filter(cluster_id=cluster_id, hour__gte=start, hour__lt=end)
    measures: Counter[str] = Counter()
    for exported in hours.exclude(health="").order_by().values_list("health", flat=True):
        measures.update(exported.split())
    return {name: measures[measure.value] for name, measure in _MEASURES.items()}


def _devices(cluster_id: int) -> dict[str, dict[str, Any]]:
    """Return the newest state of each GPU; of MIG instances one tells, for these are the GPU's."""
    rows = Device.objects.filter(cluster_id=cluster_id).order_by("last_seen", "pk")
    return dict(rows.values_list("uuid", "state"))
