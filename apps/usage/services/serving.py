"""Writing what inference servers did in an hour, joined to the pods that held GPUs in it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from apps.clusters.domain.pods.ledger import PodRecord
from apps.clusters.domain.window import Window
from apps.clusters.ports import ServingPodHour
from apps.usage.domain.attribution.attribute_hour import HourFacts, PodFact
from apps.usage.domain.serving import GANG_KINDS, Holding, divided, measured_amounts
from apps.usage.models import ServingHour
from apps.usage.services.facts import Dimensions, insert, instant

_AMOUNTS = (
    *("tokens_in", "tokens_out", "requests", "first_tokens", "first_tokens_in_time"),
    "ttft_objective_ms",
)
_MEANS = ("running", "waiting", "kv_cache")
_COLUMNS = (
    *("hour", "pod_id", "team_id", "namespace_id", "workload_id"),
    *("cluster_id", "tier_id", "gpu_model_id", "capacity_type"),
    *("model", "engine", "measured", "measured_seconds", *_AMOUNTS, *_MEANS),
)
_MOST_CHARACTERS = 200
_Name = tuple[str, str]


def write_serving(
    hour: Window,
    served: Sequence[ServingPodHour],
    pods: Iterable[PodRecord],
    facts: HourFacts,
    dimensions: Dimensions,
) -> None:
    """Add what was served in an hour; its older rows went with its facts (`write_hour`).

    Must run in the same transaction. Servers in pods that held no GPU are left out.
    """
    if served:
        rows = _rows(hour, served, pods, facts, dimensions)
        insert(ServingHour, _COLUMNS, rows)


def _rows(
    hour: Window,
    served: Sequence[ServingPodHour],
    pods: Iterable[PodRecord],
    facts: HourFacts,
    d: Dimensions,
) -> Iterator[tuple[Any, ...]]:
    of_pod: dict[_Name, list[ServingPodHour]] = defaultdict(list)
    for one in served:
        of_pod[one.namespace, one.pod].append(one)
    held, largest = _holdings(hour, pods, facts, d)
    measured = {name: of_pod[name][0].measured_seconds for name in of_pod if name in held}
    amounts = measured_amounts(held, measured)
    at = instant(hour.start)
    for name, amount in sorted(amounts.items()):
        fact = largest[name]
        ids = d.pods[fact.uid]
        of_row = (at, ids.pod, d.team_of(ids.namespace_name), ids.namespace, ids.workload)
        models = of_pod[name]
        parts = divided(amount, _weights(models))
        for one, part in zip(models, parts, strict=True):
            yield (
                *of_row,
                *d.kind(fact.gpu_class),
                *(one.model[:_MOST_CHARACTERS], one.engine, part, round(one.measured_seconds)),
                *(_whole(getattr(one, name)) for name in _AMOUNTS),
                *(getattr(one, name) for name in _MEANS),
            )


def _holdings(
    hour: Window, pods: Iterable[PodRecord], facts: HourFacts, d: Dimensions
) -> tuple[dict[_Name, Holding], dict[_Name, PodFact]]:
    """Return what pods held in the hour by namespace and name, and the largest fact of each."""
    of_uid: dict[str, list[PodFact]] = defaultdict(list)
    for fact in facts.pods:
        of_uid[fact.uid].append(fact)
    held: dict[_Name, Holding] = {}
    largest: dict[_Name, PodFact] = {}
    for pod in pods:
        span = pod.held(hour.end_seconds)
        # What a pod holds by claims stands under these in the ledger.
        own = [fact for uid in (pod.uid, *pod.claims) for fact in of_uid.get(uid, ())]
        if span is None or not own:
            continue
        name = (pod.namespace, pod.name)
        # Pods of a StatefulSet follow one another under one name: together they are one holder.
        before = held.get(name, Holding(0, 0.0, 0))
        allocated = before.allocated + sum(fact.amounts.allocated for fact in own)
        seconds = before.seconds + max(0.0, span[1] - max(span[0], hour.start_seconds))
        known = largest.get(name)
        largest[name] = max([known, *own] if known else own, key=_size)
        workload = d.pods[largest[name].uid].workload
        held[name] = Holding(allocated, seconds, workload, pod.owner.kind in GANG_KINDS)
    return held, largest


def _size(fact: PodFact) -> int:
    return fact.amounts.allocated


def _weights(models: Sequence[ServingPodHour]) -> list[float]:
    tokens = [(one.tokens_in or 0.0) + (one.tokens_out or 0.0) for one in models]
    return tokens if sum(tokens) else [one.requests or 0.0 for one in models]


def _whole(amount: float | None) -> int | None:
    return None if amount is None else round(amount)
