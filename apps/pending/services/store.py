"""Writing episodes and their spells, some at a time, under the lease of who refreshes."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import DataError, IntegrityError, transaction
from django.db.models import Q

from apps.clusters.domain.window import from_seconds
from apps.clusters.selectors import report
from apps.clusters.services.names import Names
from apps.pending.domain.causes import Cause, Counts
from apps.pending.domain.episodes import Spell
from apps.pending.models import CauseSpell, Episode, Refreshed
from apps.pending.services.days import first_summed
from apps.pending.services.planning import Plan
from apps.pending.services.queue_due import mark_due

logger = logging.getLogger(__name__)

_AT_ONCE = 1000
LEASE = timedelta(seconds=60)

_KEYS = ["cluster", "kind", "uid", "since"]
_FIELDS = [
    *("name", "workload", "tier", "resource", "units", "gpu_equivalents", "counted", "counts"),
    *("queue", "priority", "bound_at", "until", "outcome", "again", "cause", "detail"),
    *("explanation", "message", "node_reasons", "context", "suggestions", "in_front"),
]
_SPELL_FIELDS = ["end", "cause", "detail", "message", "counts", "counted"]


class LeaseLost(Exception):
    """Another process refreshes the cluster meanwhile: what it writes holds."""


def claim(cluster_id: int, now: datetime) -> Refreshed | None:
    """Take the lease of a cluster until `LEASE` from now; None while another process has it."""
    with transaction.atomic():
        Refreshed.objects.get_or_create(cluster_id=cluster_id)
        row = Refreshed.objects.select_for_update().get(cluster_id=cluster_id)
        if row.lease_until is not None and row.lease_until > now:
            return None
        row.lease_until = now + LEASE
        row.save(update_fields=["lease_until"])
    return row


def release(held: Refreshed, **values: object) -> None:
    """Give the lease back and note how it went; nothing where another process took it over."""
    mine = Refreshed.objects.filter(pk=held.pk, lease_until=held.lease_until)
    mine.update(lease_until=None, **values)


def store(held: Refreshed, plans: Sequence[Plan]) -> None:
    """Write episodes and spells, each thousand in one transaction. Raises LeaseLost.

    The same plans twice leave the same rows, so a process that is killed in between does no harm.
    One that no database takes is logged and left out.
    """
    names = Names(held.cluster_id)
    owned = {plan.owned for plan in plans if plan.owned is not None}
    ids = names.workloads(owned) if owned else {}
    for start in range(0, len(plans), _AT_ONCE):
        part = plans[start : start + _AT_ONCE]
        for plan in part:
            if plan.owned is not None:
                plan.fields["workload_id"] = ids[plan.owned]
        try:
            _store(held, part)
        except (DataError, IntegrityError):
            for plan in part:
                _store_alone(held, plan)


def _store_alone(held: Refreshed, plan: Plan) -> None:
    try:
        _store(held, [plan])
    except (DataError, IntegrityError):
        kind, uid = plan.fields["kind"], plan.fields["uid"]
        logger.exception("the episode of %s %s is not written", kind, uid)


@transaction.atomic
def _store(held: Refreshed, plans: Sequence[Plan]) -> None:
    changed = [plan.changed for plan in plans if plan.changed is not None]
    keep(held, min((start for start, _ in changed), default=None))
    mark_due(held.cluster_id, changed)
    _write(held.cluster_id, plans)


def keep(held: Refreshed, touched: float | None) -> None:
    """Lock the lease, and have the days summed anew from when amounts change (Unix seconds).

    Within the transaction of what changes them. Raises LeaseLost.
    """
    row = Refreshed.objects.select_for_update().get(pk=held.pk)
    if row.lease_until != held.lease_until:
        raise LeaseLost
    if row.rolled_to is None or touched is None or from_seconds(touched) >= row.rolled_to:
        return
    changed = from_seconds(touched)
    if held.lease_until is not None:
        # Of days that are past the retention nothing is left but their sums.
        changed = max(changed, first_summed(held.lease_until - LEASE, report().zone))
    row.rolled_to = min(row.rolled_to, changed)
    row.save(update_fields=["rolled_to"])


def _write(cluster_id: int, plans: Sequence[Plan]) -> None:
    # Rows that are there are found by their key, so that new and known ones go together.
    rows = Episode.objects.bulk_create(
        [Episode(cluster_id=cluster_id, **plan.fields) for plan in plans],
        update_conflicts=True,
        unique_fields=_KEYS,
        update_fields=_FIELDS,
    )
    spells, gone = [], Q()
    for row, plan in zip(rows, plans, strict=True):
        spells += [_row(row.pk, spell) for spell in plan.changes.write]
        if plan.changes.delete:
            starts = [from_seconds(start) for start in plan.changes.delete]
            gone |= Q(episode_id=row.pk, start__in=starts)
    if gone:
        CauseSpell.objects.filter(gone).delete()
    CauseSpell.objects.bulk_create(
        spells,
        update_conflicts=True,
        unique_fields=["episode", "start"],
        update_fields=_SPELL_FIELDS,
    )


def _row(episode: int, spell: Spell) -> CauseSpell:
    return CauseSpell(
        episode_id=episode,
        start=from_seconds(spell.start),
        end=None if spell.end is None else from_seconds(spell.end),
        cause=spell.cause.value,
        detail=spell.detail,
        message=spell.message,
        counts=spell.counts.value,
        counted=spell.counted,
    )


def spell_of(row: CauseSpell) -> Spell:
    """Return a row as the domain speaks of it."""
    return Spell(
        start=row.start.timestamp(),
        cause=Cause(row.cause),
        counts=Counts(row.counts),
        counted=row.counted,
        detail=row.detail,
        message=row.message,
        end=None if row.end is None else row.end.timestamp(),
    )
