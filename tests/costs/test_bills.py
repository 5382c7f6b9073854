"""Bills in the database: importing, replacing, mapping, deleting, and reconciling a month."""

import io
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import AuditEntry
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.models import GpuModel
from apps.costs import selectors as costs
from apps.costs.domain.bills.charges import BillRefused, ChargeKind
from apps.costs.domain.bills.sku_mapping import SkuTarget
from apps.costs.domain.costing import Basis, Policy, units
from apps.costs.domain.files import FileFormat
from apps.costs.models import Bill, BillAmount, BillSku, SkuMapping
from apps.costs.selectors import Reconciliation, SkuRow
from apps.costs.services import BillInput, check_size, delete_bill, import_bill, map_skus
from apps.usage.models import CollectionWindow
from tests.costs.bills import FINN, FOCUS_HEAD, NOW, OCTOBER, focus_row, imported, plain, written
from tests.costs.portal import PRICES, Priced, make_priced, rows, total
from tests.costs.written import bytes_of
from tests.factories import A100, H100, make_cluster, make_report
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db
_priced = shared(make_priced)
LEAD = Visibility(everything=False, team_ids=frozenset({1}))


priced = copy_of("_priced")


def reconciled(month: date = OCTOBER) -> Reconciliation:
    found = costs.reconcile(month, visibility=EVERYTHING, now=NOW)
    assert found is not None
    return found


def skus() -> list[SkuRow]:
    return costs.sku_rows(OCTOBER, visibility=EVERYTHING)


def own_export(format_: FileFormat, policy: Policy = Policy.PLATFORM) -> bytes:
    file = costs.period_file(
        OCTOBER, format_, visibility=EVERYTHING, basis=Basis.ALLOCATED, policy=policy
    )
    return bytes_of(file, format_)


# ---------------------------------------------------------------- reconcile


@pytest.mark.parametrize("policy", list(Policy))
def test_the_portals_own_focus_file_has_no_difference(priced: Priced, policy: Policy) -> None:
    bill = imported(own_export(FileFormat.FOCUS_CSV, policy))
    found = reconciled()
    assert bill.total == found.whole.portal == total(rows(priced.window)) > 0
    assert found.whole.difference == 0
    assert [day.difference for day in found.days] == [0] * len(found.days)
    assert {day.gpu_model for day in found.days} == {A100, H100}
    assert {pool.capacity_type for pool in found.pools} == {"spot", "on-demand"}
    assert (found.parts.not_mapped, found.parts.not_gpu, sum(found.parts.apart.values())) == (
        0,
    ) * 3


def test_so_has_its_parquet_file_but_for_the_digits_of_a_double(priced: Priced) -> None:
    imported(own_export(FileFormat.FOCUS_PARQUET))
    found = reconciled()
    assert abs(found.whole.difference) <= len(found.days)


def test_a_bill_is_compared_by_day_and_model_and_the_rest_is_told(priced: Priced) -> None:
    day = priced.window.start.astimezone(priced.portal.zone).date()
    imported(plain((day, A100, 100), (day, "p5", 50), (day, "s3", 20)))
    map_skus({"s3": SkuTarget("")}, by=FINN, now=NOW)
    found = reconciled()
    assert (found.parts.gpus, found.parts.not_gpu) == (units_of(100), units_of(20))
    assert (found.parts.not_mapped, found.parts.total) == (units_of(50), units_of(170))
    own = {(row.day, row.gpu_model): row for row in found.days}
    ledger = total(r for r in rows(priced.window) if r.groups.get("gpu_model", A100) == A100)
    assert ledger > 0
    row = own[day, A100]
    assert row.billed_cost == units_of(100)
    assert row.difference == row.billed_cost - row.portal_cost
    assert own[day, H100].billed_cost == 0
    assert {row.missing_hours for row in found.days} == {0}
    assert found.whole.billed + found.parts.not_gpu + found.parts.not_mapped == found.parts.total


def units_of(amount: int) -> int:
    return units(Decimal(amount))


def test_what_is_no_usage_is_kept_apart(priced: Priced) -> None:
    start, end = "2026-10-30T00:00:00+01:00", "2026-10-31T00:00:00+01:00"
    lines = [
        focus_row(A100, "100", start, end),
        focus_row(A100, "-10", start, end),
        focus_row("vat", "19", start, end, ChargeCategory="Tax"),
        focus_row(A100, "-5", start, end, ChargeClass="Correction"),
    ]
    imported(written(FOCUS_HEAD, lines))
    parts = reconciled().parts
    assert dict(parts.apart) == {
        ChargeKind.CREDIT: units_of(-10),
        ChargeKind.TAX: units_of(19),
        ChargeKind.CORRECTION: units_of(-5),
    }
    assert parts.gpus == units_of(100)
    assert parts.total == units_of(104)


def test_hours_without_facts_and_without_a_price_are_told() -> None:
    priced = make_priced(prices=[price for price in PRICES if price[0] != A100])
    imported(plain(("2026-10-30", A100, 100)))
    hour = priced.window.start + timedelta(hours=3)
    lost, _ = CollectionWindow.objects.filter(hour=hour).delete()
    found = reconciled()
    own = {(row.day, row.gpu_model): row for row in found.days}
    day = hour.astimezone(priced.portal.zone).date()
    assert own[day, A100].unpriced_gpu_hours > 0
    assert own[day, A100].portal_cost == 0
    assert own[day, A100].difference_ratio is None
    assert own[day, A100].missing_hours == lost > 0
    assert found.gaps.unpriced
    (pool,) = [pool for pool in found.pools if pool.gpu_model == A100]
    assert pool.unpriced_gpu_hours > own[day, A100].unpriced_gpu_hours


def test_the_hour_that_runs_is_not_missing_where_hours_begin_at_half_past() -> None:
    make_report("Asia/Kolkata")
    GpuModel.objects.create(name=A100)
    begun = datetime(2026, 9, 30, 18, 30, tzinfo=UTC)
    CollectionWindow.objects.create(cluster=make_cluster(), hour=begun, state="complete")
    imported(plain(("2026-10-01", A100, 100)))
    for minutes, missing in ((105, 0), (119, 0), (120, 1)):
        now = begun + timedelta(minutes=minutes)
        found = costs.reconcile(OCTOBER, visibility=EVERYTHING, now=now)
        assert found is not None
        assert [row.missing_hours for row in found.days] == [missing]


def test_hours_of_a_bill_in_utc_are_compared_on_their_local_day(priced: Priced) -> None:
    """The last hour of a month in UTC is of the next month in Berlin."""
    line = focus_row(A100, "24", "2026-10-31T00:00:00Z", "2026-11-01T00:00:00Z")
    imported(written(FOCUS_HEAD, [line]))
    assert reconciled().parts.total == units_of(23)
    november = reconciled(date(2026, 11, 1))
    assert november.parts.total == units_of(1)
    assert november.days[0].day == date(2026, 11, 1)


def test_reconciling_takes_a_known_number_of_queries(
    priced: Priced, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    imported(own_export(FileFormat.FOCUS_CSV))
    with django_assert_max_num_queries(20):
        reconciled()


def test_the_difference_of_months_is_that_of_their_bills(priced: Priced) -> None:
    assert costs.bill_differences(visibility=EVERYTHING, now=NOW) == {}
    imported(plain(("2026-10-30", A100, 1)))
    assert costs.bill_differences(visibility=EVERYTHING, now=NOW) == {
        OCTOBER: reconciled().whole.ratio
    }


def test_bills_are_for_who_sees_everything(priced: Priced) -> None:
    imported(plain(("2026-10-30", A100, 1)))
    assert costs.bill_rows(visibility=LEAD) == []
    assert costs.bill_months(visibility=LEAD) == []
    assert costs.sku_rows(OCTOBER, visibility=LEAD) == []
    assert costs.reconcile(OCTOBER, visibility=LEAD, now=NOW) is None
    assert costs.bill_differences(visibility=LEAD, now=NOW) == {}


# ---------------------------------------------------------------- import


def entries() -> Sequence[Any]:
    found = AuditEntry.objects.filter(action__in=["import-bill", "delete-bill", "map-skus"])
    return list(found.order_by("number"))


def test_a_later_bill_of_a_month_replaces_the_earlier_and_history_keeps_both(
    priced: Priced,
) -> None:
    first = imported(plain(("2026-10-30", A100, 1)))
    second = imported(plain(("2026-10-30", A100, 2), ("2026-10-31", A100, 2)))
    first.refresh_from_db()
    assert (first.ended_at, first.ended_by, first.replaced_by) == (NOW, "finn", second)
    assert reconciled().parts.total == units_of(4)
    assert BillSku.objects.filter(bill=first).count() == 0
    shown = costs.bill_rows(visibility=EVERYTHING, month=OCTOBER)
    # In force first, whichever way the database sorts null.
    assert [(row.id, row.ended_at) for row in shown] == [(second.pk, None), (first.pk, NOW)]
    one, two = entries()
    assert (one.action, one.subject, one.before) == ("import-bill", "bill/2026-10", "")
    assert json.loads(two.before) == json.loads(one.after)
    assert json.loads(one.after)["sha256"] == first.sha256
    assert json.loads(two.after)["total"] == "4.00000000"


def test_bills_of_several_providers_are_compared_together(priced: Priced) -> None:
    imported(plain(("2026-10-30", A100, 1)), provider="aws")
    imported(plain(("2026-10-30", A100, 2)), provider="colo")
    imported(plain(("2026-10-30", A100, 3)), provider="colo")
    assert reconciled().parts.total == units_of(4)
    assert Bill.objects.filter(ended_at__isnull=True).count() == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (plain(("2026-10-30", A100, 1), ("2026-10-31", A100, "x")), "Line 3"),
        (plain(("2026-09-30", A100, 1)), "no charge of 2026-10"),
        (b"day;sku;cost;currency\n2026-10-30;a;1.234;USD\n2026-10-30;a;0,5;USD\n", "Line 2"),
    ],
)
def test_of_a_wrong_file_nothing_is_imported(priced: Priced, content: bytes, said: str) -> None:
    before = imported(plain(("2026-10-30", A100, 1)))
    with pytest.raises(BillRefused, match=said):
        imported(content)
    before.refresh_from_db()
    assert before.ended_at is None
    assert (Bill.objects.count(), BillAmount.objects.count(), len(entries())) == (1, 1, 1)


class Endless(io.BytesIO):
    """A file that never ends."""

    def read(self, size: int | None = -1) -> bytes:
        return b" " * max(size or 0, 1)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(priced: Priced) -> None:
    check_size(64 * 2**20)
    with pytest.raises(BillRefused, match="65 MiB, more than 64"):
        check_size(65 * 2**20)
    with pytest.raises(BillRefused, match="more than 64"):
        import_bill(Endless(), BillInput(OCTOBER, "endless.csv"), by=FINN, now=NOW)
    with pytest.raises(BillRefused, match="cost column is BilledCost or EffectiveCost"):
        imported(plain(("2026-10-30", A100, 1)), cost="ListCost")


def test_a_bill_is_deleted_once(priced: Priced) -> None:
    bill = imported(plain(("2026-10-30", A100, 1)))
    later = NOW + timedelta(hours=1)
    assert delete_bill(bill.pk, by=FINN, now=later)
    assert not delete_bill(bill.pk, by=FINN, now=later)
    assert costs.bill_months(visibility=EVERYTHING) == []
    assert reconciled().parts.total == 0
    assert [entry.action for entry in entries()] == ["import-bill", "delete-bill"]


# ---------------------------------------------------------------- mapping


def test_mapping_a_sku_moves_its_amount_without_a_new_import(priced: Priced) -> None:
    imported(plain(("2026-10-30", "p5", 50), ("2026-10-30", A100, 1), ("2026-10-30", "vm", 7)))
    assert [(row.sku, row.target) for row in skus()][:2] == [("p5", None), ("vm", None)]
    assert skus()[0].suggestion == H100
    changed = {"p5": SkuTarget(H100, "on-demand"), "vm": SkuTarget("")}
    assert map_skus(changed, by=FINN, now=NOW) == 2
    assert map_skus(changed, by=FINN, now=NOW) == 0
    parts = reconciled().parts
    assert (parts.not_mapped, parts.not_gpu, parts.gpus) == (0, units_of(7), units_of(51))
    map_skus({"p5": SkuTarget(A100)}, by=FINN, now=NOW)
    assert {key.gpu_model for key in reconciled().parts.mapped} == {A100}
    map_skus({"p5": None}, by=FINN, now=NOW)
    assert reconciled().parts.not_mapped == units_of(50)
    assert SkuMapping.objects.count() == 1
    assert [json.loads(entry.after) for entry in entries() if entry.action == "map-skus"] == [
        {"p5": f"{H100} on-demand", "vm": "not GPU"},
        {"p5": A100},
        {"p5": "not mapped"},
    ]


@pytest.mark.parametrize("target", [SkuTarget("TPU v5"), SkuTarget(A100, "weekly")])
def test_a_sku_is_mapped_to_what_the_portal_knows(priced: Priced, target: SkuTarget) -> None:
    with pytest.raises(BillRefused, match="Choose a GPU model"):
        map_skus({"p5": target}, by=FINN, now=NOW)
    assert SkuMapping.objects.count() == 0


# ---------------------------------------------------------------- command


def test_the_command_imports_a_file_and_prints_the_difference(
    priced: Priced, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "october.csv"
    file.write_bytes(own_export(FileFormat.FOCUS_CSV))
    call_command("import_bill", file, month="2026-10")
    said = capsys.readouterr().out
    assert said.startswith("2026-10: ")
    assert "billed - portal: 0.00000000 USD" in said
    assert "not mapped" not in said
    assert Bill.objects.get().imported_by == "portal"
    file.write_bytes(plain(("2026-10-30", "p5", 3)))
    call_command("import_bill", file, month="2026-10", provider="aws")
    assert "not mapped: 3.00000000 USD" in capsys.readouterr().out


def test_the_command_says_what_is_wrong(priced: Priced, tmp_path: Path) -> None:
    file = tmp_path / "october.csv"
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        call_command("import_bill", file, month="2026-10")
    file.write_bytes(plain(("2026-10-30", A100, "x")))
    with pytest.raises(CommandError, match=r"Nothing was imported\. Line 2"):
        call_command("import_bill", file, month="2026-10")
    with pytest.raises(CommandError, match="not a month"):
        call_command("import_bill", file, month="soon")
