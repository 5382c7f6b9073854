"""Reading observed objects back as the dataclasses they were written from."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from apps.clusters.domain.observed.objects import BODIES, ObservedKind, ObservedObject
from apps.clusters.models import ObservedObject as ObservedObjectRow
from apps.clusters.models.sql import UnixSeconds

_COLUMNS = (
    *("kind", "uid", "namespace", "name", "text"),
    *("first_seconds", "changed_seconds", "gone_seconds"),
)
_DECODERS: dict[ObservedKind, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(body) for kind, body in BODIES.items()
}


def observed_objects(
    cluster_id: int, kinds: Collection[ObservedKind], *, gone_since: datetime | None = None
) -> list[ObservedObject]:
    """Return the objects of these kinds that are there, by kind and uid. One query.

    `gone_since` also returns those that went (or were set anew) at that time or later.
    """
    there = Q(gone_at__isnull=True)
    if gone_since is not None:
        there |= Q(gone_at__gte=gone_since)
    rows = ObservedObjectRow.objects.filter(
        there, cluster_id=cluster_id, kind__in=[kind.value for kind in kinds]
    ).order_by("kind", "uid", "first_at")
    values = rows.annotate(
        text=Cast("body", TextField()),
        first_seconds=UnixSeconds("first_at"),
        changed_seconds=UnixSeconds("changed_at"),
        gone_seconds=UnixSeconds("gone_at"),
    ).values_list(*_COLUMNS)
    return [
        ObservedObject(
            of := ObservedKind(kind), uid, namespace, name, _DECODERS[of].decode(text), *at
        )
        for kind, uid, namespace, name, text, *at in values.iterator()
    ]
