"""Whose waiting is read: namespaces, the teams they belong to, and what filters ask."""

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cached_property

from django.db.models import Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import UNASSIGNED, UNDETERMINED
from apps.pending.selectors.context import Context, Owned
from apps.pending.selectors.freshness import Freshness
from apps.pending.selectors.rows import PendingFilters

EVERYTHING_WAITING = PendingFilters()


class PendingScope:
    """The namespaces of active clusters, whose they are at a moment, and which may be read.

    Three queries, when it is first asked for a namespace; none where a context is given.
    """

    def __init__(
        self,
        at: datetime,
        filters: PendingFilters,
        visibility: Visibility,
        context: Context | None = None,
    ) -> None:
        self.at = at
        self.filters = filters
        self.visibility = visibility
        self._given = context

    @cached_property
    def context(self) -> Context:
        return self._given or Context.at(self.at)

    @cached_property
    def namespaces(self) -> Mapping[int, Owned]:
        return self.context.owned(self.at)

    def freshness(self) -> Mapping[int, Freshness]:
        """Return how fresh waiting is, by id of active clusters. One query, or the context's."""
        return self.context.freshness(self.at)

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

    def condition(self, *, details: bool = True) -> Q:
        """Return what rows must meet that have the columns of an episode.

        `details`: only what the reader may see in detail. Asks for namespaces only where the
        reader, or a filter on teams or namespaces, is narrowed to some.
        """
        asked = self.filters
        where = Q(cluster__active=True)
        if asked.cluster:
            where &= Q(cluster__name__in=asked.cluster)
        if asked.cause:
            where &= Q(cause__in=asked.cause)
        if asked.kind:
            where &= Q(kind__in=asked.kind)
        where &= tier_condition(asked.tier)
        spaces = self._spaces(details=details)
        if spaces is not None:
            where &= Q(workload__namespace_id__in=spaces)
        return where

    def _spaces(self, *, details: bool) -> list[int] | None:
        """Return the namespaces that may be read; None where nothing narrows them."""
        narrowed = details and not self.visibility.everything
        if not (narrowed or self.filters.team or self.filters.namespace):
            return None
        return [
            pk
            for pk, owned in self.namespaces.items()
            if (not narrowed or self.visibility.sees(owned.team_id))
            and _among(owned.team, self.filters.team)
            and _among(owned.name, self.filters.namespace)
        ]


def tier_condition(tiers: Collection[str], path: str = "") -> Q:
    """Return the condition of being in one of these tiers; `undetermined` also means in none."""
    if not tiers:
        return Q()
    where = Q(**{f"{path}tier__name__in": list(tiers)})
    if UNDETERMINED in tiers:
        where |= Q(**{f"{path}tier__isnull": True})
    return where


def _among(name: str, asked: Collection[str]) -> bool:
    return not asked or name in asked
