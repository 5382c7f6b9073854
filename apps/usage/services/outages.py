"""Planned outages: announced and canceled by who runs the clusters, and taken out of each hour."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from msgspec import Struct

from apps.accounts import services as accounts
from apps.accounts.domain.identity import ActingParty
from apps.accounts.domain.structs import replace
from apps.accounts.models import User
from apps.accounts.permissions import check_administer
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Node
from apps.usage.domain.attribution.attribute_hour import HourFacts, NodeFact
from apps.usage.domain.outages import NodeRest, OutageSpan, outage_part, without_part
from apps.usage.models import OutageHour, PlannedOutage
from apps.usage.services.facts import Dimensions, insert, instant

LONGEST = timedelta(days=31)
LONGEST_PURPOSE = 200
MOST_AT_ONCE = 500
_COLUMNS = (
    *("hour", "node_id", "cluster_id", "tier_id", "gpu_model_id", "capacity_type"),
    *("unhealthy", "unallocated", "first"),
)

_OutageValues = tuple[object, ...]
"""The values of `_COLUMNS` of a row of OutageHour."""


class OutageRefused(ValueError):
    """It cannot be announced or canceled so; the text says why, for a person."""


class OutageInput(Struct, frozen=True):
    """A node that will be away from `start` to `end`, and what for."""

    cluster: str
    node: str
    start: datetime
    end: datetime
    purpose: str


def plan_outages(
    user: User, asked: Sequence[OutageInput], *, now: datetime, origin: str = ""
) -> int:
    """Announce outages, each with its audit entry; return how many are new. All of them or none.

    One of the same node and times that is announced already is left as it is. Nothing of a cluster
    is changed. `origin` is where the person acts from. Raises NotAllowed and OutageRefused.
    """
    check_administer(user)
    if not asked:
        raise OutageRefused("Nothing is announced: no step is still to come.")
    if len(asked) > MOST_AT_ONCE:
        raise OutageRefused(f"At most {MOST_AT_ONCE} outages are announced at once.")
    clusters = {row.name: row for row in Cluster.objects.filter(active=True).order_by("pk")}
    asked = [replace(one, purpose=_one_line(one.purpose)) for one in asked]
    for one in asked:
        _check(one, clusters, now)
    made = 0
    with transaction.atomic():
        # Two presses at once would both find none that is announced: one blocks until the other
        # ends.
        of = {clusters[one.cluster].pk for one in asked}
        list(Cluster.objects.select_for_update(no_key=True).filter(pk__in=of).order_by("pk"))
        for one in asked:
            own = {"cluster": clusters[one.cluster], "node_name": one.node, "canceled": False}
            # A second press of the button announces nothing twice.
            if PlannedOutage.objects.filter(**own, start=one.start, end=one.end).exists():
                continue
            row = PlannedOutage.objects.create(
                **own,
                start=one.start,
                end=one.end,
                purpose=one.purpose,
                author=user.username,
                created_at=now,
            )
            by = ActingParty(user.username, origin)
            accounts.record(by, "plan_outage", _subject(row), at=now, after=_of_audit(row))
            made += 1
    return made


def _one_line(text: str) -> str:
    """Return a text without breaks, which tables and lists of one line do not have."""
    return " ".join(text.split())


def _subject(row: PlannedOutage) -> str:
    return f"outage/{row.pk}"


def _of_audit(row: PlannedOutage) -> dict[str, str]:
    return {
        "cluster": row.cluster.name,
        "node": row.node_name,
        "start": row.start.isoformat(),
        "end": row.end.isoformat(),
        "purpose": row.purpose,
    }


def _check(asked: OutageInput, clusters: Mapping[str, Cluster], now: datetime) -> None:
    cluster = clusters.get(asked.cluster)
    # No database stores NUL, and PostgreSQL refuses to be asked for it.
    is_name = cluster is not None and "\0" not in asked.node
    if not is_name or not Node.objects.filter(cluster=cluster, name=asked.node).exists():
        raise OutageRefused(f"There is no node {asked.node[:253]} in {asked.cluster[:253]}.")
    # Announced afterwards, any failure could be called planned and taken out of waste.
    if asked.start < now:
        raise OutageRefused(f"The outage of {asked.node} begins in the past: plan it beforehand.")
    if not asked.start < asked.end <= asked.start + LONGEST:
        raise OutageRefused(
            f"The outage of {asked.node} ends after it begins, and lasts {LONGEST.days} days at "
            "most."
        )
    if not asked.purpose.isprintable() or not 0 < len(asked.purpose) <= LONGEST_PURPOSE:
        raise OutageRefused(f"Say what the outage is for, in {LONGEST_PURPOSE} characters at most.")


def cancel_outage(user: User, pk: int, *, now: datetime, origin: str = "") -> None:
    """Cancel an outage that has not begun, or end one that goes on now; with its audit entry.

    What it took until now stays planned. Raises NotAllowed and OutageRefused.
    """
    check_administer(user)
    with transaction.atomic():
        rows = PlannedOutage.objects.select_for_update(of=("self",)).select_related("cluster")
        row = rows.filter(pk=pk, canceled=False).first()
        if row is None or row.end <= now:
            raise OutageRefused("There is no such outage that is planned or goes on.")
        by, before = ActingParty(user.username, origin), _of_audit(row)
        if row.start >= now:
            row.canceled = True
            accounts.record(by, "cancel_outage", _subject(row), at=now, before=before)
        else:
            row.end = now
            after = _of_audit(row)
            accounts.record(by, "end_outage", _subject(row), at=now, before=before, after=after)
        row.save(update_fields=["canceled", "end"])


def without_outages(
    hour: Window, facts: HourFacts, dimensions: Dimensions
) -> tuple[HourFacts, list[_OutageValues]]:
    """Return the facts with what planned outages took as a part of its own, and its rows.

    `facts` stay as they are. One query.
    """
    spans: dict[str, list[OutageSpan]] = defaultdict(list)
    rows = PlannedOutage.objects.filter(
        cluster_id=dimensions.cluster, canceled=False, start__lt=hour.end, end__gt=hour.start
    )
    for node, start, end in rows.order_by("start", "pk").values_list("node_name", "start", "end"):
        spans[node].append(OutageSpan(start.timestamp(), end.timestamp()))
    nodes, found = [], []
    for node, gpu_class, amounts in facts.nodes:
        rest = NodeRest(
            amounts.capacity or 0,
            amounts.unhealthy or 0,
            amounts.unallocated or 0,
            facts.first_free.get((node, gpu_class), 0),
        )
        part = outage_part(rest, spans.get(node, ()), hour.start_seconds)
        # Most hours of most nodes have none: rows of zeros would be as many as those of nodes.
        if part.unhealthy or part.unallocated:
            kind = dimensions.kind(gpu_class)
            found.append((instant(hour.start), dimensions.nodes[node], *kind, *part))
            amounts = without_part(amounts, part)
        nodes.append(NodeFact(node, gpu_class, amounts))
    return (replace(facts, nodes=nodes), found) if found else (facts, [])


def write_outages(rows: Sequence[_OutageValues]) -> None:
    """Write what planned outages took of an hour; must run in the transaction of its facts.

    After these: they replace what there was of the hour.
    """
    if rows:
        insert(OutageHour, _COLUMNS, rows)
