"""What the address of the quota page asks beside window and filters: sources, effect, order."""

from dataclasses import dataclass

from django.http import QueryDict

from apps.quotas.domain.keys import QuotaSource
from apps.quotas.selectors import QuotaFilters, QuotaOrder
from apps.web import forms
from apps.web.components.links import Query
from apps.web.query_session import QuerySession

TAKES = ("tier", "team", "namespace")
SOURCES = tuple(source.value for source in QuotaSource)
EFFECTS = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class QuotaPageQuery:
    """`query` reproduces what is asked here, for links; `problem` says what makes no sense."""

    sources: tuple[str, ...]
    effective: bool | None
    order: QuotaOrder
    query: Query
    problem: str

    @property
    def narrows(self) -> bool:
        return bool(self.sources) or self.effective is not None

    def without(self, *keys: str) -> list[tuple[str, str]]:
        """Return the query without some of its keys."""
        return [pair for pair in self.query if pair[0] not in keys]

    def filters(self, reading: QuerySession) -> QuotaFilters:
        own = reading.filters
        return QuotaFilters(
            cluster=own.cluster,
            team=own.team,
            namespace=own.namespace,
            tier=own.tier,
            source=self.sources,
            effective=self.effective,
        )


def asked_of(params: QueryDict) -> QuotaPageQuery:
    """Return what an address asks; what is not understood narrows nothing and is told."""
    sources, no_source = forms.names_from(params, "source", SOURCES)
    effects, no_effect = forms.names_from(params, "effective", tuple(EFFECTS))
    orders, no_order = forms.names_from(params, "order", tuple(QuotaOrder))
    order = QuotaOrder(orders[0]) if orders else QuotaOrder.FULLEST
    return QuotaPageQuery(
        sources=sources,
        effective=EFFECTS[effects[0]] if effects else None,
        order=order,
        query=(
            *(("source", name) for name in sources),
            *(("effective", name) for name in effects[:1]),
            *((("order", order.value),) if order is not QuotaOrder.FULLEST else ()),
        ),
        problem=" ".join(text for text in (no_source, no_effect, no_order) if text),
    )
