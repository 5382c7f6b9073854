"""Writing what went wrong on GPUs in an hour, and which GPUs pods were seen on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from apps.clusters.domain.devices.errors import GpuHealthHour, HealthAnswer, HealthMeasure
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.usage.models import DeviceHealthHour, PodDevices
from apps.usage.services.facts import Dimensions
from gpuportal.database_functions import Numbers

_COLUMN_OF: Mapping[HealthMeasure, str] = {
    HealthMeasure.REMAPPED_CORRECTABLE: "remapped_correctable",
    HealthMeasure.REMAPPED_UNCORRECTABLE: "remapped_uncorrectable",
    HealthMeasure.ECC_CORRECTED: "ecc_corrected",
    HealthMeasure.ECC_UNCORRECTED: "ecc_uncorrected",
    HealthMeasure.THERMAL: "thermal_seconds",
    HealthMeasure.POWER: "power_seconds",
}
_IN_SECONDS = (HealthMeasure.THERMAL, HealthMeasure.POWER)
_PODS_AT_A_TIME = 5000


def measures_of(answer: HealthAnswer, hour: Window) -> str:
    """Return the measures that were exported in an hour, in order, parted by spaces."""
    return " ".join(sorted(answer.exported.get(int(hour.start_seconds), ())))


def write_health(
    cluster: Cluster, hour: Window, answer: HealthAnswer, devices: Iterable[DeviceSlot]
) -> None:
    """Add what went wrong in an hour; its older rows went with its facts (`write_hour`).

    Must run in the same transaction. `devices` tell the GPUs' nodes.
    """
    start = int(hour.start_seconds)
    rows = [row for row in answer.rows if row.hour == start]
    if not rows:
        return
    nodes = {row.uuid: row.node for row in devices}
    exported = answer.exported.get(start, frozenset())
    DeviceHealthHour.objects.bulk_create(
        [
            DeviceHealthHour(
                hour=hour.start,
                cluster=cluster,
                uuid=row.uuid,
                node_name=nodes.get(row.uuid, ""),
                xids=[[event.at, event.code] for event in row.xids],
                **_columns(row, exported),
            )
            for row in rows
        ],
        batch_size=500,
    )


def _columns(
    row: GpuHealthHour, exported: frozenset[HealthMeasure]
) -> dict[str, float | int | None]:
    """Return the measures that were exported: zero where one did not grow, None of odd values."""
    found: dict[str, float | int | None] = {}
    for measure, column in _COLUMN_OF.items():
        if measure in exported:
            value = row.growth.get(measure, 0.0)
            if value is not None and measure not in _IN_SECONDS:
                value = round(value)
            found[column] = value
    return found


def write_pod_devices(devices: Mapping[str, set[str]], dimensions: Dimensions) -> None:
    """Keep on which GPUs pods (by uid) were seen, beside those that are known of other hours.

    Of an hour in which no pod came nothing is written: a pod keeps its GPUs as long as it lives.
    """
    seen = {dimensions.pods[uid].pod: uuids for uid, uuids in devices.items()}
    # In one order, so that two workers wait for each other and never cross.
    for some in _parts(sorted(seen)):
        # Without the order of the table, which is that of another one.
        kept = PodDevices.objects.filter(pod__in=Numbers(some)).order_by()
        known = dict(kept.values_list("pod_id", "uuids"))
        rows = [
            PodDevices(pod_id=pod, uuids=" ".join(sorted(seen[pod].union(there))))
            for pod in some
            if not seen[pod].issubset(there := known.get(pod, "").split())
        ]
        # Two workers may collect two hours of a pod at once: the later one's row stays.
        PodDevices.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["pod"],
            update_fields=["uuids"],
            batch_size=1000,
        )


def _parts(pods: Sequence[int]) -> Iterator[list[int]]:
    numbers = iter(pods)
    while some := list(islice(numbers, _PODS_AT_A_TIME)):
        yield some
