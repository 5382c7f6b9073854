"""What a request is about: one key of a ResourceQuota, or one cell of a Kueue or Volcano queue."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from apps.clusters.domain.resources import is_gpu, names_gpus
from apps.clusters.domain.tiers import TierRule, tier_of
from apps.quota_requests.domain.quantities import NotAQuantity, Quantity, quantity
from apps.quotas.domain.keys import DEVICES, IMPLICIT, LIMITS, REQUESTS, QuotaRef, QuotaSource

MOST_UNITS: Final = 2**53
"""Up to here every whole number is exact for all readers of JSON."""
# `8.0` passes, as programs write a whole float; `8Ki` and `8e3` do not.
_PLAIN: Final = re.compile(r"\+?[0-9]+(\.0*)?")


class VolcanoField(StrEnum):
    """Limits of a Volcano queue: what it may use at most, and what it is meant to have."""

    CAPABILITY = "capability"
    DESERVED = "deserved"


class TargetRefused(ValueError):
    """A request cannot be about this; `fix` says what to ask for instead."""

    def __init__(self, reason: str, *, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


class QuotaKeyTarget(Struct, frozen=True):
    """A key of `spec.hard` of a ResourceQuota, as `requests.nvidia.com/gpu`."""

    namespace: str
    name: str
    key: str

    source = QuotaSource.RESOURCE_QUOTA

    @property
    def resource(self) -> str:
        """The GPU resource or device class that the key limits."""
        if self.key.endswith(DEVICES):
            return self.key.removesuffix(DEVICES)
        return self.key.removeprefix(REQUESTS).removeprefix(IMPLICIT)

    def __str__(self) -> str:
        return f"{self.key} of ResourceQuota {self.namespace}/{self.name}"


class _OfWholeCluster(Struct, frozen=True):
    """What a queue's cells have alike: no namespace."""

    name: str

    namespace = ""


class QueueCell(_OfWholeCluster, frozen=True):
    """The `nominalQuota` of a resource in a flavor of a Kueue ClusterQueue."""

    flavor: str
    resource: str

    source = QuotaSource.CLUSTER_QUEUE

    @property
    def key(self) -> str:
        """How the request names it: `a100/nvidia.com/gpu`."""
        return f"{self.flavor}/{self.resource}"

    def __str__(self) -> str:
        return (
            f"nominal quota of {self.resource} in flavor {self.flavor} of ClusterQueue {self.name}"
        )


class VolcanoCell(_OfWholeCluster, frozen=True):
    """A resource in `spec.capability` or `spec.deserved` of a Volcano queue."""

    part: VolcanoField
    resource: str

    source = QuotaSource.VOLCANO_QUEUE

    @property
    def key(self) -> str:
        """How the request names it: `capability/nvidia.com/gpu`."""
        return f"{self.part}/{self.resource}"

    def __str__(self) -> str:
        return f"{self.part} of {self.resource} of Volcano queue {self.name}"


Target = QuotaKeyTarget | QueueCell | VolcanoCell


def target_of(ref: QuotaRef, *, named: Collection[str] = ()) -> Target:
    """Return the target that a request names; `named` are resources and classes of tiers.

    Raises TargetRefused, with the fix, where the key limits nothing, is not about GPUs or does
    not fit its source.
    """
    source, namespace, name, key, _ = ref
    if source not in set(QuotaSource):
        raise TargetRefused(
            f"{source} is no kind of quota", fix=f"Choose one of {_listed(QuotaSource)}."
        )
    if source == QuotaSource.KAI_QUEUE:
        raise TargetRefused(
            "Queues of KAI Scheduler and Run:ai are not changed here.",
            fix="Change spec.resources.gpu of the Queue, or the project in Run:ai.",
        )
    if not name:
        raise TargetRefused("The name of the quota is missing.")
    if source == QuotaSource.RESOURCE_QUOTA:
        if not namespace:
            raise TargetRefused("A ResourceQuota needs its namespace.")
        check_key(key, named=named)
        return QuotaKeyTarget(namespace, name, key)
    # The first slash only: resources have one themselves, as nvidia.com/gpu.
    first, slash, resource = key.partition("/")
    if not (first and slash and resource):
        shape = "flavor/resource" if source == QuotaSource.CLUSTER_QUEUE else "capability/resource"
        raise TargetRefused(f"{key} does not name a key of a {source}", fix=f"Write {shape}.")
    if not is_gpu(resource, named):
        raise TargetRefused(f"{resource} is not a GPU resource; only those are changed here.")
    if source == QuotaSource.CLUSTER_QUEUE:
        return QueueCell(name, first, resource)
    if first not in set(VolcanoField):
        raise TargetRefused(f"{first} is not changed here", fix=f"Use {_listed(VolcanoField)}.")
    return VolcanoCell(name, VolcanoField(first), resource)


def _listed(names: type[StrEnum]) -> str:
    return " or ".join(names)


def check_key(key: str, *, named: Collection[str] = ()) -> None:
    """Refuse a ResourceQuota key that counts nothing or is not about GPUs (facts, section 4.1).

    Kubernetes accepts `nvidia.com/gpu` and `limits.nvidia.com/gpu` without a word and never
    enforces them; raising such a limit would look like a decision and be none.
    """
    if is_gpu(key, named):
        raise TargetRefused(
            f"Kubernetes accepts the key {key} but neither counts nor enforces it.",
            fix=f"Add {REQUESTS}{key} to the ResourceQuota and ask for that key.",
        )
    resource = key.removeprefix(LIMITS)
    if resource != key and is_gpu(resource, named):
        raise TargetRefused(
            f"Kubernetes accepts the key {key} but neither counts nor enforces it.",
            fix=f"GPUs are counted by {REQUESTS}{resource}: ask for that key.",
        )
    asked = key.removeprefix(REQUESTS)
    if asked != key and (is_gpu(asked, named) or asked.startswith(IMPLICIT)):
        return
    device_class = key.removesuffix(DEVICES)
    if device_class != key and names_gpus(device_class, named):
        return
    raise TargetRefused(f"{key} is not a key for GPUs; only those are changed here.")


def wanted_amount(target: Target, written: object) -> Quantity:
    """Return the requested amount: whole units, written as plain digits.

    GPUs, MIG devices and shares are extended resources: a pod never gets a part of one, whatever
    a limit says. `8Ki` is an amount to Kubernetes, and here most likely a slip of the pen. Above
    2^53 readers of JSON lose units. Raises TargetRefused.
    """
    amount = amount_for(target, written)
    plain = "Write whole units in plain digits, as 8."
    if not amount.whole:
        raise TargetRefused(
            f"{written} is not a whole number: Kubernetes gives out {target.resource} in whole "
            "units only.",
            fix=plain,
        )
    if not _PLAIN.fullmatch(str(written).strip()):
        raise TargetRefused(f"{written} is {amount} units: is that what is meant?", fix=plain)
    if amount.units > MOST_UNITS:
        raise TargetRefused(f"{amount} is more than any cluster has.", fix=plain)
    return amount


def amount_for(target: Target, written: object) -> Quantity:
    """Return an amount that a target has, as a person or a program writes it.

    A ResourceQuota holds fractions (it enforces them as numbers); Kueue rounds them up and a
    queue of Volcano has no use for them. Raises TargetRefused.
    """
    try:
        amount = quantity(written.strip() if isinstance(written, str) else written)
    except NotAQuantity as error:
        raise TargetRefused(f"{error}.", fix="Write a number of units, as 8.") from error
    if amount.nanos < 0:
        raise TargetRefused(f"A quota cannot be negative: {amount}.")
    if not amount.whole and target.source is not QuotaSource.RESOURCE_QUOTA:
        raise TargetRefused(f"A {target.source} takes whole units only, not {amount}.")
    return amount


def check_change(before: Quantity, after: Quantity) -> None:
    """Refuse a change that changes nothing; the two are compared as amounts, not as texts."""
    if before == after:
        raise TargetRefused(f"The quota is {before} already: there is nothing to change.")


def reachable_tiers(
    target: Target,
    rules: Sequence[TierRule],
    nodes: Sequence[tuple[Collection[str], Mapping[str, str]]] | None = None,
    *,
    flavor_labels: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the tiers that the key can reach, in catalog order.

    A quota limits a resource, not a tier. `nodes` are what each node offers (resources and device
    classes) and its labels: only tiers of such nodes are reached; None for not known, when all
    tiers of the resource are. `flavor_labels` are the node labels of a Kueue flavor.
    """
    wanted = flavor_labels or {}
    # Unknown nodes: every tier it could reach, so that no effect goes unmentioned.
    if nodes is None:
        return _distinct(
            # A label that the flavor does not name rules no tier out: it may be on its nodes.
            rule.tier
            for rule in rules
            if rule.asks_for(target.resource)
            and all(wanted.get(k, v) == v for k, v in rule.node_selector.items())
        )
    reached = {
        tier_of(target.resource, labels, rules)
        for offered, labels in nodes
        if target.resource in offered and all(labels.get(k) == v for k, v in wanted.items())
    }
    # Through the rules again: a set has no order, and tiers are shown as in the catalog.
    return _distinct(rule.tier for rule in rules if rule.tier in reached)


def _distinct(tiers: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tiers))
