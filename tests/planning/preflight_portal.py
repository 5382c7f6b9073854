"""A portal with a node, a quota, prices and queue times, for tests of preflight."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import yaml
from django.utils import timezone

from apps.clusters.domain.observed.objects import NodeSnapshot, ObservedKind, QuotaSnapshot
from apps.clusters.models import TierRule
from apps.costs.models import Price
from apps.usage.domain.activity import CLASSES, class_of
from apps.usage.models import WorkloadActivityDay, WorkloadDay
from tests.factories import (
    H100,
    Portal,
    make_model,
    make_pod,
    make_portal,
    make_tier,
    make_workload,
)
from tests.pending.rows import make_episode, make_looked, see

GPU = "nvidia.com/gpu"
KEY, MIG = f"requests.{GPU}", "nvidia.com/mig-1g.10gb"
LABELS = {"nvidia.com/gpu.product": H100, "pool": "gold"}


def watched_portal() -> Portal:
    """Return a portal whose west has a node with 3 of 8 GPUs free, and a quota that leaves 16."""
    portal, now = make_portal(), timezone.now()
    west = portal.clusters[0]
    make_looked(west, now)
    amounts = {GPU: 8.0, "cpu": 64.0}
    node = NodeSnapshot(labels=LABELS, allocatable=amounts, used={GPU: 5.0})
    see(west, ObservedKind.NODE, "node-1", node, at=now, namespace="", name="west-1")
    quota = QuotaSnapshot({KEY: 20.0}, {KEY: 20.0}, {KEY: 4.0})
    see(west, ObservedKind.RESOURCE_QUOTA, "quota-1", quota, at=now, name="gpus")
    train = make_workload(west, "vision", "train")
    gold = portal.tiers[0]
    TierRule.objects.filter(tier=gold).update(node_selector={"pool": "gold"})
    for minutes in range(1, 11):
        until = now - timedelta(hours=1)
        since = until - timedelta(minutes=minutes)
        make_episode(train, f"past-{minutes}", since=since, until=until, units=2.0, tier=gold)
    Price.objects.create(
        gpu_model=H100,
        capacity_type="unknown",
        per_gpu_hour=Decimal("2.50"),
        currency="USD",
        valid_from=now - timedelta(days=9),
    )
    return portal


def job(gpus: int, pods: int = 1, **spec: Any) -> str:
    pod = {
        "nodeSelector": {"pool": "gold"},
        "containers": [{"name": "main", "resources": {"limits": {GPU: gpus}}}],
        **spec,
    }
    return yaml.safe_dump(
        {
            "kind": "Job",
            "metadata": {"name": "train"},
            "spec": {"parallelism": pods, "template": {"spec": pod}},
        }
    )


def make_runs(portal: Portal, *, days: int = 8) -> None:
    """Give past runs of 2, 4 and 6 hours, and measured days on H100 with little in use."""
    (west, _), gold, now = portal.clusters, portal.tiers[0], timezone.now()
    node_gpus = portal.node_gpus[0]
    for number, hours in enumerate((2, 4, 6)):
        past = make_workload(west, "vision", f"train-{1764000000 + number}")
        since = now - timedelta(days=2 + number)
        make_pod(
            past, created_at=since, node_gpus=node_gpus, ended_at=since + timedelta(hours=hours)
        )
    given = {
        "cluster": west,
        "tier": gold,
        "gpu_model": make_model(H100),
        "capacity_type": "unknown",
        "team": portal.vision,
        "namespace": past.namespace,
        "workload": past,
    }
    slots = [0] * CLASSES
    slots[class_of(0.1)] = 48
    for ago in range(1, days + 1):
        day = (now - timedelta(days=ago)).date()
        amounts = {"allocated": 10, "busy": 1, "underused": 9, "memory_peak_mib": 4000.0}
        WorkloadDay.objects.create(day=day, **given, **amounts)
        WorkloadActivityDay.objects.create(day=day, **given, slots=slots)


def add_slices(portal: Portal) -> None:
    """Add a tier of MIG devices of the same model, all of them taken."""
    west, now = portal.clusters[0], timezone.now()
    slices = make_tier("slices", position=2)
    labels = {"nvidia.com/gpu.product": H100, "pool": "slices"}
    TierRule.objects.filter(tier=slices).update(
        sharing="mig", resources=[MIG], node_selector={"pool": "slices"}
    )
    node = NodeSnapshot(labels=labels, allocatable={MIG: 7.0, "cpu": 64.0}, used={MIG: 7.0})
    see(west, ObservedKind.NODE, "node-2", node, at=now, namespace="", name="west-2")
