"""Are the hours collected, and how are nodes and tiers used."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta

from apps.clusters.domain.resources import counted
from apps.clusters.domain.tiers import PRODUCT_LABEL, UNMATCHED
from apps.operations.domain.examine.sharing import offers
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterObservations, NodeDay

MAY_LAG = timedelta(hours=3)
LOW_COVERAGE = 0.9
_LEAST_GPU_HOURS = 1.0
_INTERVAL_DIFFERS = 0.2
_LEAST_UNATTRIBUTED_GPU_HOURS = 24.0


def check_hours(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield what is wrong with the hours of the last day."""
    yield from _states(observed)
    yield from _lag(observed)
    yield from _coverage(observed)
    yield from _interval(observed)
    yield from _unattributed(observed)


def _states(observed: ClusterObservations) -> Iterator[Finding]:
    hours = observed.past.hours
    if hours.failed:
        said = f" The newest error: {hours.error.rstrip('.')}." if hours.error else ""
        yield observed.finding(
            "hours-failed",
            "",
            f"{counted(hours.failed, 'hour')} of the last 24 failed and "
            f"{'has' if hours.failed == 1 else 'have'} no facts.{said}",
            "# put the cause right; they are tried again by themselves, or now:\n"
            f"python manage.py backfill --cluster {observed.cluster} --days 1",
        )
    if hours.partial:
        noticed = ", ".join(f"{name} × {n}" for name, n in sorted(hours.remarks.items()))
        yield observed.finding(
            "hours-partial",
            "",
            f"{counted(hours.partial, 'hour')} of the last 24 lack samples or a part of the pod "
            f"ledger.{f' Noticed: {noticed}.' if noticed else ''}",
            "# Data quality says for each hour what was missing; once that is mended:\n"
            f"python manage.py backfill --cluster {observed.cluster} --days 1",
        )


def _lag(observed: ClusterObservations) -> Iterator[Finding]:
    newest, due = observed.past.hours.newest, observed.past.hours.due
    if newest is None or due is None or due - newest <= MAY_LAG:
        return
    # Where the source is away, that is the cause, and it is said.
    if not observed.measured:
        return
    behind = (due - newest).total_seconds() / 3600
    yield observed.finding(
        "collection-behind",
        "",
        f"The newest facts are {counted(round(behind), 'hour')} older than they should be.",
        "celery --app gpuportal worker    # both must run: see docs/operations.md\n"
        "celery --app gpuportal beat",
        since=newest,
    )


def _coverage(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield one finding of the nodes whose running pods are measured too little."""
    low, lost = [], 0.0
    for row in observed.past.node_days:
        ran = row.allocated - row.not_running
        # A ratio says nothing of a node that hardly ran anything.
        if ran >= _LEAST_GPU_HOURS and ran - row.unmeasured < LOW_COVERAGE * ran:
            low.append(row.node)
            lost += row.unmeasured
    if not low:
        return
    nodes = len(set(low))
    held = [
        tenant for tenant in observed.past.tenants if tenant.node in set(low) and tenant.running
    ]
    yield observed.finding(
        "coverage-low",
        "",
        f"On {counted(nodes, 'node')} less than {LOW_COVERAGE:.0%} of the running time of the "
        f"last day has metrics: {lost:.1f} GPU-hours are neither active nor waste.",
        "# does the exporter run there, and does Prometheus scrape it?\n"
        "kubectl get pods --all-namespaces --output wide | grep dcgm-exporter\n"
        'up{job=~".*dcgm.*"} == 0    # in Prometheus',
        pods=len(held),
        gpu_hours=lost,
        places=some(low),
    )


def _interval(observed: ClusterObservations) -> Iterator[Finding]:
    seen, said = observed.metrics.interval_seconds, observed.catalog_interval_seconds
    if seen is None or abs(seen - said) <= _INTERVAL_DIFFERS * said:
        return
    yield observed.finding(
        "interval-differs",
        "",
        f"GPUs are sampled every {seen:g} seconds, the catalog says {said:g}. Facts use what is "
        "seen; the catalog's value is used where too few samples tell.",
        "# in the catalog:\n"
        f"clusters:\n  - name: {observed.cluster}\n"
        f"    prometheus: {{scrape_interval_seconds: {seen:g}}}",
    )


def _unattributed(observed: ClusterObservations) -> Iterator[Finding]:
    for row in observed.past.tiers:
        if row.unattributed < _LEAST_UNATTRIBUTED_GPU_HOURS:
            continue
        yield observed.finding(
            "activity-unattributed",
            row.tier,
            f"GPUs of tier {row.tier} were active for {row.unattributed:.1f} GPU-hours of the "
            "last 30 days while no pod held them: programs outside Kubernetes, or pods that the "
            "portal does not know.",
            "# on the node: whose processes are these?\n"
            "nvidia-smi --query-compute-apps=pid,process_name,gpu_uuid --format=csv\n"
            "ps -o pid,user,cgroup,args -p PID    # no kubepods in its cgroup: not of a pod",
            gpu_hours=row.unattributed,
            tiers=(row.tier,),
        )


LEAST_CPUS = 1.0
LEAST_MEMORY_BYTES = 2.0 * 2**30
_LEAST_FREE_GPUS = 0.5
_FAMILIES = (("SXM", "NVLink (SXM)"), ("NVL", "NVLink bridge (NVL)"), ("PCIE", "PCIe"))


def check_usage(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield what makes GPUs slower, unfair or unreachable."""
    yield from _taints(observed)
    yield from _interconnects(observed)
    yield from _teams(observed)
    yield from _unreachable(observed)


def _taints(observed: ClusterObservations) -> Iterator[Finding]:
    answers = observed.metrics.answers
    # Without kube-state-metrics no taint is shown of any node.
    if answers is None or answers.tainted is None or not observed.metrics.kube_state:
        return
    bare = {n.node for n in observed.nodes if (n.capacity or n.devices)} - answers.tainted
    if not bare:
        return
    yield observed.finding(
        "nodes-without-taint",
        "",
        f"{counted(len(bare), 'GPU node has', 'GPU nodes have')} no taint: pods without GPUs are "
        "put there too and take the CPU and memory that GPU pods need.",
        "kubectl taint nodes NODE nvidia.com/gpu=present:NoSchedule\n"
        "# pods that ask for nvidia.com/gpu tolerate it by themselves where the admission plug-in\n"
        "# ExtendedResourceToleration is on; daemon sets of the GPU software tolerate it already",
        places=some(bare),
    )


def interconnect(product: str) -> str:
    """Return how GPUs of a product are joined; empty where its name does not say."""
    # A family is a whole word of the name, with or without its generation: SXM, SXM4, SXM5.
    words = re.split(r"[-\s_]+", product.upper())
    for sign, name in _FAMILIES:
        if any(re.fullmatch(rf"{sign}\d*", word) for word in words):
            return name
    return ""


def _interconnects(observed: ClusterObservations) -> Iterator[Finding]:
    kinds: dict[str, dict[str, float]] = defaultdict(dict)
    for offer in offers(observed):
        kind = interconnect(offer.labels.get(PRODUCT_LABEL, ""))
        if kind and offer.tier != UNMATCHED:
            kinds[offer.tier][kind] = kinds[offer.tier].get(kind, 0.0) + offer.gpus
    for tier, gpus in sorted(kinds.items()):
        if len(gpus) < 2:
            continue
        groups = [g for g in observed.past.groups if g.tier == tier and g.units > 1]
        told = " and ".join(f"{count:g} × {kind}" for kind, count in sorted(gpus.items()))
        yield observed.finding(
            "interconnect-mixed",
            tier,
            f"Tier {tier} has GPUs of {told}: a job over several GPUs runs at the pace of the "
            "slowest link, and does not know which it gets.",
            f"# in the catalog, a tier for each product:\ntiers:\n  - name: {tier}\n"
            f"    node_selector: {{{PRODUCT_LABEL}: PRODUCT}}",
            pods=sum(group.pods for group in groups),
            gpu_hours=observed.allocated(tier),
            tiers=(tier,),
        )


def _teams(observed: ClusterObservations) -> Iterator[Finding]:
    for row in sorted(observed.past.teams):
        allowed = observed.allowed.get(row.tier)
        # Without a list the tier is for all teams.
        if not allowed or row.team in allowed or row.allocated <= 0:
            continue
        yield observed.finding(
            "team-not-allowed",
            f"{row.team} {row.tier}",
            f"Team {row.team} had {row.allocated:.1f} GPU-hours of tier {row.tier} in the last 30 "
            f"days, which is for {', '.join(sorted(allowed))}.",
            f"# if it may: in the catalog\ntiers:\n  - name: {row.tier}\n"
            f"    allowed_teams: [{', '.join(sorted({*allowed, row.team}))}]\n"
            "# if not: a quota of 0 in its namespaces\n"
            f'spec: {{hard: {{requests.{_resource(observed, row.tier)}: "0"}}}}',
            gpu_hours=row.allocated,
            tiers=(row.tier,),
        )


def _resource(observed: ClusterObservations, tier: str) -> str:
    found = [rule.resources[0] for rule in observed.rules if rule.tier == tier and rule.resources]
    return found[0] if found else "nvidia.com/gpu"


def _unreachable(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield GPUs that are free now on nodes where no pod would find CPU or memory."""
    answers = observed.metrics.answers
    if answers is None or answers.room is None:
        return
    held: dict[str, float] = defaultdict(float)
    offered = list(offers(observed))
    # Units may be replicas or MIG devices: weights turn them into GPUs, as in the total.
    weights = {(o.node, o.resource): o.gpus / o.units for o in offered}
    for tenant in observed.past.tenants:
        weight = weights.get((tenant.node, tenant.resource), 0.0)
        held[tenant.node] += tenant.units * weight
    total: dict[str, float] = defaultdict(float)
    for offer in offered:
        total[offer.node] += offer.gpus
    short: dict[str, float] = {}
    for node, gpus in total.items():
        room = answers.room.get(node)
        free = gpus - held[node]
        if room is None or free < _LEAST_FREE_GPUS:
            continue
        if room.cpus < LEAST_CPUS or room.memory_bytes < LEAST_MEMORY_BYTES:
            short[node] = free
    if not short:
        return
    yield observed.finding(
        "free-unreachable",
        "",
        f"{counted(sum(short.values()), 'GPU is', 'GPUs are')} free on "
        f"{counted(len(short), 'node')} with less than {LEAST_CPUS:g} CPU or "
        f"{LEAST_MEMORY_BYTES / 2**30:g} GiB of memory left for a pod: "
        "nothing can be placed there.",
        "kubectl describe node NODE    # Allocated resources: who took them?\n"
        "# keep pods without GPUs off these nodes:\n"
        "kubectl taint nodes NODE nvidia.com/gpu=present:NoSchedule\n"
        "# and ask for less beside a GPU, in the pod template:\n"
        "resources: {requests: {cpu: CPUS_OF_THE_NODE_PER_GPU}}",
        gpu_hours=_unallocated(observed.past.node_days, set(short)),
        places=some(short),
    )


def _unallocated(days: Sequence[NodeDay], nodes: set[str]) -> float | None:
    hours = sum(row.unallocated for row in days if row.node in nodes)
    return hours or None
