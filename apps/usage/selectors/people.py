"""What persons hold, use and have pending, where the portal keeps who is behind pods.

Each read takes the persons and the visibility: pods of teams that the reader does not see in detail
are left out, whomever they name.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Q
from msgspec import Struct

from apps.accounts.domain.rows import row_from
from apps.accounts.models import User
from apps.accounts.permissions import Visibility, visibility_of_led
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.domain.window import Window
from apps.clusters.models import ObservedPerson, Pod
from apps.clusters.selectors import people_of, team_spans
from apps.usage.domain.amounts import SECONDS_PER_HOUR, Amounts, nano
from apps.usage.domain.usage_query import Filters
from apps.usage.models import PodHour
from apps.usage.selectors.fact_tables import amounts_of, sums_of
from apps.usage.selectors.pods import PodScope, lived, narrowed

People = Collection[str] | None
"""Persons as pods name them; None: all of them."""
_GROUPS = (
    *("pod__behind__person", "cluster__name", "namespace__name", "workload__kind"),
    *("workload__name", "team__name", "tier__name"),
)
_COLUMNS = (
    *("behind__person", "workload_id", "cluster_id", "cluster__name"),
    *("workload__namespace__name", "workload__kind", "workload__name", "tier__name", "queue"),
    *("units", "gpu_equivalents", "created_at", "bound_at", "started_at", "ended_at"),
)


class PersonWorkload(NamedTuple):
    """A workload of a person on a tier; `workload` reads `Kind/name`."""

    person: str
    cluster: str
    namespace: str
    workload: str
    team: str
    tier: str


class PersonPod(Struct, frozen=True):
    """A pod of a person: what it requests, and its times as far as they have come."""

    key: PersonWorkload
    workload_id: int
    cluster_id: int
    queue: str
    units: float
    gpus: float
    created_at: datetime
    bound_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None

    def waited(self, window: Window, now: datetime) -> int:
        """Return the nano-GPU-hours of the window up to now for which it was there and not bound.

        A window may reach ahead: in hours to come nothing is pending yet.
        """
        # What never was bound and ended was pending until its end.
        ends = [at for at in (self.bound_at, self.ended_at, window.end, now) if at is not None]
        seconds = (min(ends) - max(self.created_at, window.start)).total_seconds()
        return nano(max(0.0, seconds) / SECONDS_PER_HOUR * self.gpus)


def person_work(
    window: Window, *, people: People, visibility: Visibility
) -> dict[PersonWorkload, Amounts]:
    """Return what these persons held in the kept hours of a window, by workload. One query."""
    facts = PodHour.objects.filter(
        _named("pod__behind__person", people), hour__gte=window.start, hour__lt=window.end
    )
    # By the team of the fact, which is the one that had the namespace in that hour.
    if not visibility.everything:
        facts = facts.filter(team_id__in=sorted(visibility.team_ids))
    sums = sums_of(capacity=False)
    rows = facts.order_by().values(*_GROUPS).annotate(**sums).values_list(*_GROUPS, *sums)
    found = {}
    for person, cluster, namespace, kind, name, team, tier, *values in rows:
        key = PersonWorkload(person, cluster, namespace, f"{kind}/{name}", team, tier)
        found[key] = amounts_of(values)
    return found


def person_pods(window: Window, *, people: People, visibility: Visibility) -> list[PersonPod]:
    """Return the pods of these persons that lived within a window, oldest first.

    Of active clusters. Four queries at most.
    """
    scope = PodScope(window, Filters(), visibility)
    pods = Pod.objects.filter(
        _named("behind__person", people), lived(window), scope.condition(), cluster__active=True
    )
    rows = list(pods.order_by("created_at", "pk").values_list(*_COLUMNS, named=True))
    spans = team_spans(window, {row.workload__namespace__name for row in rows}) if rows else {}
    found = []
    for row in rows:
        team = scope.team_of(spans[row.workload__namespace__name], row)
        # A namespace may have changed hands: then the pod is of a team that is not seen.
        if team is not None:
            found.append(_pod(row, team))
    return found


def _pod(row: Any, team: str) -> PersonPod:
    return row_from(
        PersonPod,
        row,
        key=PersonWorkload(
            row.behind__person,
            row.cluster__name,
            row.workload__namespace__name,
            f"{row.workload__kind}/{row.workload__name}",
            team,
            row.tier__name or UNDETERMINED,
        ),
        gpus=row.gpu_equivalents,
    )


def run_by(
    reader: User, window: Window, *, filters: Filters, visibility: Visibility, uid: str = ""
) -> list[str]:
    """Return the persons that pods of a window name, as far as this reader may know them.

    Of the pods that `filters` name, or of the pod or object with this uid: a suspended Job names
    its person before it has a pod. Who reads learns of themselves, and leads of their teams'
    persons; administrators, finance and other members learn of no user. Sorted. Fifteen queries at
    most; none, and no user, where the portal does not keep who is behind pods.
    """
    if settings.PEOPLE is None:
        return []
    found: set[str] = set()
    own, led = people_of(reader), visibility_of_led(reader)
    if own:
        found |= _behind(PodScope(window, filters, visibility), filters, own, uid)
    # By their own teams and not by what they see: who leads one team may see all of them.
    if led.team_ids:
        found |= _behind(PodScope(window, filters, led), filters, None, uid)
    return sorted(found)


def _behind(scope: PodScope, filters: Filters, people: People, uid: str) -> set[str]:
    pods = Pod.objects.filter(
        *(_named("behind__person", people), lived(scope.window), narrowed(filters)),
        *(scope.condition(), Q(uid=uid) if uid else Q()),
        cluster__active=True,
    )
    # A Job has thousands of pods of one person: the database is to name that one once.
    found = set(pods.order_by().values_list("behind__person", flat=True).distinct())
    return found | _behind_object(scope, people, uid) if uid else found


def _behind_object(scope: PodScope, people: People, uid: str) -> set[str]:
    rows = ObservedPerson.objects.filter(
        _named("person", people),
        object__uid=uid,
        object__cluster__name__in=scope.clusters,
        object__cluster__active=True,
    )
    named = list(rows.order_by().values_list("person", "object__namespace").distinct())
    spans = team_spans(scope.window, {namespace for _, namespace in named}) if named else {}
    return {
        person
        for person, namespace in named
        if scope.teams is None or any(span.team_id in scope.teams for span in spans[namespace])
    }


def _named(path: str, people: People) -> Q:
    return Q(**{f"{path}__isnull": False}) if people is None else Q(**{f"{path}__in": people})
