"""Measured energy and its carbon by group: a table of the pages of costs and of a workload."""

from collections.abc import Sequence

from apps.clusters.domain.window import Window
from apps.costs.selectors import carbon_of
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.usage_query import Filters, Grouping, GroupingRefused, UsageQuery
from apps.usage.selectors import usage_rows
from apps.web.components.formats import Format, Value
from apps.web.components.listings import GROUP_LABELS
from apps.web.components.tables import Column, Table, TableRow
from apps.web.costs.query import links_of
from apps.web.query_session import QuerySession

_WITHOUT = "not in Carbon: its hour has no factor, or is not priced yet"
_COLUMNS = (
    Column("energy_kwh", "Energy", Format.DECIMAL, "kWh", "of the GPUs; PUE is not in it"),
    Column("split_energy_kwh", "Shared GPUs", Format.DECIMAL, "kWh", "with a known idle power"),
    Column("idle_energy_kwh", "Idle part", Format.DECIMAL, "kWh", "of Shared GPUs: without work"),
    Column("carbon_kg", "Carbon", Format.DECIMAL, "kg CO2e", "PUE included; – without a factor"),
    Column("energy_without_factor_kwh", "Without factor", Format.DECIMAL, "kWh", _WITHOUT),
)
_Carbon = tuple[float | None, float | None]


def energy_text(reading: QuerySession, filters: Filters, window: Window) -> str:
    """Return the energy of a window and its carbon in words; empty where no exporter shows it."""
    query = UsageQuery(window, filters=filters)
    sees, zone = reading.visibility, reading.choice.zone
    rows = [r for r in usage_rows(query, visibility=sees, zone=zone) if r.amounts.energy_mwh]
    if not rows:
        return ""
    ((grams, without),) = carbon_of(rows, query, visibility=sees, zone=zone)
    said = f"{rows[0].amounts.energy_kwh:,.1f} kWh of its GPUs, without PUE."
    if grams is None:
        return f"{said} No carbon factor is known."
    carbon = f"{said} Carbon: {grams / 1000:,.1f} kg CO2e, PUE included"
    return f"{carbon}; {without:,.1f} kWh have no factor." if without else f"{carbon}."


def energy_table(groups: Sequence[Grouping], reading: QuerySession, filters: Filters) -> Table:
    """Return the energy of a window by `groups`, most first.

    Queries as those of `usage_rows` and `carbon_of`.
    """
    rows, problem = [], ""
    query = UsageQuery(reading.window, group_by=tuple(groups), filters=filters)
    sees, zone = reading.visibility, reading.choice.zone
    try:
        found = usage_rows(query, visibility=sees, zone=zone)
        carbon = carbon_of(found, query, visibility=sees, zone=zone)
        rows = [
            TableRow(_values(row.groups, row.amounts, own), links=links_of(row.groups, reading))
            for row, own in zip(found, carbon, strict=True)
            if row.amounts.energy_mwh
        ]
    except GroupingRefused as refusal:
        problem = f"Over this window: {refusal}."
    return Table(
        id="energy",
        title="Energy and carbon",
        columns=[
            *([Column(one.value, GROUP_LABELS[one]) for one in groups] or [Column("what", "What")]),
            *_COLUMNS,
        ],
        rows=sorted(rows, key=_most_first),
        zone=zone,
        empty=problem or "No exporter shows energy in this window.",
    )


def _most_first(row: TableRow) -> float:
    energy = row.values["energy_kwh"]
    return -energy if isinstance(energy, float) else 0.0


def _values(groups: object, amounts: Amounts, carbon: _Carbon) -> dict[str, Value]:
    grams, without = carbon
    named: dict[str, Value] = dict(groups) if isinstance(groups, dict) else {}
    return {
        **(named or {"what": "Everything"}),
        "energy_kwh": amounts.energy_kwh,
        "split_energy_kwh": amounts.split_energy_kwh,
        "idle_energy_kwh": amounts.idle_energy_kwh,
        "carbon_kg": None if grams is None else grams / 1000,
        "energy_without_factor_kwh": without,
    }
