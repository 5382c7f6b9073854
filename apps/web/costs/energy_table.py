"""Measured energy and its carbon by group: a table of the pages of costs and of a workload."""

from collections.abc import Sequence
from math import fsum

from apps.clusters.domain.window import Window
from apps.costs.selectors import SiteFactorRow, carbon_of, site_factor_rows
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.usage_query import Filters, Grouping, GroupingRefused, UsageQuery
from apps.usage.selectors import usage_rows
from apps.web.components.formats import Format, Value
from apps.web.components.listings import GROUP_LABELS
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
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
_FORMULA = "Carbon = energy × PUE × carbon factor of its hour, summed over all hours."
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
        total=_total(rows, groups[0].value if groups else "what"),
        zone=zone,
        empty=problem or "No exporter shows energy in this window.",
        on_phone=(groups[0].value if groups else "what", "energy_kwh", "carbon_kg"),
    )


def factor_table(reading: QuerySession) -> Table:
    """Return PUE and carbon factors that hold in the window, and where they come from."""
    found = site_factor_rows(reading.window, clusters=reading.filters.cluster)
    return Table(
        id="factors",
        title="Energy factors",
        columns=list(declared_columns(SiteFactorRow)),
        rows=[TableRow(declared_values(row)) for row in found],
        zone=reading.choice.zone,
        empty="No PUE or carbon factor is set: an administrator loads them with the catalog.",
        note=_FORMULA,
        on_phone=("cluster", "pue", "carbon_g_per_kwh", "source"),
    )


def _total(rows: Sequence[TableRow], label: str) -> TableRow | None:
    """Return the sum of the rows; of what no row knows, nothing."""
    if len(rows) < 2:
        return None
    values: dict[str, Value] = {label: "Total"}
    for column in _COLUMNS:
        known = [one.values[column.key] for one in rows]
        numbers = [value for value in known if isinstance(value, float)]
        values[column.key] = fsum(numbers) if numbers else None
    return TableRow(values)


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
