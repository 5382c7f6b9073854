"""`helios`: the Earth cluster of the Helios trace, one team for each of its virtual clusters.

In every minute the pods of a team hold and wait for as many GPUs as the trace says. The trace is
about allocation only: what the GPUs do is drawn for each pod from the Acme distributions, and the
GPUs are taken to be A100 80 GB as in these. Each team has nodes of its own.
"""

from collections.abc import Iterator
from pathlib import Path

from apps.accounts.domain.structs import replace
from simulator import identity
from simulator.epochs import ActivitySteps, Epoch
from simulator.fleet import DAY, FOREVER, GPU, Controller, Node, Pod
from simulator.machines import a100_node
from simulator.scenarios.base import EpochScenario, Team
from simulator.scenarios.distributions import CLUSTERS, Distribution, distributions
from simulator.scenarios.packing import Draft, Packer
from simulator.scenarios.trace import MINUTE, Level, Trace
from simulator.scenarios.workloads import Workloads, bound_pod, team_workloads

FILE = (
    Path(__file__).parents[1]
    / "data"
    / "helios_earth"
    / "earth_vc_minutely_20200501_20200524.csv.gz"
)
POOL = "node-pool"
"""The label by which a team's pods find the team's nodes."""
_GPUS_PER_NODE = 8
_PAST_SECONDS = 730 * DAY
_LEADS = ("ada",)
_LED = 2
_BUDGET_SHARE = 0.75
_HOURS_A_MONTH = 730


class Helios(EpochScenario):
    """The trace starts at `origin`; before and after it repeats by whole weeks.

    The first epoch is the trace and its repetition after it, without a break; each repetition
    further off is an epoch of its own, at the start of which all pods are new.

    In the trace jobs queue behind a team's quota. Here they are pods, so a ResourceQuota's `used`,
    which counts pending pods too, may exceed its `hard`, as it may where a quota was lowered.
    """

    name = "helios"
    title = "856 GPUs of 16 teams: the minutes of the Helios trace (24 days), live from now"

    epochs_cached = 6

    def __init__(self, *, seed: int, origin: int, trace: Trace) -> None:
        self.seed = f"{self.name}/{seed}/{origin}"
        self._trace = trace
        self.epoch_seconds = repeat = trace.repeat_minutes * MINUTE
        self.begins = origin - (_PAST_SECONDS // repeat + 1) * repeat
        self.first_epoch = (origin, origin + trace.minutes * MINUTE + repeat)
        self._distributions = distributions()
        self._spaces = {team: team.lower() for team in trace.teams}
        self._pools = self._make_nodes()
        self.nodes = [node for pool in self._pools.values() for node in pool]
        self.namespaces = self.made_namespaces(self._spaces.values())
        self.quotas = self.made_quotas(self._spaces.values())
        self._workloads = {
            team: team_workloads(self.seed, space, self.begins)
            for team, space in self._spaces.items()
        }
        self.controllers = [c for w in self._workloads.values() for c in w.lasting]
        self.teams = self._make_teams()

    def _levels(self, team: str, number: int) -> Iterator[Level]:
        """Yield an epoch's levels, minutes counted from its start."""
        minutes, repeat = self._trace.minutes, self._trace.repeat_minutes
        if number < 0:
            yield from self._trace.part(team, 0, repeat)
            return
        if number == 0:
            yield from self._trace.part(team, 0, minutes)
        shift = repeat if number == 0 else repeat - minutes
        for level in self._trace.part(team, minutes - repeat, minutes):
            yield level._replace(minute=level.minute + shift)

    # ------------------------------------------------------------ the fixed parts

    def _make_nodes(self) -> dict[str, list[Node]]:
        pools: dict[str, list[Node]] = {}
        position = 0
        for team, space in self._spaces.items():
            gpus = _gpus_of_nodes(self._trace.quota(team))
            pools[team] = [
                a100_node(
                    seed=self.seed,
                    name=f"{space}-{number:02d}",
                    position=position + number,
                    gpus=count,
                    created=self.begins,
                    labels={POOL: space},
                )
                for number, count in enumerate(gpus, start=1)
            ]
            position += len(gpus)
        return pools

    def _make_teams(self) -> list[Team]:
        quotas = {team: self._trace.quota(team) for team in self._spaces}
        led = sorted(quotas, key=lambda team: -quotas[team])[:_LED]
        return [
            Team(
                name=team,
                namespaces=(space,),
                entitlement=quotas[team],
                cost_center=f"CC-{100 + number}",
                leads=_LEADS if team in led else (),
                monthly_gpu_hours=round(quotas[team] * _HOURS_A_MONTH * _BUDGET_SHARE),
            )
            for number, (team, space) in enumerate(self._spaces.items(), start=1)
        ]

    # ------------------------------------------------------------ pods

    def make_epoch(self, number: int, start: int, end: int) -> Epoch:
        pods: list[Pod] = []
        hard: dict[str, ActivitySteps] = {}
        for team, space in self._spaces.items():
            levels = list(self._levels(team, number))
            maker = _EpochPods(
                seed=f"{self.seed}/{number}/{space}",
                workloads=self._workloads[team],
                nodes=self._pools[team],
                distribution=self._distributions[_cluster_of(self.seed, space)],
                all_nodes=len(self.nodes),
            )
            pods += maker.pods(levels, start, end)
            times = [start + level.minute * MINUTE for level in levels]
            hard[space] = ActivitySteps(times, [level.quota for level in levels])
        return Epoch(start, end, pods=pods, hard=hard, controllers=passing(pods))


class _EpochPods:
    """Makes the pods of one team in one epoch."""

    def __init__(
        self,
        *,
        seed: str,
        workloads: Workloads,
        nodes: list[Node],
        distribution: Distribution,
        all_nodes: int,
    ) -> None:
        self._seed = seed
        self._workloads = workloads
        self._nodes = nodes
        self._distribution = distribution
        self._message = pending_message(len(nodes), all_nodes, f"Insufficient {GPU}")

    def pods(self, levels: list[Level], start: int, end: int) -> Iterator[Pod]:
        packer = Packer([len(node.devices) for node in self._nodes])
        for level in levels:
            packer.level(
                start + level.minute * MINUTE,
                running=level.running,
                pending=level.pending,
                jobs=level.jobs,
                pending_jobs=level.pending_jobs,
            )
        packer.close(end)
        return map(self._pod, packer.drafts)

    def _pod(self, draft: Draft) -> Pod:
        pod = self._workloads.pod(draft, self._seed)
        waiting = replace(pod, node_selector={POOL: pod.namespace}, pending_message=self._message)
        return waiting if draft.bound == FOREVER else self._bound(waiting, draft)

    def _bound(self, pod: Pod, draft: Draft) -> Pod:
        node = self._nodes[draft.node]
        signal = self._distribution.at(
            identity.fraction(pod.uid, "signal"), visible_mib=node.visible_mib
        )
        return bound_pod(pod, draft, node, signal)


def _gpus_of_nodes(quota: int) -> list[int]:
    """Return the GPUs of each node that make up a quota: nodes of eight, and what is left."""
    whole, rest = divmod(quota, _GPUS_PER_NODE)
    return [_GPUS_PER_NODE] * whole + ([rest] if rest else [])


def _cluster_of(seed: str, space: str) -> str:
    return CLUSTERS[identity.below(len(CLUSTERS), seed, space, "cluster")]


def pending_message(own: int, all_nodes: int, lacking: str) -> str:
    """Return what the scheduler says: `own` nodes lack something, the others are not for it."""
    others = f"{all_nodes - own} node(s) didn't match Pod's node affinity/selector"
    reasons = sorted([f"{own} {lacking}", others])
    victims = sorted(
        [
            f"{own} No preemption victims found for incoming pod",
            f"{all_nodes - own} Preemption is not helpful for scheduling",
        ]
    )
    head = f"0/{all_nodes} nodes are available: "
    return (
        f"{head}{', '.join(reasons)}. no new claims to deallocate, "
        f"preemption: {head}{', '.join(victims)}."
    )


def passing(pods: list[Pod]) -> list[Controller]:
    """Return the Jobs of CronJobs, each gone with its last pod."""
    found: dict[str, Controller] = {}
    ends: dict[str, int] = {}
    for pod in pods:
        if pod.owner.parent is not None and pod.owner.parent.kind == "CronJob":
            found.setdefault(pod.owner.uid, pod.owner)
            ends[pod.owner.uid] = max(ends.get(pod.owner.uid, 0), pod.deleted)
    return [replace(job, deleted=ends[uid]) for uid, job in found.items()]
