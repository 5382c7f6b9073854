"""The sentences of policy simulations: what a change is, and what its replay takes for granted."""

from collections.abc import Iterator, Mapping, Sequence

from apps.accounts.domain.structs import replace
from apps.clusters.domain.resources import quantity
from apps.planning.domain.cluster_replay.inputs import Reclaim, ReplayAssumption
from apps.planning.domain.cluster_replay.wording import assumption_text, packing_text
from apps.planning.domain.policy_change import LimitChange, PolicyChange, ShareChange
from apps.quotas.domain.keys import QuotaSource

POLICY_ASSUMPTIONS = (
    "Both replays follow the same rules, and differ by the change alone. The replay without the "
    "change may differ from what happened.",
    "Changed limits hold from the start. The replay without the change uses the limits of today.",
    "Idle time counts from the last active hour until work ends. Idle time in between is not "
    "counted, nor are hours without metrics.",
    "Queues of Volcano and ResourceQuotas with scopes are not replayed.",
)

_WITHOUT, _WITH = "without:", "with:"
"""Before the key of an assumption: it is one of the replay without or with the change alone."""
_RECLAIM: Mapping[Reclaim, str] = {
    Reclaim.NEVER: "nothing",
    Reclaim.LOWER_PRIORITY: "work of lower priority",
    Reclaim.ANY: "any work",
}


def assumed_keys(
    before: Sequence[ReplayAssumption], after: Sequence[ReplayAssumption]
) -> list[str]:
    """Return what both replays assume, then what one of them alone does, marked as such."""
    return [
        *(one.value for one in before if one in after),
        *(_WITHOUT + one.value for one in before if one not in after),
        *(_WITH + one.value for one in after if one not in before),
    ]


def assumed_text(key: str) -> str:
    """Return the sentence of one of `assumed_keys`."""
    for mark in (_WITHOUT, _WITH):
        if key.startswith(mark):
            text = assumption_text(ReplayAssumption(key.removeprefix(mark)))
            return f"Only {mark.rstrip(':')} the change: {text}"
    return assumption_text(ReplayAssumption(key))


def unrequestable_texts(change: PolicyChange) -> Iterator[str]:
    """Yield the parts of a change that neither quota requests nor the catalog can hold."""
    yield from change_texts(replace(change, limits=(), shares=()))


def limit_name(one: LimitChange) -> str:
    """Return how a limit is called: its object and key."""
    if one.source == QuotaSource.RESOURCE_QUOTA:
        return f"{one.key} of ResourceQuota {one.namespace}/{one.name}"
    return f"{one.key} of {one.source} {one.name}"


def change_texts(change: PolicyChange) -> Iterator[str]:
    """Yield each part of a change in words."""
    for limit in change.limits:
        if limit.lends is None or limit.before != limit.after:
            yield f"{limit_name(limit)}: {quantity(limit.before)} → {quantity(limit.after)}"
        if limit.lends is not None:
            yield f"{limit_name(limit)}: lends {quantity(limit.lends)}"
    if change.fair_order:
        yield "Fair order of pending work"
    if change.strict_order:
        yield "Strict order of pending work"
    for share in change.shares:
        yield _share_text(share)
    if change.half_life_days is not None:
        yield f"Half-life {_plural(change.half_life_days, 'day')}"
    if change.no_borrowing:
        yield "No borrowing"
    yield from _scheduling_texts(change)
    if change.idle_minutes is not None:
        whose = "" if change.idle_of is None else " for {} in {}".format(*change.idle_of)
        yield f"Idle limit {_plural(change.idle_minutes, 'minute')}{whose}"


def _scheduling_texts(change: PolicyChange) -> Iterator[str]:
    if change.fair_sharing:
        yield "Fair sharing of queues"
    if change.reclaim is not None:
        yield f"Queues reclaim quota from {_RECLAIM[change.reclaim]}"
    if change.queue_preemption is not None:
        whom = "lower priority" if change.queue_preemption else "nothing"
        yield f"Queues preempt {whom} of their own"
    if change.node_preemption:
        yield "Lower priority is preempted on nodes"
    if change.placement is not None:
        yield f"Placement: {packing_text(change.placement)}"


def _share_text(one: ShareChange) -> str:
    parts = []
    if one.gpus is not None:
        parts.append(f"entitlement {quantity(one.gpus)}")
    if one.weight is not None:
        parts.append(f"weight {quantity(one.weight)}")
    return f"{one.team} in {one.tier}: {', '.join(parts)}"


def _plural(amount: float, unit: str) -> str:
    return f"{quantity(amount)} {unit}{'' if amount == 1 else 's'}"
