"""Plots of the topology over time: slots, free parts of GPUs, and fragmentation."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from apps.clusters.domain.topology import LEVELS, TopologyLevel
from apps.clusters.domain.window import Window
from apps.planning.selectors import FragmentationRow, SlotSeries
from apps.web.components.formats import Format
from apps.web.components.plots import Plot, PlotLine, Scale
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession

LEVEL_NAMES: Mapping[str, str] = {
    **{level.value: level.value for level in LEVELS},
    TopologyLevel.NVLINK.value: "NVLink domain",
}
NODE_GPUS = 8
"""The gang of the figures, of the plots and of the drain plan: one host of eight GPUs."""
NO_NODES = "No node with whole GPUs is known in this window."
_MOST_PLOTS, _MOST_ROWS = 6, 25
_HOUR = timedelta(hours=1)
Values = Sequence[tuple[datetime, float | None]]
"""The value of each hour of a window, None where it is not known."""


class _PlotText(Struct, frozen=True):
    """What a plot of hourly values is called, and how its values are written."""

    id: str
    title: str
    line: str
    kind: Format = Format.NUMBER


def slot_plots(series: Sequence[SlotSeries], reading: QuerySession) -> list[Plot]:
    """Return slots of the tiers that ever take a gang, those with most slots first."""
    some = [one for one in series if NODE_GPUS in one.slots]
    return [
        _plot(
            _PlotText(
                f"slots-{n}",
                f"{one.tier}: slots of {NODE_GPUS} GPUs per {LEVEL_NAMES[one.level]}",
                "slots",
            ),
            list(zip(one.at, one.slots[NODE_GPUS], strict=True)),
            reading,
            columns=[
                Column(f"slots_{size}", f"Gang of {size}", Format.COUNT) for size in one.slots
            ],
            cells=_slots_of(one),
        )
        for n, one in enumerate(_largest(some, lambda one: one.slots[NODE_GPUS]), start=1)
    ]


def _slots_of(one: SlotSeries) -> Callable[[int], dict[str, float | None]]:
    return lambda n: {f"slots_{size}": own[n] for size, own in sorted(one.slots.items())}


def device_plots(series: Sequence[SlotSeries], reading: QuerySession) -> list[Plot]:
    """Return the free MIG devices and replicas of tiers, most first."""
    some = [one for one in series if one.device]
    return [
        _plot(
            _PlotText(f"free-{n}", f"{one.tier}: free {one.device}", "free"),
            list(zip(one.at, one.free, strict=True)),
            reading,
        )
        for n, one in enumerate(_largest(some, lambda one: one.free), start=1)
    ]


def _largest(
    series: Sequence[SlotSeries], counts: Callable[[SlotSeries], Sequence[int | None]]
) -> list[SlotSeries]:
    def rank(one: SlotSeries) -> tuple[int, str, str, str]:
        most = max((n or 0 for n in counts(one)), default=0)
        return (-most, one.cluster, one.tier, one.device)

    return sorted(series, key=rank)[:_MOST_PLOTS]


def fragmentation_plots(rows: Sequence[FragmentationRow], reading: QuerySession) -> list[Plot]:
    """Return the fragmentation index by hour of the tiers with most unusable GPU-hours.

    An hour in which nothing was free has no index, as one that is not stored.
    """
    by_tier: dict[tuple[str, str], dict[datetime, FragmentationRow]] = {}
    for row in rows:
        if row.period is not None:
            # In UTC: an hour of autumn has two local times, which equal no others.
            at = row.period.astimezone(UTC)
            by_tier.setdefault((row.cluster, row.tier), {})[at] = row
    several = len({row.cluster for row in rows}) > 1
    lost = {
        key: sum(row.unusable_gpu_hours or 0.0 for row in own.values())
        for key, own in by_tier.items()
    }
    known = [
        key
        for key in by_tier
        if any(row.fragmentation_index is not None for row in by_tier[key].values())
    ]
    ranked = sorted(known, key=lambda key: (-lost[key], key))[:_MOST_PLOTS]
    return [
        _plot(
            _PlotText(
                f"fragmentation-{n}",
                f"{f'{key[0]}, ' if several else ''}{key[1]}: fragmentation",
                "fragmentation",
                Format.RATIO,
            ),
            _every_hour(by_tier[key], reading),
            reading,
        )
        for n, key in enumerate(ranked, start=1)
    ]


def _every_hour(own: Mapping[datetime, FragmentationRow], reading: QuerySession) -> Values:
    first = next(iter(own))
    start = first - (first - reading.window.start) // _HOUR * _HOUR
    count = max(0, -((start - min(reading.window.end, reading.now)) // _HOUR))
    hours = (start + n * _HOUR for n in range(count))
    return [(at, own[at].fragmentation_index if at in own else None) for at in hours]


def _plot(
    text: _PlotText,
    values: Values,
    reading: QuerySession,
    *,
    columns: Sequence[Column] = (),
    cells: Callable[[int], dict[str, float | None]] | None = None,
) -> Plot:
    """Return a plot of hourly values with their table: of `cells` by the number of the hour."""
    zone = reading.choice.zone
    highest = max((value or 0.0 for _, value in values), default=0.0)
    scale = Scale.up_to(Window(reading.window.start, reading.window.end), highest)
    own = columns or (Column("value", text.line.capitalize(), text.kind),)
    rows = [
        TableRow({"at": at, **(cells(n) if cells else {"value": value})})
        for n, (at, value) in enumerate(values)
    ]
    steps = [(at, at + _HOUR, value) for at, value in values]
    return Plot(
        id=text.id,
        title=text.title,
        caption=f"{text.title}, at the start of each hour. {reading.choice.label}.",
        table=Table(
            id=text.id,
            title=text.title,
            columns=(Column("at", "Hour", Format.TIME), *own),
            rows=rows[-_MOST_ROWS:],
            zone=zone,
            empty=NO_NODES,
            ordered=True,
            every=lambda: rows,
        ),
        curves=[PlotLine(text.line, "plot-used", scale.steps(steps))] if steps else (),
        gaps=[scale.gap(start, end) for start, end in _unknown(values)],
        across=scale.across(zone),
        upwards=scale.upwards(text.kind),
        empty=NO_NODES,
    )


def _unknown(values: Values) -> list[tuple[datetime, datetime]]:
    """Return the stretches of hours without a value."""
    found: list[tuple[datetime, datetime]] = []
    for at, value in values:
        if value is not None:
            continue
        if found and found[-1][1] == at:
            found[-1] = found[-1][0], at + _HOUR
        else:
            found.append((at, at + _HOUR))
    return found
