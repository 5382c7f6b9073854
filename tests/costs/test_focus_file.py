import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from apps.accounts.domain.structs import replace
from apps.costs.domain.costing import Cause
from apps.costs.domain.files import FileFormat, FocusVersion
from apps.costs.domain.focus_columns import focus_columns, own_columns
from apps.costs.domain.focus_file import EARLIER_NAMES, Charge, Issuer, focus_file, order
from apps.usage.domain.amounts import NANO
from tests.costs.focus_requirements import REQUIREMENTS, columns_of
from tests.costs.focus_validator import OUTDATED_RULES, needs_validator, verdict
from tests.costs.written import NOTES, PRICE, START, bytes_of, charge, reference_charges

FOCUS = (FileFormat.FOCUS_CSV, FileFormat.FOCUS_PARQUET)
MANDATORY = {name for name in columns_of("1.0") if REQUIREMENTS[name].level == "M"}
NEVER_NULL = {name for name in MANDATORY if not REQUIREMENTS[name].nullable}
COLUMNS = focus_columns(FocusVersion.V1_0)
OURS = own_columns(FocusVersion.V1_0)
UNPRICED = charge(START, 24, "Job/two", Cause.IDLE, NANO, None)
FREE = replace(charge(START, 24, "", Cause.UNALLOCATED, NANO, PRICE), team="")


def focus_bytes(charges: list[Charge], format_: FileFormat, *, earlier_names: bool = True) -> bytes:
    file = focus_file(
        sorted(charges, key=order), issuer=Issuer(), notes=NOTES, earlier_names=earlier_names
    )
    return bytes_of(file, format_)


def rows_of(charges: list[Charge]) -> list[dict[str, str]]:
    text = focus_bytes(charges, FileFormat.FOCUS_CSV).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_there_are_21_mandatory_columns_and_43_in_all_beside_ours() -> None:
    assert (len(MANDATORY), len(COLUMNS)) == (21, 43)
    assert set(COLUMNS) == columns_of("1.0")
    assert all(name.startswith("x_") for name in OURS)
    (row,) = rows_of([UNPRICED])
    assert list(row) == [*COLUMNS, *sorted(EARLIER_NAMES), *OURS]


def test_earlier_names_repeat_what_stands_under_the_names_of_1_0() -> None:
    for row in rows_of([*reference_charges()[:4], UNPRICED, FREE]):
        assert {old: row[old] for old in EARLIER_NAMES} == {
            old: row[new] for old, new in EARLIER_NAMES.items()
        }


def test_without_earlier_names_all_that_1_0_does_not_define_has_its_prefix() -> None:
    content = focus_bytes([UNPRICED], FileFormat.FOCUS_CSV, earlier_names=False)
    names = content.decode().splitlines()[0].split(",")
    assert names == [*COLUMNS, *OURS]


def test_what_may_not_be_null_is_not() -> None:
    for row in rows_of([*reference_charges()[:4], UNPRICED, FREE]):
        assert [name for name in sorted(NEVER_NULL) if not row[name]] == []


def test_the_rows_sum_to_the_reference_totals_to_the_cent() -> None:
    rows = rows_of(reference_charges())
    total = sum(Decimal(row["BilledCost"]) for row in rows)
    wasted = sum(Decimal(row["BilledCost"]) for row in rows if row["x_Cause"] != "busy")
    assert total == Decimal("71481.60")
    assert wasted == Decimal("33060.24")


def test_csv_and_parquet_have_the_same_rows() -> None:
    charges = [*reference_charges(), UNPRICED, FREE]
    content = focus_bytes(charges, FileFormat.FOCUS_PARQUET)
    table = pq.read_table(io.BytesIO(content)).to_pylist()
    for there, here in zip(table, rows_of(charges), strict=True):
        assert there["BilledCost"] == float(here["BilledCost"])
        assert (there["ResourceId"] or "") == here["ResourceId"]
        assert (
            there["ChargePeriodStart"].strftime("%Y-%m-%dT%H:%M:%SZ") == here["ChargePeriodStart"]
        )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(
            charge(START, 24, "Job/a", Cause.IDLE, 2 * NANO, 2 * PRICE),
            {
                "BilledCost": "6.12000000",
                "PricingQuantity": "2.000000000",
                "ContractedUnitPrice": "3.06000000",
                "ChargeCategory": "Usage",
                "ChargeClass": "",
                "ChargePeriodStart": "2026-09-01T00:00:00Z",
                "ChargePeriodEnd": "2026-09-02T00:00:00Z",
                "ResourceId": "west/vision/Job/a",
                "SubAccountId": "west/vision",
                "PricingCategory": "Standard",
                "x_Cause": "idle",
                "x_Unpriced": "false",
                "x_PriceBookVersion": "0123456789ab",
                "x_TimeZone": "Europe/Berlin",
                "x_UnallocatedPolicy": "platform",
                "x_WindowStart": "2026-09-01T00:00:00Z",
            },
            id="work",
        ),
        pytest.param(
            FREE,
            {
                "ResourceType": "GPU capacity",
                "ResourceId": "west/exclusive-a100/NVIDIA-A100-SXM4-80GB",
                "SubAccountId": "",
                "x_Team": "",
            },
            id="capacity that nobody held",
        ),
        pytest.param(
            UNPRICED,
            {"BilledCost": "0.00000000", "ContractedUnitPrice": "", "x_Unpriced": "true"},
            id="unpriced says so beside its zero",
        ),
        pytest.param(
            replace(FREE, correction=True, cost=-PRICE, gpu_hours=-NANO),
            {"ChargeClass": "Correction", "BilledCost": "-3.06000000"},
            id="a correction",
        ),
        pytest.param(
            replace(FREE, capacity_type="spot"), {"PricingCategory": "Dynamic"}, id="spot"
        ),
        pytest.param(
            replace(FREE, capacity_type="reserved"), {"PricingCategory": "Committed"}, id="reserved"
        ),
        pytest.param(
            replace(FREE, list_price=2 * PRICE),
            {"ListCost": "6.12000000", "ContractedCost": "3.06000000"},
            id="a discount",
        ),
    ],
)
def test_a_charge_becomes_a_row(one: Charge, expected: dict[str, str]) -> None:
    (row,) = rows_of([one])
    assert {name: row[name] for name in expected} == expected


def test_tags_are_a_json_object_without_empty_values() -> None:
    (row,) = rows_of([FREE])
    assert json.loads(row["Tags"]) == {
        "gpuportal/cost_center": "CC-100",
        "gpuportal/tier": "exclusive-a100",
    }


@needs_validator
@pytest.mark.parametrize("format_", FOCUS)
def test_the_validator_passes_every_rule(format_: FileFormat, tmp_path: Path) -> None:
    file = tmp_path / f"focus.{format_.suffix}"
    file.write_bytes(focus_bytes([*reference_charges(), UNPRICED, FREE], format_))
    assert verdict(file) == "Validation succeeded."


@needs_validator
def test_without_earlier_names_it_misses_them_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "focus.csv"
    charges = [*reference_charges()[:20], UNPRICED, FREE]
    file.write_bytes(focus_bytes(charges, FileFormat.FOCUS_CSV, earlier_names=False))
    assert verdict(file, without=OUTDATED_RULES) == "Validation succeeded."


@needs_validator
def test_the_validator_tells_a_broken_file(tmp_path: Path) -> None:
    file = tmp_path / "focus.csv"
    content = focus_bytes([UNPRICED], FileFormat.FOCUS_CSV)
    file.write_bytes(content.replace(b",USD,", b",dollars,"))
    assert "BillingCurrency_IsCurrencyCode failed" in verdict(file)
