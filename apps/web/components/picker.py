"""The window control: presets, steps, days, comparison, and the filters that can be taken off.

Its links keep whatever else the address holds.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import urlencode

from django.http import HttpRequest

from apps.web.components import window_navigation
from apps.web.components.filtering import EVERY, LABELS
from apps.web.components.links import Query, path_of, with_query
from apps.web.forms import PRESETS
from apps.web.query_session import COMPARE, NOT_COMPARED, QuerySession

_WINDOW_KEYS = ("window", "first", "last", "start", "end")
# Places within a list make no sense in another window.
PLACE_KEYS = ("page", "pods", "cursor", "format", "table", "part", "card")
# Names of one kind that are chosen from; where there are more, a name is written.
_MOST_CHOICES = 200


@dataclass(frozen=True, slots=True)
class Preset:
    label: str
    href: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class FilterChoice:
    """A filter that can be added: `names` to choose from; without any, one is written."""

    key: str
    label: str
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter of the address; the link leads to the page without it, where there is one.

    `applies`: whether it narrows this page. Others are only kept for the pages that take them.
    """

    label: str
    value: str
    href: str
    applies: bool = True


@dataclass(frozen=True, slots=True)
class Picker:
    """`hidden` are the fields that the form of the days carries along unseen, `every` those of
    the form that adds one of the filters `choices`.

    `earlier_href` and `later_href` are None where there is nothing to step to. `compare_href`
    turns the comparison with `before` (`the 7 days before`) on or off. `address` is that of the
    page as it can be saved, and `query` what its links to other pages carry.
    """

    presets: Sequence[Preset]
    hidden: Sequence[tuple[str, str]]
    first: date
    last: date
    every: Sequence[tuple[str, str]]
    choices: Sequence[FilterChoice]
    chips: Sequence[Chip]
    path: str
    address: str
    query: str
    earlier_href: str | None
    later_href: str | None
    before: str
    compare_href: str


def picker_of(request: HttpRequest, reading: QuerySession) -> Picker:
    """Return the picker as this address leaves it."""
    others = kept(request, drop=(*_WINDOW_KEYS, *PLACE_KEYS))
    choice, path = reading.choice, path_of(request)

    def step(query: Query | None) -> str | None:
        return None if query is None else with_query(path, [*query, *others])

    return Picker(
        presets=[
            Preset(label, with_query(path, [("window", name), *others]), name == choice.preset)
            for name, label in PRESETS.items()
        ],
        hidden=others,
        every=kept(request, drop=PLACE_KEYS),
        first=choice.first,
        last=choice.last,
        choices=_choices(reading),
        chips=_chips(request, reading),
        path=path,
        query=urlencode(list(reading.query)),
        address=with_query(path, kept(request, drop=PLACE_KEYS)),
        earlier_href=step(window_navigation.earlier(choice, reading.now)),
        later_href=step(window_navigation.later(choice, reading.now)),
        before=window_navigation.before_words(choice),
        compare_href=_compare_href(request, reading),
    )


def kept(request: HttpRequest, *, drop: Collection[str]) -> list[tuple[str, str]]:
    """Return the query of this address without the keys in `drop`.

    Without filters that are left empty too, as a form sends those that nobody chose.
    """
    return [
        (key, value)
        for key, values in request.GET.lists()
        if key not in drop
        for value in values
        if isinstance(value, str) and (value or key not in EVERY)
    ]


def _chips(request: HttpRequest, reading: QuerySession) -> list[Chip]:
    """Return the filters of the address, in its order.

    What was asked for and is not there has none: that is told elsewhere.
    """
    every = kept(request, drop=PLACE_KEYS)
    applied = {
        (key, name)
        for key in EVERY
        for name in getattr(reading.filters, key)
        if (key, name) not in reading.asides
    }
    return [
        Chip(
            label=_capital(LABELS[pair[0]]),
            value=pair[1],
            href=""
            if pair[0] in reading.subject
            else with_query(path_of(request), [p for p in every if p != pair]),
            applies=pair in applied,
        )
        for pair in dict.fromkeys(every)
        if pair in applied or pair in reading.asides
    ]


def _choices(reading: QuerySession) -> list[FilterChoice]:
    """Return the filters that can be added, without the names that are in force.

    A kind of which there is one name alone narrows nothing.
    """
    found = []
    for key, names in reading.choices.items():
        if key in reading.subject:
            continue
        if names is None or len(names) > _MOST_CHOICES:
            found.append(FilterChoice(key, _capital(LABELS[key]), ()))
            continue
        new = [name for name in names if name not in getattr(reading.filters, key)]
        if new and len(names) > 1:
            found.append(FilterChoice(key, _capital(LABELS[key]), new))
    return found


def _capital(label: str) -> str:
    return label[0].upper() + label[1:]


def _compare_href(request: HttpRequest, reading: QuerySession) -> str:
    query = kept(request, drop=(COMPARE, *PLACE_KEYS))
    if reading.compares:
        query.append((COMPARE, NOT_COMPARED))
    return with_query(path_of(request), query)
