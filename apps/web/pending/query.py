"""What the address of the waiting page asks beside window and filters: causes, kinds, order."""

import re
from dataclasses import dataclass

from django.http import QueryDict

from apps.pending.selectors import PendingFilters, PendingOrder
from apps.web import forms
from apps.web.components.links import Query
from apps.web.pending.causes import NAMES
from apps.web.query_session import QuerySession

KINDS = (
    *("Pod", "Job", "ReplicaSet", "StatefulSet", "Workload", "PodGroup", "ResourceClaim"),
    *("Deployment", "DaemonSet"),
)
"""Kinds to choose from; a custom controller's can be written into the address."""
TAKES = ("tier", "team", "namespace")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}", re.ASCII)
_MOST_KINDS = 20


@dataclass(frozen=True, slots=True)
class PendingPageQuery:
    """`query` reproduces what is asked here, for links; `problem` says what makes no sense."""

    causes: tuple[str, ...]
    kinds: tuple[str, ...]
    order: PendingOrder
    query: Query
    problem: str

    @property
    def narrows(self) -> bool:
        return bool(self.causes or self.kinds)

    def without(self, *keys: str) -> list[tuple[str, str]]:
        """Return the query without some of its keys."""
        return [pair for pair in self.query if pair[0] not in keys]

    def filters(self, reading: QuerySession, *, every: bool = False) -> PendingFilters:
        """Return the filters of a selector; of `every` cause where the sums are asked."""
        own = reading.filters
        return PendingFilters(
            cluster=own.cluster,
            team=own.team,
            tier=own.tier,
            namespace=own.namespace,
            cause=() if every else self.causes,
            kind=self.kinds,
        )


def asked_of(params: QueryDict) -> PendingPageQuery:
    """Return what an address asks; what is not understood narrows nothing and is told."""
    causes, problem = forms.names_from(params, "cause", NAMES)
    written = [text.strip() for text in params.getlist("kind") if text.strip()][:_MOST_KINDS]
    kinds = tuple(dict.fromkeys(text for text in written if _KIND.fullmatch(text)))
    strange = [text for text in written if not _KIND.fullmatch(text)]
    orders, unknown = forms.names_from(params, "order", tuple(PendingOrder))
    problems = [
        problem,
        f"“{strange[0][:80]}” is no kind of Kubernetes such as Pod or Job." if strange else "",
        unknown,
    ]
    order = PendingOrder(orders[0]) if orders else PendingOrder.LONGEST
    return PendingPageQuery(
        causes=causes,
        kinds=kinds,
        order=order,
        query=(
            *(("cause", name) for name in causes),
            *(("kind", name) for name in kinds),
            *((("order", order.value),) if order is not PendingOrder.LONGEST else ()),
        ),
        problem=" ".join(text for text in problems if text),
    )
