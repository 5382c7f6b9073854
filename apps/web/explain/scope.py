"""What a figure is of, as an address names it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from django.http import QueryDict

from apps.usage.domain.rows import Filters, Grouping
from apps.web.components.filtering import LABELS
from apps.web.components.links import SCOPES, Query, explain_href, href
from apps.web.query_session import QuerySession

_LABELS = {
    "cluster": "cluster",
    "tier": "tier",
    "team": "team",
    "namespace": "namespace",
    "workload": "workload",
    "pod": "pod",
    "gpu_model": "GPU model",
    "capacity_type": "capacity type",
}


@dataclass(frozen=True, slots=True)
class Named:
    """A part of a scope in words, and its page where it has one."""

    label: str
    name: str
    href: str | None


@dataclass(frozen=True, slots=True)
class FigureScope:
    """Names by the keys of SCOPES, as far as given; a workload reads `Kind/name`."""

    names: Mapping[str, str]

    def __getitem__(self, key: str) -> str:
        return self.names.get(key, "")

    @property
    def is_detailed(self) -> bool:
        """Whether it is finer than a team, so that only who sees the team may read it."""
        return bool(self["namespace"] or self["workload"] or self["pod"])

    @property
    def has_capacity(self) -> bool:
        """Whether nodes are its own: teams and what they run have none."""
        return not (self["team"] or self.is_detailed)

    def filters(self, reading: QuerySession) -> Filters:
        """Return the filters of facts; a pod is not among them."""
        kept = {g.value for g in Grouping if g.value in self.names and g is not Grouping.CLUSTER}
        return replace(reading.filters, **{key: (self.names[key],) for key in kept})

    def href(self, figure: str, query: Query, **more: str) -> str:
        """Return where a figure of this scope, narrowed by `more`, is explained."""
        return explain_href(figure, query, **{**self.names, **more})

    def parts(self, query: Query, *, pod_name: str = "") -> list[Named]:
        """Return the scope in words, the widest first, with the pages of its parts."""
        shown = {**self.names, "pod": pod_name} if pod_name else self.names
        return [
            Named(_LABELS[key], shown[key], self._page(key, query))
            for key in SCOPES
            if key in shown
        ]

    def _page(self, key: str, query: Query) -> str | None:
        if key in {"tier", "team"}:
            return href(key, query, name=self[key])
        if key == "pod":
            return href("pod", query, cluster=self["cluster"], uid=self["pod"])
        if key == "workload" and self["cluster"] and self["namespace"]:
            kind, _, name = self["workload"].partition("/")
            place = {"cluster": self["cluster"], "namespace": self["namespace"]}
            return href("workload", query, **place, kind=kind, name=name)
        return None


def several(params: QueryDict) -> list[str]:
    """Return the keys under which an address has several names.

    These are filters that the reader chose; one name alone is what a figure is of.
    """
    return [key for key in LABELS if len({name for name in params.getlist(key) if name}) > 1]


def scope_from(params: QueryDict) -> FigureScope | None:
    """Return what an address names; None where a name cannot be one."""
    chosen = several(params)
    given = {key: params.get(key, "") for key in SCOPES if key not in chosen}
    if any("\0" in name for name in given.values()):
        return None  # PostgreSQL refuses to compare with it
    return FigureScope({key: name for key, name in given.items() if name})
