"""Applied changes: stacked on one quota key, and drift of the cluster from them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.targets import Target

Key = tuple[str, Target]


class AppliedLayer(Struct, frozen=True):
    """A change that was applied. `stands`: its end has not come.

    One that does not stand ended while a later change lay on top of it.
    """

    before: Quantity
    after: Quantity
    stands: bool


def beneath(before: Quantity, earlier: Iterable[AppliedLayer]) -> Quantity:
    """Return the amount that a change from `before` goes back to; `earlier` has the latest first.

    It passes through raises whose time is over: a quota of 6, raised to 8 until Friday and from 8
    to 10 until Sunday, is 6 again after Sunday. An amount set by somebody else in between is kept.
    """
    amount = before
    for layer in earlier:
        # A layer that stands still holds its amount; another amount shows a writer in between.
        if layer.stands or layer.after != amount:
            break
        amount = layer.before
    return amount


class DriftKind(StrEnum):
    CHANGED = "changed"
    KEY_GONE = "key gone"
    OBJECT_GONE = "object gone"


class AppliedLimit(Struct, frozen=True):
    """A change that took effect at `at` and left `amount`: applied, or (`back`) taken back."""

    request_id: int
    cluster: str
    target: Target
    amount: Quantity
    at: datetime
    back: bool = False


class ObservedLimit(Struct, frozen=True):
    """What the cluster shows of a target, seen at `at`; `exists`: the object itself is there."""

    amount: Quantity | None
    exists: bool
    at: datetime


class Drift(Struct, frozen=True):
    """A target that shows something else than was last approved; `live` None where it is gone."""

    request_id: int
    cluster: str
    target: Target
    kind: DriftKind
    approved: Quantity
    live: Quantity | None
    sentence: str


def last_applied(changes: Iterable[AppliedLimit]) -> dict[Key, AppliedLimit]:
    """Return the change that counts for each target: the latest, of two at once the later id."""
    latest: dict[Key, AppliedLimit] = {}
    for change in sorted(changes, key=lambda c: (c.at, c.request_id)):
        latest[change.cluster, change.target] = change
    return latest


def drifts(changes: Iterable[AppliedLimit], shown: Mapping[Key, ObservedLimit]) -> list[Drift]:
    """Return where the cluster differs from the last approved amount, in order of request.

    A target that was not seen since its change, or not at all, says nothing: what is not known
    is no drift.
    """
    found = []
    for key, change in last_applied(changes).items():
        now = shown.get(key)
        # A look from before the write shows the old amount, which is no drift.
        if now is None or now.at < change.at or now.amount == change.amount:
            continue
        found.append(_drift(change, now))
    return sorted(found, key=lambda drift: drift.request_id)


def _drift(change: AppliedLimit, now: ObservedLimit) -> Drift:
    if now.amount is not None:
        kind, what = DriftKind.CHANGED, f"shows {now.amount}"
    elif now.exists:
        kind, what = DriftKind.KEY_GONE, "no longer has this limit"
    else:
        kind, what = DriftKind.OBJECT_GONE, f"no longer has the {change.target.source}"
    was = f"it was reverted to {change.amount}" if change.back else f"{change.amount} was approved"
    return Drift(
        request_id=change.request_id,
        cluster=change.cluster,
        target=change.target,
        kind=kind,
        approved=change.amount,
        live=now.amount,
        sentence=f"{change.target}: {was}, the cluster {what}.",
    )
