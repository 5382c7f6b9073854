"""Measured energy at its tariff: paid by who drew it, in every sum, and never dropped."""

import csv
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from tempfile import TemporaryFile
from typing import Any

import pytest
from django.db.models import Sum

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING, visibility_of
from apps.clusters.models import Cluster
from apps.costs.adapters.formats import write
from apps.costs.domain.carbon import read_carbon_file
from apps.costs.domain.costing import WASTE, Basis, Cause, Policy
from apps.costs.domain.files import CostFile, FileFormat
from apps.costs.models import ClosedPeriod, EnergyFactor, PoolCostHour, Price, TeamCostHour
from apps.costs.selectors import (
    CostQuery,
    CostRow,
    cost_file,
    cost_rows,
    money_budget_rows,
    period_file,
    price_book,
)
from apps.costs.services import close_period, price_hours
from apps.quotas.models import Budget
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from apps.usage.models import NodeHour, PodHour, TierHour
from tests.costs.portal import (
    CHARGINGS,
    DAY,
    GROUPS,
    NOW,
    Priced,
    by_cause,
    make_price,
    make_priced,
    rows,
    total,
    waterfall,
)
from tests.factories import A100, BEGINNING, H100
from tests.shared_rows import shared

pytestmark = pytest.mark.django_db

TARIFF = Decimal("0.30")
PUE = Decimal("1.5")
FREE_MWH = 7_000_000
"""What the GPUs that nobody held drew in an hour of a pool."""


def make_billed() -> Priced:
    """Give two days with a tariff on H100 and none on A100; free GPUs drew energy too."""
    priced = make_priced(2, prices=())
    make_price(H100, "on-demand", "2", per_kwh=TARIFF, pue=PUE)
    make_price(A100, "on-demand", "1")
    make_price(A100, "spot", "1")
    for table in (TierHour, NodeHour):
        for row in table._default_manager.all():
            row.energy_mwh += FREE_MWH
            row.save(update_fields=["energy_mwh"])
    assert price_hours(now=NOW) == 4 * 24
    return priced


billed = shared(make_billed)


def of_energy(found: list[CostRow]) -> list[CostRow]:
    return [row for row in found if row.cause is Cause.ENERGY]


def cost_of(mwh: int) -> int:
    return round(Decimal(mwh) / 10**6 * TARIFF * PUE * 10**8)


def test_energy_is_what_was_measured_times_the_tariff_of_the_site(billed: Priced) -> None:
    (row,) = of_energy(rows(billed.window, filters=Filters(gpu_model=(H100,))))
    drawn = TierHour.objects.filter(gpu_model__name=H100).aggregate(all=Sum("energy_mwh"))["all"]
    assert (row.energy_mwh, row.gpu_hours, row.currency) == (drawn, 0, "USD")
    assert row.cost == cost_of(drawn)
    assert row.price_per_gpu_hour is None, "it is no price of a GPU-hour"


def test_a_team_pays_what_its_gpus_drew_and_the_platform_the_rest(billed: Priced) -> None:
    found = of_energy(rows(billed.window, group_by=(Grouping.TEAM,)))
    paid = {row.groups["team"]: row.energy_mwh for row in found}
    drawn = PodHour.objects.filter(gpu_model__name=H100).order_by().values_list("team__name")
    assert paid == {
        "": 48 * FREE_MWH,
        **{name: int(mwh) for name, mwh in drawn.annotate(drawn=Sum("energy_mwh"))},
    }


@pytest.mark.parametrize(("basis", "policy"), CHARGINGS)
@pytest.mark.parametrize("group_by", [(), *((g,) for g in GROUPS)], ids=str)
def test_sums_with_energy_are_exact(
    billed: Priced, basis: Basis, policy: Policy, group_by: tuple[Grouping, ...]
) -> None:
    whole = by_cause(rows(billed.window))
    asked: dict[str, Any] = {"basis": basis, "policy": policy, "group_by": group_by}
    assert by_cause(rows(billed.window, **asked)) == whole
    by_day = rows(billed.window, interval=TimeStep.DAY, **asked)
    assert by_cause(by_day) == whole
    halves = list(billed.window.hours())
    split = [row for hour in halves[:2] for row in rows(hour, **asked)]
    split += rows(type(billed.window)(halves[2].start, billed.window.end), **asked)
    assert by_cause(split) == whole


def test_where_there_is_no_tariff_there_is_no_line(billed: Priced) -> None:
    assert of_energy(rows(billed.window, filters=Filters(gpu_model=(A100,)))) == []


def test_energy_stands_beside_the_waterfall_and_is_no_waste(billed: Priced) -> None:
    (fall,) = waterfall(billed.window, visibility=EVERYTHING)
    (energy,) = of_energy(rows(billed.window))
    assert fall.energy == energy.cost
    assert fall.total + fall.energy == total(rows(billed.window))
    wasted = cost_rows(CostQuery(billed.window, waste=True, causes=WASTE), visibility=EVERYTHING)
    assert of_energy(wasted) == []


def test_a_budget_pays_for_the_energy_of_its_team(billed: Priced) -> None:
    vision, month = billed.portal.vision, {"period": "month", "valid_from": BEGINNING}
    Budget.objects.create(team=vision, money=Decimal(9999), currency="USD", **month)
    found = rows(billed.window, filters=Filters(team=("vision",)))
    (energy,) = of_energy(found)
    (row,) = money_budget_rows(billed.window.end - timedelta(minutes=30), visibility=EVERYTHING)
    assert energy.amount
    assert row.used == sum((one.amount or Decimal(0) for one in found), Decimal(0))


def test_a_team_sees_its_own_energy_and_that_of_nobody(billed: Priced) -> None:
    dan = visibility_of(billed.portal.dan)
    found = of_energy(rows(billed.window, group_by=(Grouping.TEAM,), visibility=dan))
    assert {row.groups["team"] for row in found} == {"", "speech"}


def test_a_closed_month_has_its_energy(billed: Priced) -> None:
    closed = close_period(DAY.replace(day=1), by="finn", now=NOW)
    frozen = closed.closedamount_set.filter(cause="energy").aggregate(cost=Sum("cost"))["cost"]
    (energy,) = of_energy(rows(billed.window))
    assert frozen == energy.cost


def test_another_tariff_reprices_and_is_another_book(billed: Priced) -> None:
    before = price_book().version
    Price.objects.filter(gpu_model=H100).update(per_kwh=2 * TARIFF)
    assert price_book().version != before
    (then,) = of_energy(rows(billed.window))
    assert price_hours(now=NOW) == 4 * 24
    (now,) = of_energy(rows(billed.window))
    assert abs((now.cost or 0) - 2 * (then.cost or 0)) <= TeamCostHour.objects.count()
    pools = PoolCostHour.objects.aggregate(all=Sum("energy_mwh"), free=Sum("free_energy_mwh"))
    assert pools["all"] + pools["free"] == TierHour.objects.aggregate(all=Sum("energy_mwh"))["all"]


SITE_PUE, GRAMS = Decimal("1.25"), Decimal("380.5")


def lines_of(file: CostFile, format_: FileFormat) -> list[dict[str, str]]:
    """Return the lines of a file as they are written; what is above their head is left out."""
    with TemporaryFile() as out:
        write(file, format_, out)
        out.seek(0)
        text = out.read().decode("utf-8-sig").splitlines()
    return list(csv.DictReader(line for line in text if not line.startswith("#")))


def with_factor() -> None:
    for cluster in Cluster.objects.all():
        EnergyFactor.objects.create(
            cluster=cluster, pue=SITE_PUE, carbon_g_per_kwh=GRAMS, valid_from=BEGINNING
        )
    assert price_hours(now=NOW) > 0


_COLUMNS = {
    FileFormat.CSV: ("cause", "energy_kwh", "carbon_energy_kwh", "carbon_g"),
    FileFormat.FOCUS_1_2_CSV: ("x_Cause", "x_EnergyKwh", "x_CarbonEnergyKwh", "x_CarbonGrams"),
}


@pytest.mark.parametrize("format_", _COLUMNS)
def test_carbon_is_reproducible_from_each_line_of_a_file(
    billed: Priced, format_: FileFormat
) -> None:
    with_factor()
    cause, energy, known, grams = _COLUMNS[format_]
    asked = CostQuery(billed.window, TimeStep.DAY, (Grouping.TEAM, Grouping.WORKLOAD))
    lines = lines_of(cost_file(asked, format_, visibility=EVERYTHING), format_)
    drawn = [line for line in lines if line[cause] == "energy"]
    assert {(line[energy], line[known], line[grams]) for line in lines if line not in drawn} == {
        ("", "", "")
    }
    (whole,) = of_energy(rows(billed.window, unbilled_energy=True))
    assert sum(Decimal(line[energy]) for line in drawn) * 10**6 == whole.energy_mwh
    assert sum(Decimal(line[grams]) for line in drawn) * 10**6 == whole.carbon_ug
    rounding = Decimal(24 * 100) / 2 / 10**6
    for line in drawn:
        assert line[known] == line[energy]
        assert abs(Decimal(line[grams]) - Decimal(line[known]) * SITE_PUE * GRAMS) <= rounding
        assert Decimal(line[grams]) > 100 * rounding, "rounding hides no wrong factor"


def test_without_a_factor_a_file_has_energy_and_no_carbon(billed: Priced) -> None:
    asked = CostQuery(billed.window)
    lines = lines_of(cost_file(asked, FileFormat.CSV, visibility=EVERYTHING), FileFormat.CSV)
    (line,) = (line for line in lines if line["cause"] == "energy")
    assert Decimal(line["energy_kwh"]) > 0
    assert line["carbon_g"] == ""
    assert Decimal(line["carbon_energy_kwh"]) == 0


def drawn_of(lines: list[dict[str, str]], format_: FileFormat) -> dict[str, tuple[Decimal, ...]]:
    """Return (kWh, cost) of lines of energy by GPU model."""
    cause, energy, *_ = _COLUMNS[format_]
    model, cost = ("gpu_model", "cost") if cause == "cause" else ("x_GpuModel", "BilledCost")
    found: dict[str, tuple[Decimal, ...]] = {}
    for line in lines:
        if line[cause] == "energy":
            kwh, paid = found.get(line[model], (Decimal(0), Decimal(0)))
            found[line[model]] = (kwh + Decimal(line[energy]), paid + Decimal(line[cost]))
    return found


@pytest.mark.parametrize("format_", _COLUMNS)
def test_energy_without_a_tariff_is_in_files_with_its_carbon_and_no_money(
    billed: Priced, format_: FileFormat
) -> None:
    with_factor()
    money = total(rows(billed.window))
    asked = CostQuery(billed.window, TimeStep.DAY, GROUPS)
    lines = lines_of(cost_file(asked, format_, visibility=EVERYTHING), format_)
    found = drawn_of(lines, format_)
    for model, (kwh, paid) in found.items():
        drawn = TierHour.objects.filter(gpu_model__name=model).aggregate(all=Sum("energy_mwh"))
        assert kwh * 10**6 == drawn["all"]
        assert (paid > 0) == (model == H100)
    assert found.keys() == {H100, A100}
    cost = "cost" if format_ is FileFormat.CSV else "BilledCost"
    assert sum(Decimal(line[cost] or 0) for line in lines) * 10**8 == money
    cause, _, known, grams = _COLUMNS[format_]
    assert all(line[grams] and line[known] for line in lines if line[cause] == "energy")


def test_focus_1_0_has_no_line_without_a_cost(billed: Priced) -> None:
    file = cost_file(CostQuery(billed.window), FileFormat.FOCUS_CSV, visibility=EVERYTHING)
    lines = lines_of(file, FileFormat.FOCUS_CSV)
    assert {one["x_GpuModel"] for one in lines if one["x_Cause"] == "energy"} == {H100}


def test_a_month_keeps_the_lines_that_it_was_closed_with(billed: Priced) -> None:
    month = DAY.replace(day=1)

    def models() -> set[str]:
        file = period_file(month, FileFormat.CSV, visibility=EVERYTHING)
        return set(drawn_of(lines_of(file, FileFormat.CSV), FileFormat.CSV))

    close_period(month, by="finn", now=NOW)
    assert models() == {H100, A100}
    ClosedPeriod.objects.update(unbilled_in_files=False)
    assert models() == {H100}


def test_carbon_is_recomputed_from_the_exported_file_and_the_factor_file_alone(
    billed: Priced,
) -> None:
    """Whoever has the CSV by hour, the file of factors and PUE needs nothing else of the portal."""
    factors = {
        hour.start.astimezone(UTC): Decimal(100 + 37 * number % 400) / 2
        for number, hour in enumerate(billed.window.hours())
        if number % 5
    }
    text = "hour,g_per_kwh\n" + "".join(f"{at.isoformat()},{g}\n" for at, g in factors.items())
    for cluster in Cluster.objects.all():
        EnergyFactor.objects.create(
            cluster=cluster, pue=SITE_PUE, valid_from=BEGINNING,
            carbon_hours=dict(read_carbon_file(text).hours),
        )  # fmt: skip
    assert price_hours(now=NOW) > 0
    by_team = (Grouping.TEAM,)
    asked = CostQuery(billed.window, TimeStep.HOUR, (Grouping.WORKLOAD, *by_team))
    exported = lines_of(cost_file(asked, FileFormat.CSV, visibility=EVERYTHING), FileFormat.CSV)

    published = {
        datetime.fromisoformat(row["hour"]): Decimal(row["g_per_kwh"])
        for row in csv.DictReader(text.splitlines())
    }
    recomputed: dict[str, Decimal] = defaultdict(Decimal)
    lines = 0
    for line in exported:
        if line["cause"] != "energy":
            continue
        factor = published.get(datetime.fromisoformat(line["period"]))
        kwh = Decimal(line["energy_kwh"])
        if factor is None:
            assert line["carbon_g"] == ""
            assert Decimal(line["carbon_energy_kwh"]) == 0
            continue
        assert Decimal(line["carbon_energy_kwh"]) == kwh
        recomputed[line["team"]] += kwh * SITE_PUE * factor
        lines += 1
    assert lines > 100
    # What any other file or page of the same days says, to the rounding of a microgram a line.
    whole = replace(asked, interval=TimeStep.TOTAL, group_by=by_team)
    told = lines_of(cost_file(whole, FileFormat.CSV, visibility=EVERYTHING), FileFormat.CSV)
    total_of = {one["team"]: Decimal(one["carbon_g"]) for one in told if one["cause"] == "energy"}
    assert total_of.keys() == recomputed.keys()
    for team, grams in total_of.items():
        assert abs(grams - recomputed[team]) <= Decimal(4 * lines) / 10**6
        assert grams > 1, "rounding hides no wrong factor"


def test_a_month_keeps_the_columns_that_it_was_closed_with(billed: Priced) -> None:
    month = DAY.replace(day=1)

    def names() -> list[str]:
        file = period_file(month, FileFormat.CSV, visibility=EVERYTHING)
        return [column.name for column in file.columns]

    added = {"energy_kwh", "carbon_g", "carbon_energy_kwh"}
    close_period(month, by="finn", now=NOW)
    closed = names()
    assert added <= set(closed)
    ClosedPeriod.objects.update(energy_in_files=False)
    assert names() == [name for name in closed if name not in added]
