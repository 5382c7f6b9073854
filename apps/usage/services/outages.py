"""Planned outages: announced and canceled by who runs the clusters, and taken out of each hour."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.permissions import check_administer
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Node
from apps.usage.domain.attribution.attribute_hour import HourFacts
from apps.usage.domain.outages import OutageSpan, outage_part
from apps.usage.models import OutageHour, PlannedOutage
from apps.usage.services.facts import Dimensions, insert, instant

LONGEST = timedelta(days=31)
LONGEST_PURPOSE = 200
MOST_AT_ONCE = 500
_COLUMNS = (
    *("hour", "node_id", "cluster_id", "tier_id", "gpu_model_id", "capacity_type"),
    *("unhealthy", "unallocated", "first"),
)


class OutageRefused(ValueError):
    """It cannot be announced or canceled so; the text says why, for a person."""


@dataclass(frozen=True, slots=True)
class OutageInput:
    """A node that will be away from `start` to `end`, and what for."""

    cluster: str
    node: str
    start: datetime
    end: datetime
    purpose: str


def plan_outages(user: User, asked: Sequence[OutageInput], *, now: datetime) -> int:
    """Announce outages; return how many are new. All of them or none.

    One of the same node and times that is announced already is left as it is. Nothing of a cluster
    is changed. Raises NotAllowed and OutageRefused.
    """
    check_administer(user)
    if not asked:
        raise OutageRefused("Nothing is announced: no step is still to come.")
    if len(asked) > MOST_AT_ONCE:
        raise OutageRefused(f"At most {MOST_AT_ONCE} outages are announced at once.")
    clusters = {row.name: row for row in Cluster.objects.filter(active=True).order_by("pk")}
    for one in asked:
        _check(one, clusters, now)
    made = 0
    with transaction.atomic():
        for one in asked:
            own = {"cluster": clusters[one.cluster], "node_name": one.node, "canceled": False}
            # A second press of the button announces nothing twice.
            if PlannedOutage.objects.filter(**own, start=one.start, end=one.end).exists():
                continue
            PlannedOutage.objects.create(
                **own,
                start=one.start,
                end=one.end,
                purpose=one.purpose.strip(),
                author=user.username,
                created_at=now,
            )
            made += 1
    return made


def _check(asked: OutageInput, clusters: Mapping[str, Cluster], now: datetime) -> None:
    cluster = clusters.get(asked.cluster)
    if cluster is None or not Node.objects.filter(cluster=cluster, name=asked.node).exists():
        raise OutageRefused(f"There is no node {asked.node[:253]} in {asked.cluster[:253]}.")
    # Announced afterwards, any failure could be called planned: fairness and waste were told.
    if asked.start < now:
        raise OutageRefused(f"The outage of {asked.node} begins in the past: plan it beforehand.")
    if not asked.start < asked.end <= asked.start + LONGEST:
        raise OutageRefused(
            f"The outage of {asked.node} ends after it begins, and lasts {LONGEST.days} days at "
            "most."
        )
    purpose = asked.purpose.strip()
    if not purpose or len(purpose) > LONGEST_PURPOSE or "\0" in purpose:
        raise OutageRefused(f"Say what the outage is for, in {LONGEST_PURPOSE} characters at most.")


def cancel_outage(user: User, pk: int, *, now: datetime) -> None:
    """Cancel an outage that has not begun, or end one that goes on now.

    What it took until now stays planned. Raises NotAllowed and OutageRefused.
    """
    check_administer(user)
    with transaction.atomic():
        row = PlannedOutage.objects.select_for_update().filter(pk=pk, canceled=False).first()
        if row is None or row.end <= now:
            raise OutageRefused("There is no such outage that is planned or goes on.")
        if row.start >= now:
            row.canceled = True
        else:
            row.end = now
        row.save(update_fields=["canceled", "end"])


def write_outages(hour: Window, facts: HourFacts, dimensions: Dimensions) -> None:
    """Write what planned outages took of an hour; must run in the transaction of its facts.

    One query, and one more where an outage of the cluster lies in the hour.
    """
    spans: dict[str, list[OutageSpan]] = defaultdict(list)
    rows = PlannedOutage.objects.filter(
        cluster_id=dimensions.cluster, canceled=False, start__lt=hour.end, end__gt=hour.start
    )
    for node, start, end in rows.order_by("start", "pk").values_list("node_name", "start", "end"):
        spans[node].append(OutageSpan(start.timestamp(), end.timestamp()))
    found = []
    for node, card, amounts in facts.nodes:
        held = (amounts.capacity or 0, amounts.unhealthy or 0, amounts.unallocated or 0)
        part = outage_part(*held, spans.get(node, ()), hour.start_seconds)
        # Most hours of most nodes have none: rows of zeros would be as many as those of nodes.
        if part.unhealthy or part.unallocated:
            kind = dimensions.kind(card)
            found.append((instant(hour.start), dimensions.nodes[node], *kind, *part))
    if found:
        insert(OutageHour, _COLUMNS, found)
