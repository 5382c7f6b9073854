"""Carbon is energy × PUE × the factor of its hour; without a factor it is not known."""

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.permissions import EVERYTHING
from apps.clusters.models import Cluster
from apps.costs.domain.carbon import (
    CarbonFileRefused,
    SiteFactor,
    carbon_ug,
    hour_key,
    read_carbon_file,
)
from apps.costs.models import EnergyFactor, PoolCostDay, TeamCostDay, WorkloadCostDay
from apps.costs.selectors import carbon_of, carbon_sums
from apps.costs.services import price_hours
from apps.operations.domain.source_positions import CatalogError
from apps.operations.services import load_catalog
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery
from apps.usage.models import PodHour, TierHour
from apps.usage.selectors import usage_rows
from tests.costs.portal import NOW, Priced, make_priced
from tests.factories import BEGINNING
from tests.operations.catalogs import changes, small
from tests.shared_rows import shared

HOUR = timedelta(hours=1)
PUE = Decimal("1.3")


def test_lines_that_are_wrong_are_named() -> None:
    text = "hour,g_per_kwh\n\n2026-01-01T00:00:00Z,380\n2026-01-01T01:00,1\nx,1\n"
    text += "2026-01-01T02:30:00Z,1\n2026-01-01T01:00:00+01:00,2\n2026-01-01T03:00:00Z,-1\n"
    text += "2026-01-01T04:00:00Z,NaN\n2026-01-01T05:00:00Z\n2026-01-01T06:00:00Z,6000\n"
    with pytest.raises(CarbonFileRefused) as refused:
        read_carbon_file(text)
    assert refused.value.problems == [
        "line 4, hour: '2026-01-01T01:00' has no offset; write it as 2026-01-01T01:00Z for UTC",
        "line 5, hour: 'x' is not a time such as 2026-01-01T00:00:00Z",
        "line 6, hour: '2026-01-01T02:30:00Z' is not the start of an hour of UTC",
        "line 7, hour: 2026-01-01T01:00:00+01:00 stands on line 3 already",
        "line 8, g_per_kwh: -1 g/kWh is not from 0 to 5,000",
        "line 9, g_per_kwh: 'NaN' is not a number of g/kWh",
        "line 10: has 1 values; an hour and its g/kWh are needed",
        "line 11, g_per_kwh: 6000 g/kWh is not from 0 to 5,000",
    ]
    with pytest.raises(CarbonFileRefused, match=r"line 1: no hour is given"):
        read_carbon_file("hour,g_per_kwh\n")


HUGE = "9" * 200_000


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param(
            "0001-01-01T00:00:00+14:00,1",
            "line 2, hour: '0001-01-01T00:00:00+14:00' is not in the years 2000 to 2099",
            id="before the calendar in UTC",
        ),
        pytest.param(
            "9999-12-31T23:00:00-14:00,1",
            "line 2, hour: '9999-12-31T23:00:00-14:00' is not in the years 2000 to 2099",
            id="after the calendar in UTC",
        ),
        pytest.param(
            f"2026-01-01T01:00:00Z,{HUGE}",
            "line 2: has 200,021 characters; an hour and its g/kWh are needed",
            id="a cell that csv refuses",
        ),
        pytest.param(
            '"2026-01-01T01:00:00Z,1',
            "line 2: has 1 values; an hour and its g/kWh are needed",
            id="a quote that nothing closes",
        ),
        pytest.param(
            "2026-01-01T01:00:00Z,1e-999999999",
            "line 2, g_per_kwh: 1e-999999999 has more than 20 decimals",
            id="a number that would be a gigabyte",
        ),
        pytest.param(
            "2026-01-01T01:00:00Z,1e999999999",
            "line 2, g_per_kwh: 1e999999999 g/kWh is not from 0 to 5,000",
            id="a number without end",
        ),
        pytest.param(
            "2026-01-01T00:00:00Z,381",
            "line 2, hour: 2026-01-01T00:00:00Z stands on line 1 already",
            id="an hour that stands twice",
        ),
    ],
)
def test_odd_cells_are_told_with_their_line_and_column(line: str, problem: str) -> None:
    with pytest.raises(CarbonFileRefused) as refused:
        read_carbon_file(f"2026-01-01T00:00:00Z,380\n{line}\n2026-01-01T02:00:00Z,379\n")
    # The lines around it are sound: nothing of them is swallowed, and nothing else is told.
    assert refused.value.problems == [problem]


@given(
    st.integers(0, 10**12),
    st.decimals(0, 5000, places=3),
    st.decimals(1, 3, places=3),
)
def test_carbon_is_the_product_rounded_once(mwh: int, grams: Decimal, pue: Decimal) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    file = read_carbon_file(f"{at.isoformat()},{grams}\n")
    known = SiteFactor(1, at, None, pue, by_hour=file.hours).grams(at)
    assert known is not None
    assert abs(carbon_ug(mwh, known) - mwh * grams * pue) <= Decimal("0.5")
    assert SiteFactor(1, at, None, pue, by_hour=file.hours).grams(at + HOUR) is None


priced = shared(lambda: make_priced(2))


def grams_of(at: datetime) -> str:
    """Return what the file has of an hour: none of every fourth, and 0 of some."""
    return "" if at.hour % 4 == 3 else str(Decimal(at.hour * 37 % 500) / 4)


def file_of(priced: Priced) -> str:
    lines = [(hour.start, grams_of(hour.start)) for hour in priced.window.hours()]
    return "".join(f"{at.isoformat()},{grams}\n" for at, grams in lines if grams)


def by_file(priced: Priced) -> dict[int, SiteFactor]:
    file = read_carbon_file(file_of(priced))
    for cluster in Cluster.objects.all():
        EnergyFactor.objects.create(
            cluster=cluster, pue=PUE, carbon_hours=dict(file.hours), valid_from=BEGINNING
        )
    return {
        pk: SiteFactor(pk, BEGINNING, None, PUE, by_hour=file.hours)
        for pk in Cluster.objects.values_list("pk", flat=True)
    }


@pytest.mark.django_db
def test_carbon_is_reproducible_from_the_file(priced: Priced) -> None:
    """Usage by hour × factors by hour × PUE, recomputed, is what every grouping sums to."""
    by_file(priced)
    assert price_hours(now=NOW) > 0
    assert price_hours(now=NOW) == 0, "nothing is due again"
    hourly = UsageQuery(priced.window, TimeStep.HOUR, (Grouping.TEAM,))
    expected: dict[str, Decimal] = defaultdict(Decimal)
    without: dict[str, int] = defaultdict(int)
    for row in usage_rows(hourly, visibility=EVERYTHING):
        assert row.period is not None
        grams, team = grams_of(row.period.astimezone(UTC)), row.groups["team"]
        expected[team] += row.amounts.energy_mwh * Decimal(grams or 0) * PUE
        without[team] += 0 if grams else row.amounts.energy_mwh
    asked = UsageQuery(priced.window, group_by=(Grouping.TEAM,))
    found = carbon_sums(asked, visibility=EVERYTHING)
    pods = PodHour.objects.count()
    assert {names[0] for _, names in found} == {team for team, ug in expected.items()}
    for (_, (team,)), one in found.items():
        assert abs(one.carbon_ug - expected[team]) <= pods
    totals = {
        row.groups["team"]: row.amounts.energy_mwh
        for row in usage_rows(asked, visibility=EVERYTHING)
    }
    for (_, names), one in found.items():
        kwh = one.kwh_without(totals[names[0]])
        assert kwh == without[names[0]] / 10**6
        assert kwh, "a quarter of the hours is not in the file"
    whole = sum(one.carbon_ug for one in found.values())
    for group_by in ((), (Grouping.WORKLOAD,), (Grouping.TIER,), (Grouping.CLUSTER, Grouping.TEAM)):
        for interval in (TimeStep.TOTAL, TimeStep.HOUR, TimeStep.DAY):
            sums = carbon_sums(UsageQuery(priced.window, interval, group_by), visibility=EVERYTHING)
            assert sum(one.carbon_ug for one in sums.values()) == whole, (group_by, interval)


@pytest.mark.django_db
def test_a_changed_factor_changes_only_its_own_hours(priced: Priced) -> None:
    by_file(priced)
    price_hours(now=NOW)
    changed = EnergyFactor.objects.order_by("pk").first()
    assert changed is not None
    at = priced.window.start + 5 * HOUR
    changed.carbon_hours[hour_key(at)] = "999"
    changed.save()
    before = carbon_sums(UsageQuery(priced.window, TimeStep.HOUR), visibility=EVERYTHING)
    # The hours of its day on both clusters: a digest holds for all of them, as one of prices does.
    assert price_hours(now=NOW) == 24 * Cluster.objects.count()
    after = carbon_sums(UsageQuery(priced.window, TimeStep.HOUR), visibility=EVERYTHING)
    assert [key[0] for key in after if after[key] != before[key]] == [at]


@pytest.mark.django_db
def test_each_of_two_hours_of_one_local_time_has_its_own_carbon() -> None:
    """In autumn 02:00 comes twice: two rows of usage, each with the carbon of its own energy."""
    priced = make_priced(days=1, first=date(2026, 10, 25))
    west = Cluster.objects.get(name="west")
    EnergyFactor.objects.create(cluster=west, carbon_g_per_kwh=100, valid_from=BEGINNING)
    price_hours(now=NOW)
    zone = priced.portal.zone
    hourly = UsageQuery(priced.window, TimeStep.HOUR, filters=Filters(cluster=("west",)))
    rows = usage_rows(hourly, visibility=EVERYTHING, zone=zone)
    carbon = carbon_of(rows, hourly, visibility=EVERYTHING, zone=zone)
    assert [row.period.hour for row in rows if row.period][2:4] == [2, 2]
    assert all(row.amounts.energy_mwh for row in rows)
    for row, (grams, without) in zip(rows, carbon, strict=True):
        assert grams == pytest.approx(row.amounts.energy_mwh / 10**6 * 100)
        assert without == 0


@pytest.mark.django_db
def test_no_factor_is_not_zero_and_zero_is_not_no_factor(priced: Priced) -> None:
    asked = UsageQuery(priced.window)
    assert carbon_sums(asked, visibility=EVERYTHING) == {}
    assert not TeamCostDay.objects.exclude(carbon_mwh=0).exists()
    first = Cluster.objects.order_by("pk").first()
    assert first is not None
    EnergyFactor.objects.create(cluster=first, carbon_g_per_kwh=0, valid_from=BEGINNING)
    price_hours(now=NOW)
    found = carbon_sums(
        UsageQuery(priced.window, group_by=(Grouping.CLUSTER,)), visibility=EVERYTHING
    )
    assert [(key[1], one.grams) for key, one in found.items()] == [((first.name,), 0.0)]
    (whole,) = carbon_sums(asked, visibility=EVERYTHING).values()
    drawn = sum(TierHour.objects.values_list("energy_mwh", flat=True))
    other = sum(TierHour.objects.exclude(cluster=first).values_list("energy_mwh", flat=True))
    assert whole.kwh_without(drawn) == other / 10**6 > 0
    assert whole.kwh_without(0) is None, "no exporter shows energy"
    nodes = UsageQuery(priced.window, filters=Filters(node=("n",)))
    assert carbon_sums(nodes, visibility=EVERYTHING) == {}
    assert {
        WorkloadCostDay.objects.exclude(carbon_ug=0).count(),
        PoolCostDay.objects.exclude(free_carbon_ug=0).count(),
    } == {0}


@pytest.mark.django_db
def test_a_catalog_names_the_file_and_loading_reads_it(tmp_path: Path) -> None:
    place = tmp_path / "catalog.yaml"
    carbon = tmp_path / "west.csv"
    cluster = small()["clusters"][0]

    def load(energy: dict[str, str], when: datetime = NOW) -> list[str]:
        text = yaml.safe_dump(small(clusters=[cluster | {"energy": energy}]))
        return changes(load_catalog(text, str(place), now=when))

    by_hour = {"pue": "1.3", "carbon_file": "west.csv", "valid_from": "2026-01-01"}
    with pytest.raises(CatalogError, match=r"carbon_file: cannot be read: No such file"):
        load(by_hour)
    carbon.write_text("2026-01-01T00:00:00Z,380\n2026-01-01T01:00:00Z,many\n")
    with pytest.raises(CatalogError, match=r"west.csv, line 2, g_per_kwh: 'many' is not a number"):
        load(by_hour)
    for wrong, said in (
        ({"pue": "0.9", "carbon_g_per_kwh": "1"}, "pue: must be 1 or more, not 0.9"),
        ({"pue": "1.1"}, "has neither of carbon_g_per_kwh and carbon_file"),
        ({"carbon_g_per_kwh": "1", **by_hour}, "has both of carbon_g_per_kwh and carbon_file"),
        ({"carbon_file": "west.csv"}, "carbon_file: needs valid_from"),
    ):
        with pytest.raises(CatalogError, match=said):
            load(wrong)
    carbon.write_text("hour,g_per_kwh\n2026-01-01T00:00:00Z,380\n")
    assert "added energy factor west" in load(by_hour)
    assert load(by_hour) == []
    carbon.write_text("2026-01-01T00:00:00Z,380\n2026-01-01T01:00:00Z,381.5\n")
    assert load(by_hour) == ["corrected energy factor west"]
    assert EnergyFactor.objects.get().carbon_hours == {
        "2026-01-01T00": "380",
        "2026-01-01T01": "381.5",
    }
    # A file that is wrong in one line changes nothing of what is known.
    carbon.write_text("2026-01-01T00:00:00Z,370\n0001-01-01T00:00:00Z,1\n")
    with pytest.raises(CatalogError, match=r"carbon_file: .*west\.csv, line 2, hour: '0001"):
        load(by_hour)
    assert len(EnergyFactor.objects.get().carbon_hours) == 2
    assert EnergyFactor.objects.get().carbon_hours["2026-01-01T00"] == "380"
    from_may = {"carbon_g_per_kwh": "120", "valid_from": "2026-05-01"}
    assert load(from_may) == ["changed energy factor west"]
    assert EnergyFactor.objects.filter(valid_to=None).get().carbon_g_per_kwh == 120
