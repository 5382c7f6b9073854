"""The sentences of policy simulations: what a change is, and what its replay takes for granted."""

from collections.abc import Iterator

from apps.clusters.domain.resources import quantity
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
    for share in change.shares:
        yield _share_text(share)
    if change.half_life_days is not None:
        yield f"Half-life {_plural(change.half_life_days, 'day')}"
    if change.no_borrowing:
        yield "No borrowing"
    if change.idle_minutes is not None:
        whose = "" if change.idle_of is None else " for {} in {}".format(*change.idle_of)
        yield f"Idle limit {_plural(change.idle_minutes, 'minute')}{whose}"


def _share_text(one: ShareChange) -> str:
    parts = []
    if one.gpus is not None:
        parts.append(f"entitlement {quantity(one.gpus)}")
    if one.weight is not None:
        parts.append(f"weight {quantity(one.weight)}")
    return f"{one.team} in {one.tier}: {', '.join(parts)}"


def _plural(amount: float, unit: str) -> str:
    return f"{quantity(amount)} {unit}{'' if amount == 1 else 's'}"
