"""Rows for tests: people, a catalog, pods, and hours of facts that add up."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone
from msgspec import Struct, field

from apps.accounts.domain.identity import Role, TokenScope
from apps.accounts.models import ApiToken, Membership, Team, User
from apps.accounts.permissions import can_administer
from apps.accounts.services import digest_of, issue_token
from apps.clusters.domain.tiers import UNASSIGNED, UNDETERMINED, UNMATCHED, model_key
from apps.clusters.domain.window import Window, day_of, day_window
from apps.clusters.models import (
    Cluster,
    GpuModel,
    Namespace,
    NamespaceTeam,
    Node,
    Pod,
    ReportSettings,
    Tier,
    TierRule,
    Workload,
)
from apps.usage.domain.amounts import CAPACITY_FIELDS, HELD_FIELDS, Amounts, nano
from apps.usage.models import (
    CollectionWindow,
    Day,
    NodeHour,
    PodHour,
    TeamDay,
    TeamHour,
    TierDay,
    TierHour,
    WorkloadDay,
)

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
A100 = "NVIDIA-A100-SXM4-80GB"
H100 = "NVIDIA-H100-80GB-HBM3"

# ---------------------------------------------------------------- people and catalog


def make_report(time_zone: str = "Europe/Berlin", currency: str = "USD") -> ZoneInfo:
    """Set the report's zone and currency; return the zone."""
    ReportSettings.objects.all().delete()
    ReportSettings.objects.create(time_zone=time_zone, currency=currency)
    return ZoneInfo(time_zone)


def make_user(
    username: str,
    role: Role = Role.VIEWER,
    *,
    teams: Iterable[Team] = (),
    leads: Iterable[Team] = (),
) -> User:
    """Make a person; the password is the user name."""
    user = User.objects.create_user(username=username, password=username, role=role.value)
    for team in teams:
        Membership.objects.create(team=team, username=username)
    for team in leads:
        Membership.objects.create(team=team, username=username, lead=True)
    return user


def token_of(user: User) -> str:
    """Return a new API token of a person, with every scope that their role allows."""
    scopes = [
        scope for scope in TokenScope if scope is not TokenScope.DECIDE or can_administer(user)
    ]
    now = timezone.now()
    key = issue_token(user, name="test", scopes=scopes, now=now).key
    # As if it had been used in this minute: noting that is tested where tokens are.
    ApiToken.objects.filter(digest=digest_of(key)).update(last_used_at=now)
    return key


def make_team(name: str, *patterns: str, since: datetime = BEGINNING, **values: Any) -> Team:
    """Make a team that claims these patterns of namespaces."""
    team, _ = Team.objects.get_or_create(name=name, defaults=values)
    for position, pattern in enumerate(patterns):
        NamespaceTeam.objects.create(
            team=team, pattern=pattern, position=position, valid_from=since
        )
    return team


def make_cluster(name: str = "west", **values: Any) -> Cluster:
    prometheus = {"url": f"http://{name}.example:9090", "scrape_interval_seconds": 30}
    return Cluster.objects.create(name=name, **{"prometheus": prometheus, **values})


def make_tier(name: str, *, position: int = 0, model: str = A100, **values: Any) -> Tier:
    """Make a tier of whole GPUs of one model, with the rule that says so."""
    tier = Tier.objects.create(name=name, position=position, **values)
    TierRule.objects.create(
        tier=tier,
        position=position,
        sharing="exclusive",
        resources=["nvidia.com/gpu"],
        node_selector={"nvidia.com/gpu.product": model},
        valid_from=BEGINNING,
    )
    return tier


def ensure_builtin() -> None:
    """Make the tiers and the team that are always there."""
    for name in (UNMATCHED, UNDETERMINED):
        Tier.objects.get_or_create(name=name, defaults={"builtin": True, "position": 1000})
    Team.objects.get_or_create(name=UNASSIGNED, defaults={"builtin": True})


def make_model(name: str = A100) -> GpuModel:
    return GpuModel.objects.get_or_create(key=model_key(name), defaults={"name": name})[0]


# ---------------------------------------------------------------- nodes, workloads, pods


class NodeGpus(Struct, frozen=True):
    """The GPUs of one kind on one node."""

    node: Node
    tier: Tier
    model: GpuModel
    capacity_type: str = "on-demand"
    gpus: float = 8.0
    unhealthy: float = 0.0


def make_gpus(cluster: Cluster, node: str, tier: Tier, **values: Any) -> NodeGpus:
    """Make a node and say what it has; `model` is a name."""
    row = Node.objects.get_or_create(cluster=cluster, name=node)[0]
    model = make_model(values.pop("model", A100))
    return NodeGpus(node=row, tier=tier, model=model, **values)


def make_workload(cluster: Cluster, namespace: str, name: str, kind: str = "Job") -> Workload:
    space = Namespace.objects.get_or_create(cluster=cluster, name=namespace)[0]
    return Workload.objects.get_or_create(namespace=space, kind=kind, name=name)[0]


def make_pod(
    workload: Workload,
    name: str = "",
    *,
    created_at: datetime,
    node_gpus: NodeGpus | None = None,
    **values: Any,
) -> Pod:
    """Make a pod; with `node_gpus` it is bound to that node from `created_at` on."""
    name = name or f"{workload.name}-{Pod.objects.count()}"
    bound: dict[str, Any] = {}
    if node_gpus is not None:
        bound = {
            "node_name": node_gpus.node.name,
            "tier": node_gpus.tier,
            "gpu_model": node_gpus.model,
            "bound_at": created_at,
            "started_at": created_at,
        }
    given = {"uid": f"uid-{name}", "resource": "nvidia.com/gpu", "units": 1.0, "source": "api"}
    given |= bound | values
    given.setdefault("gpu_equivalents", given["units"])
    given.setdefault("ended_at", given.get("finished_at"))
    return Pod.objects.create(
        cluster=workload.namespace.cluster,
        workload=workload,
        name=name,
        created_at=created_at,
        **given,
    )


# ---------------------------------------------------------------- facts


def held(
    gpu_hours: float,
    *,
    busy: float = 0.0,
    idle: float = 0.0,
    unmeasured: float = 0.0,
    not_running: float = 0.0,
    **beside: Any,
) -> Amounts:
    """Return amounts that add up; what is not named of `gpu_hours` is underused."""
    parts = {
        "busy": nano(busy),
        "idle": nano(idle),
        "unmeasured": nano(unmeasured),
        "not_running": nano(not_running),
    }
    allocated = nano(gpu_hours)
    return Amounts(
        allocated=allocated, underused=allocated - sum(parts.values()), **parts, **beside
    )


class PodFact(Struct, frozen=True):
    """What a pod held of a node's GPUs in an hour; the facts carry the team of their hour."""

    pod: Pod
    node_gpus: NodeGpus
    team: Team
    amounts: Amounts


FactsOf = Callable[[datetime], Sequence[PodFact]]
_Sums = dict[tuple[Any, ...], Amounts]


def collect(
    hours: Iterable[datetime],
    node_gpus: Sequence[NodeGpus],
    facts_of: FactsOf,
    *,
    zone: ZoneInfo,
    rolled: bool = True,
) -> None:
    """Write complete hours with the sums of their days; days are rolled unless told not to.

    All hours of a day must come in one call.
    """
    rows, sums = _HourRows(), _DaySums()
    days = set()
    for hour in hours:
        facts = facts_of(hour)
        rows.add(hour, node_gpus, facts)
        day = day_of(hour, zone)
        days.add(day)
        sums.add(day, node_gpus, facts)
    rows.write()
    sums.write()
    for day in days:
        span = day_window(day, zone)
        for cluster in sorted({c.node.cluster_id for c in node_gpus}):
            Day.objects.create(
                cluster_id=cluster, day=day, start=span.start, end=span.end, rolled=rolled
            )
    if rolled:
        _roll(sums.by_workload)


def _roll(by_workload: _Sums) -> None:
    namespaces = dict(Workload.objects.values_list("pk", "namespace_id"))
    WorkloadDay.objects.bulk_create(
        WorkloadDay(
            day=day,
            workload_id=workload,
            namespace_id=namespaces[workload],
            team_id=team,
            **_of_tier(kind),
            **_held(amounts),
        )
        for (day, workload, team, *kind), amounts in by_workload.items()
    )


def note_collection(
    cluster: Cluster | int, hour: datetime, state: str = "complete", **values: Any
) -> CollectionWindow:
    """Write or replace the data-health row of an hour."""
    pk = cluster if isinstance(cluster, int) else cluster.pk
    given = {"state": state, "attempts": 1, **values}
    row, _ = CollectionWindow.objects.update_or_create(cluster_id=pk, hour=hour, defaults=given)
    return row


def hours_of(window: Window) -> list[datetime]:
    return [hour.start for hour in window.hours()]


class _HourRows(Struct):
    """Rows of hours, written together: a query for each hour would be most of a test's time."""

    pods: list[PodHour] = field(default_factory=list)
    nodes: list[NodeHour] = field(default_factory=list)
    teams: list[TeamHour] = field(default_factory=list)
    tiers: list[TierHour] = field(default_factory=list)
    windows: list[CollectionWindow] = field(default_factory=list)

    def add(self, hour: datetime, node_gpus: Sequence[NodeGpus], facts: Sequence[PodFact]) -> None:
        by_team: _Sums = defaultdict(Amounts)
        by_tier: _Sums = defaultdict(Amounts)
        for fact in facts:
            self.pods.append(_pod_hour(hour, fact))
            by_team[fact.team.pk, *_kind(fact.node_gpus)].add(fact.amounts)
        for of_node in node_gpus:
            amounts = _node_amounts(of_node, facts)
            by_tier[_kind(of_node)].add(amounts)
            kind = _of_tier(_kind(of_node))
            self.nodes.append(NodeHour(hour=hour, node=of_node.node, **kind, **_all(amounts)))
        for (team, *of_team), amounts in by_team.items():
            row = TeamHour(hour=hour, team_id=team, **_of_tier(of_team), **_held(amounts))
            self.teams.append(row)
        for of_tier, amounts in by_tier.items():
            self.tiers.append(TierHour(hour=hour, **_of_tier(of_tier), **_all(amounts)))
        for cluster in sorted({c.node.cluster_id for c in node_gpus}):
            values = {"state": "complete", "coverage_ratio": 1.0, "samples": 120, "attempts": 1}
            self.windows.append(CollectionWindow(cluster_id=cluster, hour=hour, **values))

    def write(self) -> None:
        PodHour.objects.bulk_create(self.pods)
        NodeHour.objects.bulk_create(self.nodes)
        TeamHour.objects.bulk_create(self.teams)
        TierHour.objects.bulk_create(self.tiers)
        CollectionWindow.objects.bulk_create(
            self.windows,
            update_conflicts=True,
            unique_fields=["cluster", "hour"],
            update_fields=["state", "coverage_ratio", "samples", "attempts"],
        )


class _DaySums(Struct):
    """Sums of local days, by day and the ids of what a row is about."""

    by_team: _Sums = field(default_factory=lambda: defaultdict(Amounts))
    by_tier: _Sums = field(default_factory=lambda: defaultdict(Amounts))
    by_workload: _Sums = field(default_factory=lambda: defaultdict(Amounts))

    def add(self, day: date, node_gpus: Sequence[NodeGpus], facts: Sequence[PodFact]) -> None:
        for fact in facts:
            kind = _kind(fact.node_gpus)
            self.by_team[day, fact.team.pk, *kind].add(fact.amounts)
            self.by_workload[day, fact.pod.workload_id, fact.team.pk, *kind].add(fact.amounts)
        for of_node in node_gpus:
            self.by_tier[day, *_kind(of_node)].add(_node_amounts(of_node, facts))

    def write(self) -> None:
        """Write the days of teams and of tiers; those of workloads come with the roll."""
        TeamDay.objects.bulk_create(
            TeamDay(day=day, team_id=team, **_of_tier(kind), **_held(amounts))
            for (day, team, *kind), amounts in self.by_team.items()
        )
        TierDay.objects.bulk_create(
            TierDay(day=day, **_of_tier(kind), **_all(amounts))
            for (day, *kind), amounts in self.by_tier.items()
        )


def _pod_hour(hour: datetime, fact: PodFact) -> PodHour:
    workload = fact.pod.workload
    return PodHour(
        hour=hour,
        pod=fact.pod,
        node=fact.node_gpus.node,
        team=fact.team,
        namespace_id=workload.namespace_id,
        workload=workload,
        **_of_tier(_kind(fact.node_gpus)),
        **_held(fact.amounts),
    )


def _node_amounts(node_gpus: NodeGpus, facts: Sequence[PodFact]) -> Amounts:
    total = Amounts()
    for fact in facts:
        if fact.node_gpus == node_gpus:
            total.add(fact.amounts)
    total.capacity = nano(node_gpus.gpus)
    total.unhealthy = nano(node_gpus.unhealthy)
    total.unallocated = total.capacity - total.unhealthy - total.allocated
    total.stranded = total.unattributed = total.planned_outage = 0
    return total


def _kind(node_gpus: NodeGpus) -> tuple[int, int, int, str]:
    return (
        node_gpus.node.cluster_id,
        node_gpus.tier.pk,
        node_gpus.model.pk,
        node_gpus.capacity_type,
    )


def _of_tier(kind: Sequence[Any]) -> dict[str, Any]:
    names = ("cluster_id", "tier_id", "gpu_model_id", "capacity_type")
    return dict(zip(names, kind, strict=True))


def _held(amounts: Amounts) -> dict[str, Any]:
    return {name: getattr(amounts, name) for name in (*HELD_FIELDS, "memory_peak_mib")}


def _all(amounts: Amounts) -> dict[str, Any]:
    return _held(amounts) | {name: getattr(amounts, name) for name in CAPACITY_FIELDS}


# ---------------------------------------------------------------- a small portal


class Portal(Struct, frozen=True):
    """Two clusters, two tiers and three teams; see `make_portal`."""

    zone: ZoneInfo
    clusters: tuple[Cluster, ...]
    tiers: tuple[Tier, ...]
    vision: Team
    speech: Team
    unassigned: Team
    node_gpus: tuple[NodeGpus, ...]
    pods: tuple[Pod, ...]
    teams_of_pods: tuple[Team, ...]
    ada: User
    ben: User
    cleo: User
    dan: User
    finn: User

    def facts_of(self, hour: datetime) -> list[PodFact]:
        """Return what the bound pods held in an hour: other amounts in every hour."""
        facts = []
        for number, (pod, team) in enumerate(zip(self.pods, self.teams_of_pods, strict=True)):
            if pod.bound_at is None or pod.bound_at > hour:
                continue
            if pod.ended_at is not None and pod.ended_at <= hour:
                continue
            node_gpus = next(c for c in self.node_gpus if c.node.name == pod.node_name)
            busy = pod.units * ((hour.timestamp() / 3600 * 7 + number * 13) % 100) / 100
            amounts = held(pod.units, busy=busy, energy_mwh=1000, memory_peak_mib=100.0 + number)
            facts.append(PodFact(pod, node_gpus, team, amounts))
        return facts

    def collect(self, window: Window, *, rolled: bool = True) -> None:
        """Write all hours of a window."""
        collect(hours_of(window), self.node_gpus, self.facts_of, zone=self.zone, rolled=rolled)


def make_portal(
    time_zone: str = "Europe/Berlin", *, since: datetime = datetime(2026, 1, 1, tzinfo=UTC)
) -> Portal:
    """Make people, catalog, nodes and pods; no facts yet.

    Ada leads vision, Ben is on it, Dan is on speech, Cleo is an admin, Finn of finance. Vision
    has a Job of two pods and a Deployment, speech a StatefulSet on each cluster, and nobody
    claims `stray`. One pod of vision waits. All pods were created at `since`.
    """
    zone = make_report(time_zone)
    ensure_builtin()
    clusters = make_cluster("west", kubernetes={"in_cluster": True}), make_cluster("east")
    tiers = make_tier("gold", position=0, model=H100), make_tier("silver", position=1)
    vision = make_team("vision", "vision", "vision-*", cost_center="CC-100")
    speech = make_team("speech", "speech")
    unassigned = Team.objects.get(name=UNASSIGNED)
    node_gpus = _portal_gpus(clusters, tiers)
    bound = _bound_pods(clusters, node_gpus, since)
    return Portal(
        zone=zone,
        clusters=clusters,
        tiers=tiers,
        vision=vision,
        speech=speech,
        unassigned=unassigned,
        node_gpus=node_gpus,
        pods=(*bound, _waiting_pod(clusters[0], tiers[0], since)),
        teams_of_pods=(vision, vision, vision, speech, speech, unassigned, vision),
        **_portal_people(vision, speech),
    )


def _portal_gpus(clusters: tuple[Cluster, ...], tiers: tuple[Tier, ...]) -> tuple[NodeGpus, ...]:
    (west, east), (gold, silver) = clusters, tiers
    return (
        make_gpus(west, "west-1", gold, model=H100),
        make_gpus(west, "west-2", silver, capacity_type="spot", unhealthy=2.0),
        make_gpus(east, "east-1", silver),
    )


def _bound_pods(
    clusters: tuple[Cluster, ...], node_gpus: tuple[NodeGpus, ...], since: datetime
) -> tuple[Pod, ...]:
    west, east = clusters
    train = make_workload(west, "vision", "train")
    serve = make_workload(west, "vision-prod", "serve", "Deployment")
    notes = make_workload(west, "speech", "notes", "StatefulSet")
    notes_east = make_workload(east, "speech", "notes", "StatefulSet")
    bare = make_workload(east, "stray", "bare", "Pod")
    made: list[tuple[Workload, str, NodeGpus, float]] = [
        (train, "train-0", node_gpus[0], 4.0),
        (train, "train-1", node_gpus[1], 2.0),
        (serve, "serve-abc", node_gpus[0], 1.0),
        (notes, "notes-0", node_gpus[0], 1.0),
        (notes_east, "notes-east-0", node_gpus[2], 2.0),
        (bare, "bare", node_gpus[2], 1.0),
    ]
    return tuple(
        make_pod(workload, name, created_at=since, node_gpus=of, units=units)
        for workload, name, of, units in made
    )


def _waiting_pod(cluster: Cluster, tier: Tier, since: datetime) -> Pod:
    train = make_workload(cluster, "vision", "train")
    return make_pod(train, "train-2", created_at=since, units=4.0, tier=tier)


def _portal_people(vision: Team, speech: Team) -> dict[str, User]:
    return {
        "ada": make_user("ada", leads=[vision]),
        "ben": make_user("ben", teams=[vision]),
        "cleo": make_user("cleo", Role.ADMIN),
        "dan": make_user("dan", teams=[speech]),
        "finn": make_user("finn", Role.FINANCE),
    }
