"""Rows of observed objects: few queries, short transactions, the same rows when repeated."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from apps.clusters.domain.observed.extract import setting_of
from apps.clusters.domain.observed.objects import BODIES, WITH_HISTORY, ObservedKind, ObservedObject
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import ObservedObject as ObservedObjectRow
from apps.clusters.services.pods.ledger_rows import upsert
from apps.clusters.services.pods.pod_store import lock_cluster
from gpuportal.database_functions import OneOfTexts, UnixSeconds

_COLUMNS = (
    *("kind", "uid", "namespace", "name", "text"),
    *("first_seconds", "changed_seconds", "gone_seconds"),
)
# By the value of the column: an enum looks a member up by a call for each row.
_READERS = {kind.value: (kind, msgspec.json.Decoder[Any](body)) for kind, body in BODIES.items()}

AT_ONCE = 500
# Times are floats in memory and microseconds in the database.
_INSTANT_SECONDS = 1e-3
_KEY = ("cluster_id", "kind", "uid", "first_at")
_FIELDS = ("namespace", "name", "changed_at", "gone_at", "body")
# (kind, uid) → rows of it, the oldest first.
_There = Mapping[tuple[str, str], Sequence[ObservedObjectRow]]


def observed_objects(
    cluster_id: int, kinds: Collection[ObservedKind], *, gone_since: datetime | None = None
) -> list[ObservedObject]:
    """Return the objects of these kinds that are there, by kind and uid. One query.

    `gone_since` also returns those that went (or were set anew) at that time or later.
    """
    return observed_in([cluster_id], kinds, gone_since=gone_since)[cluster_id]


def observed_in(
    clusters: Collection[int],
    kinds: Collection[ObservedKind],
    *,
    gone_since: datetime | None = None,
) -> dict[int, list[ObservedObject]]:
    """Return the same of each of these clusters. One query."""
    there = Q(gone_at__isnull=True)
    if gone_since is not None:
        there |= Q(gone_at__gte=gone_since)
    rows = ObservedObjectRow.objects.filter(
        there, cluster_id__in=clusters, kind__in=[kind.value for kind in kinds]
    ).order_by("kind", "uid", "first_at")
    values = rows.annotate(
        # As text, which msgspec decodes into structs without dictionaries in between.
        text=Cast("body", TextField()),
        first_seconds=UnixSeconds("first_at"),
        changed_seconds=UnixSeconds("changed_at"),
        gone_seconds=UnixSeconds("gone_at"),
    ).values_list("cluster_id", *_COLUMNS)
    found: dict[int, list[ObservedObject]] = {pk: [] for pk in clusters}
    for pk, kind, uid, namespace, name, text, *at in values.iterator():
        of, decoder = _READERS[kind]
        found[pk].append(ObservedObject(of, uid, namespace, name, decoder.decode(text), *at))
    return found


def write_objects(cluster_id: int, changed: Sequence[ObservedObject]) -> None:
    """Insert or update the rows of these, by (cluster, kind, uid, first seen).

    Three queries for each 500. What another process has written of the same objects meanwhile is
    taken up: of kinds without history there is one row for each object, and of the others no two
    settings reach into each other.
    """
    for start in range(0, len(changed), AT_ONCE):
        part = changed[start : start + AT_ONCE]
        # Two processes may watch one cluster, as when a new version takes over.
        with transaction.atomic():
            lock_cluster(cluster_id)
            there = _there(cluster_id, part)
            rows: dict[tuple[object, ...], ObservedObjectRow] = {}
            for one in sorted(part, key=lambda one: (one.kind.value, one.uid, one.first)):
                for row in _rows(cluster_id, one, there):
                    rows[row.kind, row.uid, row.first_at] = row
            upsert(
                ObservedObjectRow,
                [
                    {field: getattr(row, field) for field in (*_KEY, *_FIELDS)}
                    for row in rows.values()
                ],
                unique=_KEY,
                update=_FIELDS,
            )


def _there(cluster_id: int, part: Sequence[ObservedObject]) -> _There:
    found: dict[tuple[str, str], list[ObservedObjectRow]] = defaultdict(list)
    rows = ObservedObjectRow.objects.filter(
        OneOfTexts("uid", {one.uid for one in part}),
        cluster_id=cluster_id,
        kind__in={one.kind.value for one in part},
    ).order_by("kind", "uid", "first_at")
    # Only kinds with history compare what is there; the other bodies are replaced unread.
    if not any(one.kind in WITH_HISTORY for one in part):
        rows = rows.defer("body")
    for row in rows:
        found[row.kind, row.uid].append(row)
    return found


def _rows(cluster_id: int, one: ObservedObject, there: _There) -> list[ObservedObjectRow]:
    known = there.get((one.kind.value, one.uid), ())
    ours = _row(cluster_id, one)
    if one.kind not in WITH_HISTORY:
        # Another process may have begun the row at a moment of its own: an object has one row.
        if known:
            ours.first_at = known[-1].first_at
            ours.gone_at = None if ours.gone_at is None else max(ours.gone_at, ours.first_at)
        return [ours]
    same = next((row for row in known if _is_same(row, ours, one)), None)
    if same is not None:
        ours.first_at = same.first_at
    later = [row.first_at for row in known if row.first_at > ours.first_at]
    ends = [at for at in (ours.gone_at, *later) if at is not None]
    ours.gone_at = max(min(ends), ours.first_at) if ends else None
    before = [row for row in known if row.first_at < ours.first_at and row.gone_at is None]
    for row in before:
        row.gone_at = ours.first_at
    return [*before, ours]


def _is_same(row: ObservedObjectRow, ours: ObservedObjectRow, one: ObservedObject) -> bool:
    """Say whether a row is of this setting: of its time, or set alike at a time of it."""
    if abs((row.first_at - ours.first_at).total_seconds()) < _INSTANT_SECONDS:
        return True
    if row.gone_at is not None and row.gone_at <= ours.first_at:
        return False
    if ours.gone_at is not None and ours.gone_at <= row.first_at:
        return False
    body = msgspec.convert(row.body, BODIES[one.kind])
    return setting_of(body) == setting_of(one.body)


def _row(cluster_id: int, one: ObservedObject) -> ObservedObjectRow:
    return ObservedObjectRow(
        cluster_id=cluster_id,
        kind=one.kind.value,
        uid=one.uid,
        namespace=one.namespace,
        name=one.name,
        first_at=from_seconds(one.first),
        changed_at=from_seconds(one.changed),
        gone_at=None if one.gone is None else from_seconds(one.gone),
        body=msgspec.to_builtins(one.body),
    )
