"""`campus`: a university's cluster with every way to share a GPU, and with faults.

310 GPUs of seven models in eleven tiers, 16 teams. Demand over time is the Helios trace, scaled to
each pool; running work keeps its GPUs, the rest is pending. Utilization is drawn from the Acme
distributions. `pools` has the nodes and tiers, this module the work on them, and `queues` the
reasons of pending work: a team's share is used up (Kueue), or no node has room. Some nodes show
the fault scenarios (`simulator.fault_scenarios`): every cause of pending work. On others run the
services, notebooks and jobs of `apps`, with a daily rhythm.
"""

from collections.abc import Iterator, Mapping

from apps.clusters.domain.devices.mig import mig_part
from simulator import identity
from simulator.epochs import ActivitySteps, Epoch
from simulator.fault_scenarios import site
from simulator.fault_scenarios.cycle import FaultCycle
from simulator.fault_scenarios.pods import FaultPods, controllers_of, limits_of
from simulator.fault_scenarios.scenario import FaultScenario
from simulator.fleet import DAY, GPU, LINGER_SECONDS, Claim, Controller, Node, Pod, Sharing
from simulator.kubernetes.objects import node_object
from simulator.machines import H100
from simulator.scenarios import metro
from simulator.scenarios.base import (
    DEVICES,
    EpochScenario,
    Quota,
    SiteEnergy,
    Team,
    hard_key,
)
from simulator.scenarios.campus.apps import LIMITS, SERVICES, WORK
from simulator.scenarios.campus.apps import limits as apps_limits
from simulator.scenarios.campus.demand import Draws, demand
from simulator.scenarios.campus.pods import PodMaker, User
from simulator.scenarios.campus.pools import (
    CONFIRMATION,
    NODE_GROUPS,
    NODE_POOLS,
    PARKED_CLAIM,
    PRICES,
    RATES,
    SHARED_CLAIM,
    STRAY,
    STRAY_DAY,
    WHOLE,
    Pool,
    make_nodes,
    make_pools,
    provisioning,
)
from simulator.scenarios.campus.queues import admissions, flavors_of, queue_of
from simulator.scenarios.campus.refused import refused
from simulator.scenarios.campus.room import FreeSpace, Verdicts
from simulator.scenarios.campus.suspended import suspended
from simulator.scenarios.day_work import DayWork
from simulator.scenarios.distributions import CLUSTERS, Signal, distributions
from simulator.scenarios.helios import passing
from simulator.scenarios.trace import MINUTE, Trace
from simulator.scenarios.workloads import Counts, team_workloads

DAYS = 35
"""How much history there is before now."""
TEAMS = (
    "vision", "speech", "robotics", "language", "genomics", "climate", "physics", "search",
    "safety", "chemistry", "materials", "medicine", "economics", "education", "astronomy", "games",
)  # fmt: skip
_LEADS: Mapping[str, tuple[str, ...]] = {"vision": ("ada",), "speech": ("ada",)}
_MONEY: Mapping[str, int] = {"speech": 24_000, "vision": 60_000, "genomics": 30_000}
"""Budgets in USD a month, beside those in GPU-hours."""
_BEFORE = DAY
"""How long it was there before its history: the day of a report zone may begin before UTC's."""
_FIRST_EPOCH_DAYS, _EPOCH_DAYS = 57, 21
_FEW = Counts(jobs=4, deployments=2, cron_jobs=1)
_MANY = Counts(jobs=10, deployments=4, cron_jobs=2)
_BEYOND = 0.2
"""The share of pods on shared GPUs that use half as much again as they hold."""
_FILLED = 0.9
"""The part of its memory that a GPU's pods can fill: an instance has less than its share."""
_HOURS_A_MONTH = 730
_FAULTS_DAY = 28
"""The day of the history on which the fault scenarios begin: a week of them is enough."""
_UNLIMITED = "games-dev"
"""A namespace with GPUs and no quota."""
_INERT = "chemistry"
"""A namespace whose quota has a key that limits nothing."""
_CLAIMS, _LASTING_CLAIMS = 12, 2
"""Devices that the claims of a namespace may ask for, and those of the claims that stay."""
_SHARERS = ("eval-a", "eval-b", "eval-c")
_CLAIM_SPACE = "robotics"


class Campus(EpochScenario, FaultScenario):
    """`origin` is the start of its history, 35 days before now; the trace ends at their end.

    The first epoch goes on for three weeks after that, later ones are as long; in each all pods
    are new.
    """

    name = "campus"
    epoch_seconds = _EPOCH_DAYS * DAY
    title = "310 GPUs of seven models shared in every way by 16 teams, 35 days, live from now"

    def __init__(self, *, seed: int, origin: int, trace: Trace) -> None:
        self.seed = f"{self.name}/{seed}/{origin}"
        self.begins = begins = origin - _BEFORE
        self.first_epoch = (begins, begins + _FIRST_EPOCH_DAYS * DAY)
        self._origin = origin
        own = self.own_nodes(begins, origin)
        opened = origin + _FAULTS_DAY * DAY
        ground = site.nodes(self.seed, opened, len(own) + 1)
        self.nodes = [*own, *ground]
        self.faults = FaultCycle(
            seed=f"{self.seed}/course",
            begins=opened,
            ground=ground,
            others=lambda at: [node_object(node, at) for node in own],
        )
        self._pools = make_pools(own)
        self._draws = Draws(trace, len(TEAMS), ends=origin + DAYS * DAY, begins=begins)
        self._users = {pool.tag: self._make_users(pool) for pool in self._pools}
        self._verdicts = Verdicts(self.nodes)
        self._queue_of = {
            (pool.tag, user.number): queue_of(
                self._draws, pool, user.number, TEAMS[user.number], user.namespace, begins
            )
            for pool in self._pools
            for user in self._users[pool.tag]
            if not pool.device_class
        }
        self.queues = list(self._queue_of.values())
        self.flavors = flavors_of(self._pools)
        self.node_pools = NODE_POOLS
        self.node_groups = NODE_GROUPS
        self.provisioning = provisioning(origin + (DAYS - 1) * DAY)
        self._apps = DayWork(self.seed, own, begins, WORK)
        spaces = sorted({user.namespace for users in self._users.values() for user in users})
        self.namespaces = self.made_namespaces(spaces)
        self.namespaces += self._apps.namespaces()
        self.namespaces += site.namespaces(self.faults.seed, opened)
        self._limits = self._make_limits()
        self.quotas = [
            Quota(space, "gpus", identity.uid(self.seed, "quota", space), begins, tuple(limits))
            for space, limits in sorted(self._limits.items())
        ]
        self.quotas += site.quotas(self.faults.seed, opened)
        self._eval = Controller(
            "Job", "policy-eval", _CLAIM_SPACE, identity.uid(self.seed, "Job", "eval"), begins
        )
        self.controllers = [
            *(c for users in self._users.values() for u in users for c in u.workloads.lasting),
            *self._apps.controllers(),
            self._eval,
        ]
        self.services = SERVICES
        self.tiers = [*(pool.tier for pool in self._pools), site.TIER, metro.TIER]
        self.others = [metro.Metro(seed=self.seed, begins=begins)]
        self.prices = {**PRICES, site.A10.product: site.PRICE}
        self.confirmation = CONFIRMATION
        self.site = SiteEnergy(pue="1.3", carbon_g_per_kwh="380")
        self.rates = (*RATES, metro.RATE)
        self.teams = [self._team(number) for number in range(len(TEAMS))]
        self._fault_pods = FaultPods(self.faults)
        self._distributions = distributions()

    # ------------------------------------------------------------ the fixed parts

    def own_nodes(self, begins: int, origin: int) -> list[Node]:
        """Return the nodes of the pools and of the apps."""
        return make_nodes(self.seed, begins, origin)

    def _make_users(self, pool: Pool) -> list[User]:
        found = []
        for number in pool.teams:
            whole = pool.largest > 1
            namespace = TEAMS[number] if whole else f"{TEAMS[number]}-dev"
            workloads = team_workloads(
                f"{self.seed}/{pool.tag}",
                namespace,
                self.begins,
                tag=pool.tag,
                counts=_MANY if whole else _FEW,
            )
            found.append(User(number, namespace, workloads))
        return found

    def _make_limits(self) -> dict[str, dict[str, int]]:
        """Return the quota of each namespace by key: somewhat more than its part of the pools."""
        limits: dict[str, dict[str, int]] = {}
        for pool in self._pools:
            for user in self._users[pool.tag]:
                limit = self._limit(pool, user)
                if pool.device_class:
                    limits.setdefault(user.namespace, {})[f"{pool.device_class}{DEVICES}"] = _CLAIMS
                elif limit is not None:
                    key, of = f"requests.{pool.resource}", limits.setdefault(user.namespace, {})
                    of[key] = of.get(key, 0) + limit
        # Un-prefixed: the API server takes it, and nothing is held against it.
        limits.setdefault(_INERT, {})[GPU] = 10
        return {**limits, **apps_limits()}

    def _limit(self, pool: Pool, user: User) -> int | None:
        """Return how much of a pool the quota of a team's namespace has; None where there is none.

        Of devices some are left to the claims that stay.
        """
        if pool.device_class:
            return _CLAIMS - _LASTING_CLAIMS
        if user.namespace == _UNLIMITED:
            return None
        return max(2, round(1.5 * self._draws.part(pool, user.number) * pool.size))

    def _team(self, number: int) -> Team:
        entitlements = {
            pool.tag: round(self._draws.part(pool, number) * _gpus(pool), 2)
            for pool in self._pools
            if number in pool.teams
        }
        name = TEAMS[number]
        if name in LIMITS:
            entitlements[WHOLE] = round(entitlements.get(WHOLE, 0.0) + LIMITS[name], 2)
        if name in metro.ENTITLED:
            entitlements[metro.TIER.name] = metro.ENTITLED[name]
        if name in site.ENTITLED:
            entitlements[site.TIER.name] = site.ENTITLED[name]
        return Team(
            name=name,
            namespaces=(name, f"{name}-*"),
            entitlement=0,
            cost_center=f"CC-{100 + number}",
            leads=_LEADS.get(name, ()),
            monthly_gpu_hours=max(1, round(0.8 * sum(entitlements.values()) * _HOURS_A_MONTH)),
            monthly_money=_MONEY.get(name, 0),
            entitlements=entitlements,
        )

    # ------------------------------------------------------------ pods

    def make_epoch(self, number: int, start: int, end: int) -> Epoch:
        pods: list[Pod] = []
        for pool in self._pools:
            pods += self.pool_pods(pool, number, start, end)
        claims = [pod.claim for pod in pods if pod.claim is not None]
        lasting = list(self._lasting_claims(start, end))
        pods += self._sharers(lasting[0], start, end)
        pods += self._apps.pods(start, end)
        hard = {
            hard_key(space, key): ActivitySteps((start,), (limit,))
            for space, limits in self._limits.items()
            for key, limit in limits.items()
        }
        turned_down = refused(self.seed, pods, self._limits, start, end)
        held_back = suspended(self.seed, pods, self.queues, self.flavors, start, end)
        of_faults = list(self._fault_pods.between(start, end))
        return Epoch(
            start,
            end,
            pods=[*pods, *of_faults],
            hard={**hard, **limits_of(max(start, self.faults.begins), end)},
            controllers=[*passing(pods), *turned_down, *held_back, *controllers_of(of_faults)],
            claims=[*claims, *lasting],
            strays=[self._stray(start, end)],
        )

    def pool_pods(self, pool: Pool, number: int, start: int, end: int) -> Iterator[Pod]:
        """Yield the pods of a pool in an epoch."""
        limits = [self._limit(pool, user) for user in self._users[pool.tag]]
        packed = demand(self._draws, pool, limits, start, end)
        room = FreeSpace(pool, packed, start)
        for user, drafts in zip(self._users[pool.tag], packed, strict=True):
            seed = f"{self.seed}/{number}/{pool.tag}"
            maker = PodMaker(self.signal, pool, user, seed, self._verdicts)
            queue = self._queue_of.get((pool.tag, user.number))
            let = admissions(drafts, pool, queue, room, f"{seed}/{user.namespace}")
            yield from map(maker.pod, drafts, let)

    def signal(self, pod_uid: str, node: Node, part: float) -> Signal:
        """Return what a pod adds to the GPU it has `part` of."""
        cluster = CLUSTERS[identity.below(len(CLUSTERS), pod_uid, "cluster")]
        gpu = node.gpu or H100
        seen = self._distributions[cluster].on(gpu, identity.fraction(pod_uid, "signal"))
        shared = node.sharing in {Sharing.TIME_SLICED, Sharing.MPS}
        if shared and identity.fraction(pod_uid, "beyond") < _BEYOND:
            part = min(1.0, 1.5 * part)
        # An instance's activity is told of the instance, a shared GPU's of the GPU.
        of = part if shared else 1.0
        added = (seen.power_watts - gpu.idle_watts) * part
        return Signal(
            activity=round(seen.activity * of, 4),
            memory_mib=round(seen.memory_mib * part * _FILLED),
            power_watts=round(gpu.idle_watts + added, 1),
            sm_active=round(seen.sm_active * of, 4),
        )

    # ------------------------------------------------------------ what stays

    def _lasting_claims(self, start: int, end: int) -> Iterator[Claim]:
        """Yield a claim that several pods share, and one that no pod uses."""
        for name, (node, index) in (("eval-gpu", SHARED_CLAIM), ("parked-gpu", PARKED_CLAIM)):
            yield Claim(
                name=name,
                namespace=_CLAIM_SPACE,
                uid=identity.uid(self.seed, "claim", name, start),
                device_class="gpu.nvidia.com",
                created=start,
                allocated=start + MINUTE,
                released=end,
                deleted=end,
                node=node,
                devices=(index,),
            )

    def _sharers(self, claim: Claim, start: int, end: int) -> Iterator[Pod]:
        node = next(node for node in self.nodes if node.name == claim.node)
        for name in _SHARERS:
            uid = identity.uid(self.seed, "pod", name, start)
            yield Pod(
                uid=uid,
                name=f"policy-{name}-{identity.suffix(5, uid)}",
                namespace=_CLAIM_SPACE,
                owner=self._eval,
                units=1,
                created=start,
                bound=start + MINUTE,
                started=start + 2 * MINUTE,
                finished=end,
                deleted=end + LINGER_SECONDS,
                node=node.name,
                host_ip=node.ip,
                devices=claim.devices,
                resource="gpu.nvidia.com",
                claim=claim,
                tolerates_gpu=True,
                activity=0.22,
                sm_active=0.12,
                memory_mib=14_000,
                power_watts=170.0,
            )

    def _stray(self, start: int, end: int) -> Pod:
        """Return what keeps an unallocated GPU active: a process started by hand."""
        node, index = STRAY
        return Pod(
            uid="",
            name="",
            namespace="",
            owner=self._eval,
            units=1,
            created=start,
            started=max(start, self._origin + STRAY_DAY * DAY),
            finished=end,
            node=node,
            devices=(index,),
            activity=0.87,
            memory_mib=31_000,
            power_watts=322.0,
        )


def _gpus(pool: Pool) -> float:
    """Return how many GPU-equivalents a pool gives out."""
    node = pool.nodes[0]
    if pool.profile:
        return pool.size * mig_part(pool.profile, node.model)
    return pool.size / node.replicas
