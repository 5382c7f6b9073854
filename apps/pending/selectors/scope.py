"""Scope of a read: visible namespaces, the teams they belong to, and filters."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import cached_property

from django.db.models import Q, QuerySet
from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import UNASSIGNED, UNDETERMINED
from apps.clusters.domain.window import Window
from apps.clusters.models import Namespace
from apps.clusters.selectors import TeamSpan, team_spans
from apps.pending.selectors.freshness import Freshness, freshness
from apps.pending.selectors.rows import PendingFilters
from gpuportal.queries import BatchQuery

INSTANT = timedelta(seconds=1)
ALL_PENDING = PendingFilters()


class ClusterNamespace(Struct, frozen=True):
    """A namespace of a cluster, and whether that is still active."""

    cluster: str
    name: str
    active: bool


class OwnedNamespace(Struct, frozen=True):
    """A namespace and whose it is at a moment."""

    cluster: str
    name: str
    team_id: int
    team: str


def _namespaces() -> QuerySet[Namespace, tuple[int, str, str, bool]]:
    rows = Namespace.objects.order_by("pk")
    return rows.values_list("pk", "cluster__name", "name", "cluster__active")


NAMESPACES = BatchQuery(_namespaces)


class NamespaceContext:
    """Namespaces and whose they were throughout a window; give one to all selectors of a page.

    `spaces` are by id, `spans` by name, as `team_spans` gives them. Three queries when made.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.spaces = {pk: ClusterNamespace(*values) for pk, *values in NAMESPACES.rows()}
        self.spans = team_spans(window, {space.name for space in self.spaces.values()})
        self._owned: dict[datetime, dict[int, OwnedNamespace]] = {}
        self._fresh: dict[datetime, dict[int, Freshness]] = {}

    @classmethod
    def at(cls, at: datetime) -> "NamespaceContext":
        """Return the context of one moment."""
        return cls(Window(at, at + INSTANT))

    @classmethod
    def over(cls, window: Window, *, now: datetime) -> "NamespaceContext":
        """Return the context of a page that shows a window and what is now."""
        return cls(Window(min(window.start, now), max(window.end, now + INSTANT)))

    def owned(self, at: datetime) -> dict[int, OwnedNamespace]:
        """Return by id the namespaces of active clusters as they were owned at a moment.

        Raises ValueError for a moment outside of the window.
        """
        if not self.window.start <= at < self.window.end:
            raise ValueError(f"{at} is not within {self.window}")
        if at not in self._owned:
            self._owned[at] = self._owned_at(at)
        return self._owned[at]

    def _owned_at(self, at: datetime) -> dict[int, OwnedNamespace]:
        holding = {
            # Spans of a name cover the whole window, so there always is one.
            name: next(span for span in spans if span.start <= at < span.end)
            for name, spans in self.spans.items()
        }
        return {
            pk: _owned_spans(space, holding[space.name])
            for pk, space in self.spaces.items()
            # Namespaces of retired clusters stay in the history, but belong to no view of now.
            if space.active
        }

    def freshness(self, at: datetime) -> dict[int, Freshness]:
        """Return the freshness of pending data, as `freshness` does; one query for each moment."""
        if at not in self._fresh:
            self._fresh[at] = freshness(at)
        return self._fresh[at]


def _owned_spans(space: ClusterNamespace, span: TeamSpan) -> OwnedNamespace:
    return OwnedNamespace(space.cluster, space.name, span.team_id, span.team or UNASSIGNED)


class PendingScope:
    """The namespaces of active clusters, whose they are at a moment, and which may be read.

    Three queries, when it is first asked for a namespace; none where a context is given.
    """

    def __init__(
        self,
        at: datetime,
        filters: PendingFilters,
        visibility: Visibility,
        context: NamespaceContext | None = None,
    ) -> None:
        self.at = at
        self.filters = filters
        self.visibility = visibility
        self._given = context

    @cached_property
    def context(self) -> NamespaceContext:
        return self._given or NamespaceContext.at(self.at)

    @cached_property
    def namespaces(self) -> Mapping[int, OwnedNamespace]:
        return self.context.owned(self.at)

    @cached_property
    def freshness(self) -> Mapping[int, Freshness]:
        """The freshness of pending data by id of active clusters. One query, or the context's."""
        # Without a context none is made: whose the namespaces are says nothing of it.
        return self._given.freshness(self.at) if self._given else freshness(self.at)

    def team_of(self, namespace_id: int) -> str:
        owned = self.namespaces.get(namespace_id)
        return UNASSIGNED if owned is None else owned.team

    def seen(self, namespace_id: int) -> bool:
        """Say whether the reader may see what is in a namespace."""
        if self.visibility.everything:
            return True
        owned = self.namespaces.get(namespace_id)
        return owned is not None and self.visibility.sees(owned.team_id)

    @cached_property
    def seen_names(self) -> frozenset[tuple[str, str]]:
        """The namespaces that the reader may see into, each by its cluster and its name."""
        return frozenset(
            (owned.cluster, owned.name) for pk, owned in self.namespaces.items() if self.seen(pk)
        )

    def condition(self, *, details: bool = True, causes: bool = True) -> Q:
        """Return what rows must meet that have the columns of an episode.

        `details`: only what the reader may see in detail; without `causes` those of all causes.
        Reads namespaces only where the reader, or a filter on teams or namespaces, is narrowed.
        """
        asked = self.filters
        where = Q(cluster__active=True)
        if asked.cluster:
            where &= Q(cluster__name__in=asked.cluster)
        if asked.cause and causes:
            where &= Q(cause__in=asked.cause)
        if asked.kind:
            where &= Q(kind__in=asked.kind)
        if asked.text:
            where &= Q(name__icontains=asked.text) | Q(workload__name__icontains=asked.text)
        if asked.workload_ids is not None:
            where &= Q(workload_id__in=sorted(asked.workload_ids))
        where &= tier_condition(asked.tier)
        spaces = self._spaces(details=details)
        if spaces is not None:
            where &= Q(workload__namespace_id__in=spaces)
        return where

    def _spaces(self, *, details: bool) -> list[int] | None:
        """Return the namespaces that may be read; None where nothing narrows them."""
        narrowed = details and not self.visibility.everything
        # No condition at all is faster than one that names every namespace.
        if not (narrowed or self.filters.team or self.filters.namespace):
            return None
        return [
            pk
            for pk, owned in self.namespaces.items()
            if (not narrowed or self.visibility.sees(owned.team_id))
            and _among(owned.team, self.filters.team)
            and _among(owned.name, self.filters.namespace)
        ]


def seen_namespaces(at: datetime, visibility: Visibility) -> dict[tuple[str, str], str]:
    """Return the team by cluster and name of each namespace that a reader may see into.

    Of active clusters, in no order. Three queries.
    """
    scope = PendingScope(at, ALL_PENDING, visibility)
    return {
        (owned.cluster, owned.name): owned.team
        for pk, owned in scope.namespaces.items()
        if scope.seen(pk)
    }


def tier_condition(tiers: Collection[str], path: str = "") -> Q:
    """Return the condition of being in one of these tiers; `undetermined` also means in none."""
    if not tiers:
        return Q()
    where = Q(**{f"{path}tier__name__in": list(tiers)})
    if UNDETERMINED in tiers:
        # A deleted tier leaves null behind; on pages both are `undetermined`.
        where |= Q(**{f"{path}tier__isnull": True})
    return where


def _among(name: str, asked: Collection[str]) -> bool:
    return not asked or name in asked
