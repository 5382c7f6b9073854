"""The portal that the pictures of the documentation show: invented work, the same every time.

All of it is counted with whole numbers from the hour and the pod, so that a picture taken on
another machine shows the same figures to the last digit.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.domain.identity import Role
from apps.accounts.domain.structs import replace
from apps.accounts.models import Team
from apps.clusters.domain.window import Window, day_start
from apps.clusters.models import Cluster, Pod, Tier, TierRule, WatchCoverage
from apps.costs.models import Price
from apps.pending.models import RefreshState
from apps.quotas.models import Entitlement
from apps.usage.domain.amounts import Amounts
from tests.factories import (
    A100,
    BEGINNING,
    H100,
    NodeGpus,
    PodFact,
    collect,
    ensure_builtin,
    held,
    hours_of,
    make_cluster,
    make_gpus,
    make_pod,
    make_report,
    make_team,
    make_tier,
    make_user,
    make_workload,
    note_collection,
)
from tests.web.pending import make_episode

L4 = "NVIDIA-L4"
_PRICES = {H100: "4.10", A100: "2.75", L4: "0.85"}
# A Friday afternoon in Berlin; the facts begin 31 days before and end with the last full hour.
NOW = datetime(2025, 9, 26, 12, 20, tzinfo=UTC)
FIRST = date(2025, 8, 27)
DAYS = 31
FAILED = datetime(2025, 9, 23, 1, tzinfo=UTC)
UNSAMPLED = Window(datetime(2025, 9, 24, 6, tzinfo=UTC), datetime(2025, 9, 24, 11, tzinfo=UTC))
UNSAMPLED_NODE = "a100-07"
FAILURE = "Prometheus at http://prometheus.west.example:9090 answered 503: check that it runs."

# Percent of activity by the hour of a working day, of a service and of somebody at a notebook.
_SERVICE = (
    9,
    8,
    7,
    7,
    8,
    10,
    14,
    21,
    30,
    38,
    43,
    46,
    45,
    44,
    46,
    47,
    44,
    39,
    33,
    28,
    24,
    20,
    15,
    11,
)
_NOTEBOOK = (0, 0, 0, 0, 0, 0, 0, 1, 6, 22, 31, 17, 4, 24, 35, 28, 19, 6, 1, 0, 0, 0, 0, 0)


class _Work(Struct, frozen=True):
    """`pods` of `units` GPUs each from one day to another, counted from FIRST; 0 is the first."""

    team: str
    kind: str
    name: str
    tier: str
    units: int
    pods: int
    pattern: str
    first: int = 0
    last: int = DAYS


_WORK = (
    _Work("vision", "Job", "segmentation-pretrain", "exclusive-h100", 8, 2, "training"),
    _Work("vision", "Job", "detector-finetune", "exclusive-h100", 4, 2, "training", 6, 24),
    _Work("vision", "Job", "depth-sweep", "exclusive-a100", 2, 6, "stalled", 15),
    _Work("vision", "Deployment", "ocr-serve", "exclusive-a100", 1, 4, "service"),
    _Work("vision", "StatefulSet", "notebooks", "exclusive-a100", 1, 5, "notebook"),
    _Work("speech", "Job", "whisper-finetune", "exclusive-h100", 8, 1, "training", 0, 19),
    _Work("speech", "Job", "voice-pretrain", "exclusive-h100", 8, 2, "training", 20),
    _Work("speech", "Deployment", "transcribe-serve", "exclusive-a100", 2, 4, "service"),
    _Work("speech", "StatefulSet", "notebooks", "exclusive-a100", 1, 4, "notebook", 4),
    _Work("robotics", "Job", "policy-rollout", "exclusive-h100", 4, 3, "bursts", 9),
    _Work("robotics", "Deployment", "planner-serve", "exclusive-a100", 2, 3, "service"),
    _Work("robotics", "Deployment", "grasp-serve", "shared-l4", 1, 8, "shared", 3),
    _Work("genomics", "Job", "fold-screen", "exclusive-a100", 4, 4, "training", 0, 12),
    _Work("genomics", "Job", "variant-calling", "exclusive-a100", 4, 5, "training", 14),
    _Work("genomics", "StatefulSet", "notebooks", "shared-l4", 1, 9, "shared"),
)
_TIERS = (
    ("exclusive-h100", H100, "h100", 7, 8, "A whole H100 with 80 GB, alone."),
    ("exclusive-a100", A100, "a100", 9, 8, "A whole A100 with 80 GB, alone."),
    ("shared-l4", L4, "l4", 2, 4, "A quarter of an L4, in turns with up to three others."),
)
_REPLICAS = 4
_ENTITLED = {
    ("vision", "exclusive-h100"): 20,
    ("vision", "exclusive-a100"): 24,
    ("speech", "exclusive-h100"): 16,
    ("speech", "exclusive-a100"): 16,
    ("robotics", "exclusive-h100"): 12,
    ("robotics", "exclusive-a100"): 12,
    ("genomics", "exclusive-a100"): 20,
}
# What waits at NOW: (team, name, tier, units, minutes).
_WAITING = (
    ("vision", "panoptic-eval", "exclusive-h100", 8, 412),
    ("robotics", "policy-distill", "exclusive-h100", 4, 95),
)


class _Placed(Struct, frozen=True):
    """A pod on its GPUs, and what it does there."""

    pod: Pod
    node_gpus: NodeGpus
    team: Team
    pattern: str
    number: int


def fill_picture_portal() -> None:
    """Write people, catalog, pods and a month of facts; one hour failed, five had no samples.

    `morgan` is an admin.
    """
    zone = make_report("Europe/Berlin")
    ensure_builtin()
    make_user("morgan", Role.ADMIN)
    west = make_cluster("west", kubernetes={"in_cluster": True})
    node_gpus = dict(_tiers(west))
    teams = _teams({name: of[0].tier for name, of in node_gpus.items()})
    placed = _place(west, node_gpus, teams)
    _wait(west, {name: of[0].tier for name, of in node_gpus.items()})
    window = Window(day_start(FIRST, zone), NOW.replace(minute=0))
    hours = [hour for hour in hours_of(window) if hour != FAILED]
    every = [gpu for of in node_gpus.values() for gpu in of]
    collect(hours, every, lambda hour: list(_facts(placed, hour, zone)), zone=zone)
    _note_trouble(west, window)


def _tiers(cluster: Cluster) -> Iterator[tuple[str, list[NodeGpus]]]:
    """Yield each tier's name with its nodes; the last node of A100s has two broken cards."""
    for position, (name, model, prefix, nodes, gpus, promise) in enumerate(_TIERS):
        tier = make_tier(name, position=position, model=model, promise=promise)
        of_tier = [
            make_gpus(cluster, f"{prefix}-{number:02d}", tier, model=model, gpus=float(gpus))
            for number in range(1, nodes + 1)
        ]
        if model == A100:
            of_tier[-1] = replace(of_tier[-1], unhealthy=2.0)
        yield name, of_tier
    TierRule.objects.filter(tier__name="shared-l4").update(
        sharing="time-sliced", resources=["nvidia.com/gpu.shared"]
    )


def _teams(tiers: dict[str, Tier]) -> dict[str, Team]:
    names = dict.fromkeys(work.team for work in _WORK)
    teams = {name: make_team(name, name, f"{name}-*") for name in names}
    for (team, tier), gpus in _ENTITLED.items():
        Entitlement.objects.create(
            team=teams[team], tier=tiers[tier], gpus=gpus, weight=gpus, valid_from=BEGINNING
        )
    for model, price in _PRICES.items():
        Price.objects.create(
            gpu_model=model,
            capacity_type="on-demand",
            per_gpu_hour=price,
            currency="EUR",
            valid_from=BEGINNING,
        )
    return teams


def _place(
    cluster: Cluster, node_gpus: dict[str, list[NodeGpus]], teams: dict[str, Team]
) -> list[_Placed]:
    """Put each pod on the first node that has room for it on all of its days."""
    used: dict[tuple[str, int], float] = {}
    placed: list[_Placed] = []
    for work in _WORK:
        workload = make_workload(cluster, work.team, work.name, work.kind)
        weight = 1 / _REPLICAS if work.pattern == "shared" else 1.0
        for index in range(work.pods):
            need = work.units * weight
            days = range(work.first, work.last)
            room = next(
                of
                for of in node_gpus[work.tier]
                if all(
                    used.get((of.node.name, day), 0) + need <= of.gpus - of.unhealthy
                    for day in days
                )
            )
            for day in days:
                used[room.node.name, day] = used.get((room.node.name, day), 0) + need
            pod = make_pod(
                workload,
                f"{work.name}-{index}",
                uid=f"{work.team}-{work.name}-{index}",
                created_at=_at(work.first) - timedelta(minutes=1 + 11 * len(placed) % 97),
                bound_at=_at(work.first),
                started_at=_at(work.first),
                finished_at=_at(work.last) if work.last < DAYS else None,
                node_gpus=room,
                units=float(work.units),
                gpu_equivalents=need,
            )
            placed.append(_Placed(pod, room, teams[work.team], work.pattern, len(placed)))
    return placed


def _wait(cluster: Cluster, tiers: dict[str, Tier]) -> None:
    for team, name, tier, units, minutes in _WAITING:
        workload, since = make_workload(cluster, team, name), NOW - timedelta(minutes=minutes)
        make_pod(workload, f"{name}-0", created_at=since, tier=tiers[tier], units=float(units))
        make_episode(workload, f"{name}-0", since=since, tier=tiers[tier], units=float(units))
    RefreshState.objects.create(cluster=cluster, at=NOW)


def _at(day: int) -> datetime:
    """Return seven in the morning, UTC, of a day counted from FIRST."""
    return datetime(FIRST.year, FIRST.month, FIRST.day, 7, tzinfo=UTC) + timedelta(days=day)


def _facts(placed: list[_Placed], hour: datetime, zone: ZoneInfo) -> Iterator[PodFact]:
    for one in placed:
        ended = one.pod.ended_at
        if (one.pod.bound_at or NOW) <= hour and (ended is None or hour < ended):
            yield PodFact(one.pod, one.node_gpus, one.team, _amounts(one, hour, zone))


def _amounts(one: _Placed, hour: datetime, zone: ZoneInfo) -> Amounts:
    """Return what a pod made of its hour; its first quarter of an hour it starts."""
    gpu_hours = one.pod.gpu_equivalents
    starting = gpu_hours / 4 if hour == one.pod.bound_at else 0.0
    running = gpu_hours - starting
    beside = {"energy_mwh": round(gpu_hours * 300_000), "memory_peak_mib": 40_000.0}
    unsampled = (
        one.node_gpus.node.name == UNSAMPLED_NODE and UNSAMPLED.start <= hour < UNSAMPLED.end
    )
    if one.pattern == "shared" or unsampled:
        return held(gpu_hours, not_running=starting, unmeasured=running, **beside)
    percent = _percent(one, hour, zone)
    busy = running * percent / 100
    idle = running - busy if percent < 10 else 0.0
    return held(gpu_hours, not_running=starting, busy=busy, idle=idle, **beside)


def _percent(one: _Placed, hour: datetime, zone: ZoneInfo) -> int:
    """Return the activity of a pod in an hour, 0..99 percent."""
    local = hour.astimezone(zone)
    count = int(hour.timestamp()) // 3600
    noise = (count * 7919 + one.number * 4801 + count * one.number * 31) % 17
    working = local.weekday() < 5
    if one.pattern == "training":
        return 81 + noise
    if one.pattern == "stalled":
        return 76 + noise if local.date() < date(2025, 9, 18) else noise // 8
    if one.pattern == "bursts":
        return 71 + noise if (count // 6 + one.number) % 3 else noise // 4
    if one.pattern == "service":
        return _SERVICE[local.hour] * (10 if working else 6) // 10 + noise // 3
    return (_NOTEBOOK[local.hour] + noise // 4) if working else noise // 9


def _note_trouble(cluster: Cluster, window: Window) -> None:
    """Note the hour that failed and those without samples of a node; watch saw all of it."""
    note_collection(cluster, FAILED, state="failed", error=FAILURE, attempts=6)
    for hour in hours_of(UNSAMPLED):
        note_collection(
            cluster,
            hour,
            state="partial",
            coverage_ratio=0.93,
            error=f"7.0% of the running GPU time has no device samples, most on {UNSAMPLED_NODE}: "
            "see that dcgm-exporter runs there and that its pods are labelled",
        )
    WatchCoverage.objects.create(cluster=cluster, start=window.start, end=NOW)
