"""The window control: presets, steps, days, comparison, and the filters that can be taken off.

Its links keep whatever else the address holds.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from django.http import HttpRequest

from apps.web import steps
from apps.web.forms import PRESETS
from apps.web.links import Query, path_of, with_query
from apps.web.reading import COMPARE, NOT_COMPARED, Reading

_WINDOW_KEYS = ("window", "first", "last", "start", "end")
# Places within a list make no sense in another window.
PLACE_KEYS = ("page", "pods", "cursor", "format", "table", "part")
# Filters that pages read from their address, and how a reader calls them.
_FILTERS = {"cluster": "Cluster", "namespace": "Namespace"}


@dataclass(frozen=True, slots=True)
class Preset:
    label: str
    href: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class ClusterOption:
    name: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that narrows the page; the link leads to the page without it."""

    label: str
    value: str
    href: str


@dataclass(frozen=True, slots=True)
class Picker:
    """`hidden` are the fields that the form carries along unseen.

    `earlier_href` and `later_href` are None where there is nothing to step to. `compare_href`
    turns the comparison with `before` (`the 7 days before`) on or off.
    """

    presets: Sequence[Preset]
    hidden: Sequence[tuple[str, str]]
    first: date
    last: date
    clusters: Sequence[ClusterOption]
    chips: Sequence[Chip]
    path: str
    earlier_href: str | None
    later_href: str | None
    before: str
    compare_href: str


def picker_of(request: HttpRequest, reading: Reading) -> Picker:
    """Return the picker as this address leaves it; clusters only where there are several."""
    others = kept(request, drop=(*_WINDOW_KEYS, *PLACE_KEYS))
    choice, path = reading.choice, path_of(request)
    several = reading.clusters if len(reading.clusters) > 1 else ()

    def step(query: Query | None) -> str | None:
        return None if query is None else with_query(path, [*query, *others])

    return Picker(
        presets=[
            Preset(label, with_query(path, [("window", name), *others]), name == choice.preset)
            for name, label in PRESETS.items()
        ],
        hidden=[(key, value) for key, value in others if not (several and key == "cluster")],
        first=choice.first,
        last=choice.last,
        clusters=[ClusterOption(name, name in reading.filters.cluster) for name in several],
        chips=_chips(request, reading),
        path=path,
        earlier_href=step(steps.earlier(choice, reading.now)),
        later_href=step(steps.later(choice, reading.now)),
        before=steps.before_words(choice),
        compare_href=_compare_href(request, reading),
    )


def kept(request: HttpRequest, *, drop: Collection[str]) -> list[tuple[str, str]]:
    """Return the query of this address without the keys in `drop`."""
    return [
        (key, value)
        for key, values in request.GET.lists()
        if key not in drop
        for value in values
        if isinstance(value, str)
    ]


def _chips(request: HttpRequest, reading: Reading) -> list[Chip]:
    """Return the filters in force; what was asked for and is not there is told elsewhere."""
    every = kept(request, drop=PLACE_KEYS)
    return [
        Chip(_FILTERS[key], value, with_query(path_of(request), [p for p in every if p != pair]))
        for pair in dict.fromkeys(every)
        for key, value in (pair,)
        if value and (value in reading.filters.cluster if key == "cluster" else key in _FILTERS)
    ]


def _compare_href(request: HttpRequest, reading: Reading) -> str:
    query = kept(request, drop=(COMPARE, *PLACE_KEYS))
    if reading.compares:
        query.append((COMPARE, NOT_COMPARED))
    return with_query(path_of(request), query)
