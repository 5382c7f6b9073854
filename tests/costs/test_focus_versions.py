"""Files of FOCUS 1.2 and 1.3: held against the published requirements, and equal in sum to 1.0."""

import csv
import io
import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING, Visibility, visibility_of
from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.models import TierRule
from apps.costs.domain.costing import Basis, Cause, Policy, fact_cost, money
from apps.costs.domain.files import FileFormat, FocusVersion, focus_format
from apps.costs.domain.focus_columns import focus_columns
from apps.costs.domain.focus_file import Charge, Issuer, focus_file, order
from apps.costs.domain.split_charges import ENERGY_METHOD, METHODS
from apps.costs.models import Price
from apps.costs.selectors import CostQuery, cost_rows, period_file
from apps.costs.services import price_hours
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import TimeStep
from tests.costs.focus_requirements import Row, columns_of, violations
from tests.costs.portal import NOW, PRICES, Priced, make_priced
from tests.costs.written import NOTES, PRICE, START, bytes_of, charge, reference_charges
from tests.factories import BEGINNING
from tests.shared_rows import shared

LATER = [FocusVersion.V1_2, FocusVersion.V1_3]
OCTOBER = date(2026, 10, 1)
DOCUMENT = Path(__file__).parents[2] / "docs" / "definitions.md"
priced = shared(make_priced)


def shares() -> list[Charge]:
    """Return a pool of 8 GPU-hours of each method, its energy, and a correction of it."""
    found = []
    for sharing in METHODS:
        parts = {"Job/a": (Cause.BUSY, 3 * NANO), "Job/b": (Cause.IDLE, NANO)}
        pool = {**parts, "": (Cause.UNALLOCATED, 4 * NANO)}
        for workload, (cause, held) in pool.items():
            cost = fact_cost({cause: held}, PRICE)[cause]
            line = charge(START, 24, workload, cause, held, cost)
            shared_line = replace(
                *(line,),
                tier=f"shared-{sharing}",
                sharing=sharing,
                origin=8 * NANO,
                price_source="p",
            )
            found.append(shared_line if workload else replace(shared_line, team="", cost_center=""))
    whole = [one for one in found if one.sharing is GpuSharing.MIG]
    drawn = (6_000_000, 2_000_000, 1_000_000)
    for line, mwh in zip(whole, drawn, strict=True):
        energy = replace(line, cause=Cause.ENERGY, gpu_hours=0, cost=mwh * 45, energy_mwh=mwh)
        # 0.45 for a kilowatt-hour.
        found.append(replace(energy, origin=sum(drawn), price=45_000_000, list_price=45_000_000))
    return [*found, replace(found[0], correction=True, price=None, list_price=None, origin=None)]


EVERY_KIND = [
    *reference_charges()[:6],
    charge(START, 24, "Job/two", Cause.IDLE, NANO, None),
    replace(charge(START, 24, "", Cause.UNALLOCATED, NANO, PRICE), team=""),
    replace(charge(START, 24, "Job/r", Cause.BUSY, NANO, PRICE), capacity_type="reserved"),
    replace(charge(START, 24, "Job/s", Cause.BUSY, NANO, PRICE), capacity_type="spot"),
    replace(charge(START, 24, "Job/c", Cause.BUSY, -NANO, -PRICE), correction=True),
    replace(charge(START, 24, "Job/d", Cause.BUSY, NANO, PRICE), list_price=2 * PRICE, region="eu"),
    *shares(),
]


def written(charges: list[Charge], version: FocusVersion) -> list[Row]:
    ordered = sorted(charges, key=order)
    file = focus_file(ordered, issuer=Issuer(), notes=NOTES, version=version)
    return read(bytes_of(file, focus_format(version, "csv")))


def read(content: bytes) -> list[Row]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def month(
    version: FocusVersion, visibility: Visibility = EVERYTHING, **charging: object
) -> list[Row]:
    format_ = focus_format(version, "csv")
    file = period_file(OCTOBER, format_, visibility=visibility, **charging)  # type: ignore[arg-type]
    return read(bytes_of(file, format_))


def billed(rows: list[Row]) -> Decimal:
    return sum((Decimal(row["BilledCost"]) for row in rows), Decimal(0))


def ratio(row: Row) -> float:
    (element,) = json.loads(row["AllocatedMethodDetails"])["Elements"]
    return float(element["AllocatedRatio"])


def share_out(priced: Priced, sharing: GpuSharing) -> str:
    """Let the GPUs of the first tier be shared; return its name."""
    tier = priced.portal.tiers[0]
    TierRule.objects.filter(tier=tier).delete()
    TierRule.objects.create(
        tier=tier, position=0, sharing=sharing.value, resources=["gpu"], valid_from=BEGINNING
    )
    return tier.name


@pytest.mark.parametrize("version", LATER)
def test_a_version_has_the_columns_that_it_defines(version: FocusVersion) -> None:
    assert set(focus_columns(version)) == columns_of(version)
    assert len(focus_columns(version)) == {"1.2": 57, "1.3": 65}[version]


@pytest.mark.parametrize("version", LATER)
def test_every_kind_of_charge_meets_the_requirements(version: FocusVersion) -> None:
    rows = written(EVERY_KIND, version)
    assert violations(rows, rows[0], version) == []
    assert {row["x_PriceSource"] for row in rows} == {"", "p"}
    assert billed(rows) == billed(written(EVERY_KIND, FocusVersion.V1_0))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("BillingCurrency", "dollars", "BillingCurrency is no currency: dollars"),
        ("HostProviderName", "", "HostProviderName is null"),
        ("ChargeCategory", "Use", "ChargeCategory has a value that is not allowed: Use"),
        ("SkuPriceId", "", "SkuPriceId of usage is null"),
        ("ContractedCost", "9.0", "ContractedCost is not ContractedUnitPrice × PricingQuantity"),
        ("SubAccountId", "west/x", "SubAccountId is not the same in all parts of a charge"),
        ("AllocatedTags", '{"gpuportal/tier": "x"}', "AllocatedTags repeat those of the charge: "),
        ("AllocatedMethodId", "", "AllocatedResourceId without a method"),
    ],
)
def test_the_requirements_tell_a_broken_file(column: str, value: str, said: str) -> None:
    rows = written(shares()[:3], FocusVersion.V1_3)
    broken = [{**rows[0], column: value}, *rows[1:]]
    rows_of_both = [broken, [*rows[:-1], {**rows[-1], column: value}]]
    found = {text for some in rows_of_both for text in violations(some, rows[0], "1.3")}
    assert any(text.startswith(said) for text in found), found


def test_a_shared_gpu_says_of_what_it_is_a_part_and_whose() -> None:
    unallocated, a, _b = sorted(
        written(shares()[:3], FocusVersion.V1_3), key=lambda row: row["AllocatedResourceId"]
    )
    assert (a["AllocatedMethodId"], a["AllocatedResourceId"], a["AllocatedResourceName"]) == (
        "gpuportal-time-sliced",
        "west/vision/Job/a",
        "Job/a",
    )
    assert json.loads(a["AllocatedMethodDetails"]) == {
        "Elements": [{"AllocatedRatio": 0.375, "UsageUnit": "GPU-Hours", "UsageQuantity": 3.0}]
    }
    assert json.loads(a["AllocatedTags"]) == {
        "gpuportal/cost_center": "CC-100",
        "gpuportal/namespace": "vision",
        "gpuportal/team": "vision",
    }
    assert a["ResourceId"] == unallocated["ResourceId"]
    assert (unallocated["AllocatedResourceId"], ratio(unallocated)) == ("", 0.5)
    (whole,) = written([EVERY_KIND[0]], FocusVersion.V1_3)
    assert not any(text for name, text in whole.items() if name.startswith("Allocated"))
    assert (whole["ResourceName"], whole["SubAccountId"]) == ("Job/one", "west/vision")


def test_each_method_is_defined_in_the_document() -> None:
    text = DOCUMENT.read_text()
    assert [one for one in (*METHODS.values(), ENERGY_METHOD) if f"| `{one}` |" not in text] == []
    # Energy is split by another rule than GPU-hours (apps.usage.domain.attribution.energy).
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{ENERGY_METHOD}` |"))
    assert "[idle part](#energy-and-carbon) by what was held" in row
    assert "the rest by activity" in row


def test_formats_tell_their_version() -> None:
    known = {f: f.focus_version for f in FileFormat if f.is_focus}
    assert {focus_format(v, f.suffix): v for f, v in known.items() if v is not None} == known
    assert focus_format(FocusVersion.V1_0, "csv") is FileFormat.FOCUS_CSV
    assert FileFormat.FOCUS_1_3_CSV.subject == "focus1.3"


@pytest.mark.django_db
@pytest.mark.parametrize("policy", Policy)
def test_all_versions_of_a_month_sum_to_the_costs(priced: Priced, policy: Policy) -> None:
    share_out(priced, GpuSharing.TIME_SLICED)
    Price.objects.update(per_kwh=Decimal("0.3"), pue=Decimal("1.5"))
    price_hours(now=NOW)
    basis = Basis.USED if policy is Policy.USE else Basis.ALLOCATED
    asked = CostQuery(priced.window, TimeStep.TOTAL, basis=basis, policy=policy)
    costs = money(sum(row.cost or 0 for row in cost_rows(asked, visibility=EVERYTHING)))
    for version in FocusVersion:
        rows = month(version, basis=basis, policy=policy)
        assert billed(rows) == costs, version
        if version in LATER:
            assert violations(rows, rows[0], version) == []
    split = [row for row in rows if row["AllocatedMethodId"]]
    assert {row["AllocatedMethodId"] for row in split} == {"gpuportal-time-sliced", ENERGY_METHOD}
    assert {row["x_Tier"] for row in split} == {priced.portal.tiers[0].name}
    assert all(row["x_PriceSource"].startswith("list price of ") for row in rows)


@pytest.mark.django_db
def test_a_share_is_of_the_whole_pool_whoever_reads_it(priced: Priced) -> None:
    share_out(priced, GpuSharing.MPS)
    everything = {
        (row["ChargePeriodStart"], row["AllocatedResourceId"], row["x_Cause"]): ratio(row)
        for row in month(FocusVersion.V1_3)
        if row["AllocatedResourceId"]
    }
    own = [
        row
        for row in month(FocusVersion.V1_3, visibility_of(priced.portal.ada))
        if row["AllocatedResourceId"]
    ]
    assert own
    assert len(own) < len(everything)
    for row in own:
        key = (row["ChargePeriodStart"], row["AllocatedResourceId"], row["x_Cause"])
        assert ratio(row) == everything[key]


@pytest.mark.django_db
def test_a_line_says_which_price_of_the_book_it_has(priced: Priced) -> None:
    model, kind, amount = PRICES[1]
    price = Price.objects.filter(gpu_model=model, capacity_type=kind)
    price.update(source="contract 7", kind="negotiated")
    rows = [row for row in month(FocusVersion.V1_2) if row["SkuId"] == f"{model}/{kind}"]
    assert rows
    since = f"{BEGINNING:%Y-%m-%dT%H:%MZ}"
    for row in rows:
        assert row["x_PriceSource"] == (
            f"negotiated price of {model}, {kind}, from {since}: contract 7"
        )
        assert Decimal(row["ContractedUnitPrice"]) == Decimal(amount)
    # A price that was taken out of the book is not known any more, and none is made up.
    price.delete()
    gone = [row for row in month(FocusVersion.V1_2) if row["SkuId"] == f"{model}/{kind}"]
    assert {row["x_PriceSource"] for row in gone} == {""}
