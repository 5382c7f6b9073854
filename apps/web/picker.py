"""The window picker: links to presets and a form for days, keeping whatever else was chosen."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from django.http import HttpRequest

from apps.web.forms import PRESETS
from apps.web.links import path_of, with_query
from apps.web.reading import Reading

_WINDOW_KEYS = ("window", "first", "last", "start", "end")
# Places within a list make no sense in another window.
PLACE_KEYS = ("page", "pods", "cursor", "format", "table")


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
class Picker:
    """`hidden` are the fields that the form carries along unseen."""

    presets: Sequence[Preset]
    hidden: Sequence[tuple[str, str]]
    first: date
    last: date
    clusters: Sequence[ClusterOption]
    path: str


def picker_of(request: HttpRequest, reading: Reading) -> Picker:
    """Return the picker as this address leaves it; clusters only where there are several."""
    others = kept(request, drop=(*_WINDOW_KEYS, *PLACE_KEYS))
    choice, path = reading.choice, path_of(request)
    several = reading.clusters if len(reading.clusters) > 1 else ()
    return Picker(
        presets=[
            Preset(label, with_query(path, [("window", name), *others]), name == choice.preset)
            for name, label in PRESETS.items()
        ],
        hidden=[(key, value) for key, value in others if not (several and key == "cluster")],
        first=choice.first,
        last=choice.last,
        clusters=[ClusterOption(name, name in reading.filters.cluster) for name in several],
        path=path,
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
