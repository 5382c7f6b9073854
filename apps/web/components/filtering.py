"""The filters of an address: what a page is narrowed by, and what it only passes on.

Each page says which filters it takes. One rule holds for the others: a filter that a page does
not take stays in the page's links, narrows nothing on the page, and is shown as not applied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.http import QueryDict

from apps.accounts.permissions import Visibility
from apps.usage.domain.rows import Filters
from apps.usage.selectors import filter_names, namespaces_seen
from apps.web.components.links import Query
from apps.web.forms import names_from

LABELS = {
    "cluster": "cluster",
    "tier": "tier",
    "team": "team",
    "namespace": "namespace",
    "gpu_model": "GPU model",
    "capacity_type": "capacity type",
}
"""The keys of filters in an address, in the order of links, and how a reader calls them."""
EVERY = tuple(LABELS)
_MOST = 100  # names under one key, which somebody else may have written


@dataclass(frozen=True, slots=True)
class Filtering:
    """`filters` are in force. `asides` are pairs that this page does not take.

    `query` holds both, for links. `choices` are the names that can be added, by the key of the
    filter; None where a name has to be written, because there may be very many. `problems` say
    what was asked for and is not there.
    """

    filters: Filters = field(default_factory=Filters)
    asides: Query = ()
    query: Query = ()
    choices: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    problems: Sequence[str] = ()


def filtering_of(
    params: QueryDict,
    *,
    takes: Sequence[str],
    keeps: bool,
    clusters: Sequence[str],
    visibility: Visibility,
    now: datetime,
) -> Filtering:
    """Return how `params` narrow a page that takes these filters, the cluster among them always.

    `keeps`: whether other filters stay in the links. No query for a page that takes clusters
    alone; else one, and three at most where a namespace is named.
    """
    taken = [key for key in EVERY if key == "cluster" or key in takes]
    known = {"cluster": clusters, **(filter_names(visibility=visibility) if takes else {})}
    asked = {key: _asked(params, key) for key in EVERY}
    in_force: dict[str, tuple[str, ...]] = {}
    problems = []
    for key in taken:
        if key == "namespace":
            in_force[key] = namespaces_seen(asked[key], visibility=visibility, now=now)
            problem = _unseen(asked[key], in_force[key])
        else:
            in_force[key], problem = names_from(params, key, known[key], LABELS[key])
        problems += [problem] if problem else []
    asides = [(key, name) for key in EVERY if key not in taken for name in asked[key]]
    passed = in_force | ({key: asked[key] for key, _ in asides} if keeps else {})
    return Filtering(
        filters=Filters(**in_force),
        asides=asides if keeps else (),
        query=[(key, name) for key in EVERY for name in passed.get(key, ())],
        choices={key: None if key == "namespace" else known[key] for key in taken},
        problems=problems,
    )


def _asked(params: QueryDict, key: str) -> tuple[str, ...]:
    """Return the names under a key; never one that PostgreSQL refuses to compare with."""
    names = [name for name in params.getlist(key) if name and "\0" not in name]
    return tuple(dict.fromkeys(names))[:_MOST]


def _unseen(asked: Sequence[str], seen: Sequence[str]) -> str:
    unknown = [name for name in asked if name not in seen]
    return f"There is no namespace “{unknown[0][:80]}” that you may see." if unknown else ""
