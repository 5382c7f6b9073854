"""Files of bills: FOCUS and plain CSV, how their charges are spread, and what is refused."""

import io
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.costs.adapters.bill_files import open_bill
from apps.costs.domain.bills.charges import (
    AmountReader,
    BillCharge,
    BillCurrency,
    BillRefused,
    ChargeKind,
)
from apps.costs.domain.bills.days import BillSums, check_month, spread, sum_charges
from apps.costs.domain.bills.focus_charges import focus_charges, is_focus
from apps.costs.domain.bills.invoice_charges import invoice_charges
from apps.costs.domain.bills.reconciliation import (
    BilledDay,
    ComparedCost,
    PoolDay,
    by_day_and_model,
    by_pool,
    divide,
)
from apps.costs.domain.bills.sku_mapping import SkuMapper, SkuTarget
from tests.costs.bills import FOCUS_HEAD, OCTOBER, focus_row, plain, written

BERLIN, HONOLULU = ZoneInfo("Europe/Berlin"), ZoneInfo("Pacific/Honolulu")
ZONES = [BERLIN, HONOLULU, ZoneInfo("UTC"), ZoneInfo("Asia/Kolkata"), ZoneInfo("Pacific/Apia")]
H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"
UNIT = 10**8
USD = BillCurrency("USD")


def charges(
    content: bytes, *, zone: ZoneInfo = BERLIN, cost: str = "BilledCost"
) -> list[BillCharge]:
    file = open_bill(io.BytesIO(content))
    amounts = AmountReader(semicolons=file.semicolons)
    if is_focus(file.head):
        found = focus_charges(file.head, file.rows, cost_column=cost, currency=USD, amounts=amounts)
    else:
        found = invoice_charges(file.head, file.rows, zone=zone, currency=USD, amounts=amounts)
    read = list(found)
    amounts.check()
    return read


def refusal(content: bytes) -> str:
    with pytest.raises(BillRefused) as caught:
        charges(content)
    return str(caught.value)


def focus(*rows: list[str]) -> bytes:
    return written(FOCUS_HEAD, rows)


# ---------------------------------------------------------------- files


def test_focus_is_read_with_its_kinds_and_other_columns_passed_over() -> None:
    start, end = "2026-10-01T00:00:00Z", "2026-10-02T00:00:00Z"
    content = focus(
        focus_row("p5.48xlarge", "98.32", start, end, ChargeDescription="H100", x_Team="vision"),
        focus_row("", "1", start, end, ResourceType="VM"),
        focus_row("", "2", start, end),
        focus_row("s", "-3", start, end),
        focus_row("s", "-4", start, end, ChargeCategory="Purchase"),
        focus_row("s", "5", start, end, ChargeCategory="Tax"),
        focus_row("s", "-6", start, end, ChargeCategory="Credit"),
        focus_row("s", "7", start, end, ChargeCategory="Adjustment"),
        focus_row("s", "8", start, end, ChargeClass="Correction"),
        focus_row("s", "9", start, end, ChargeCategory="Purchase"),
    )
    found = charges(content)
    assert found[0] == BillCharge(
        "p5.48xlarge",
        "H100",
        ChargeKind.USAGE,
        datetime(2026, 10, 1, tzinfo=UTC),
        datetime(2026, 10, 2, tzinfo=UTC),
        9832 * UNIT // 100,
    )
    assert [one.sku for one in found[1:3]] == ["VM", "(no SKU)"]
    assert [one.kind for one in found[3:]] == [
        ChargeKind.CREDIT,
        ChargeKind.REFUND,
        ChargeKind.TAX,
        ChargeKind.CREDIT,
        ChargeKind.CORRECTION,
        ChargeKind.CORRECTION,
        ChargeKind.USAGE,
    ]


def test_the_cost_column_is_chosen() -> None:
    row = focus_row("a", "10", "2026-10-01", "2026-10-02", EffectiveCost="4")
    assert [one.amount for one in charges(focus(row))] == [10 * UNIT]
    assert [one.amount for one in charges(focus(row), cost="EffectiveCost")] == [4 * UNIT]


def test_parquet_reads_as_csv_does() -> None:
    table = pa.table(
        {
            "BilledCost": pa.array([Decimal("1.25"), Decimal("2.50")]),
            "BillingCurrency": ["USD", "USD"],
            "ChargePeriodStart": [datetime(2026, 10, 1, tzinfo=UTC)] * 2,
            "ChargePeriodEnd": [datetime(2026, 10, 2, tzinfo=UTC)] * 2,
            "SkuId": ["a", None],
            "Tags": ["{}", "{}"],
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    assert [(one.sku, one.amount) for one in charges(out.getvalue())] == [
        ("a", 125 * UNIT // 100),
        ("(no SKU)", 250 * UNIT // 100),
    ]
    broken = out.getvalue()[:-30]
    assert "Parquet file is broken" in refusal(broken)


def test_plain_invoices_have_local_days_and_optional_columns() -> None:
    head = ("Day", "last day", "GPU model", "capacity_type", "cost", "currency", "category")
    content = b"\xef\xbb\xbf" + written(
        head,
        [
            ("2026-10-25", "", A100, "spot", "1.5", "usd", ""),
            ("2026-10-01", "2026-10-31", A100, "", "31", "USD", "usage"),
            ("2026-10-01", "", "", "", "2", "USD", "tax"),
        ],
    )
    one, month, tax = charges(content)
    assert (one.sku, month.sku, tax.sku) == (f"{A100}/spot", A100, "(no SKU)")
    # Summer time ended on this day: it had 25 hours.
    assert one.end - one.start == timedelta(hours=25)
    assert month.end - month.start == timedelta(days=31, hours=1)
    assert tax.kind is ChargeKind.TAX


@pytest.mark.parametrize(
    ("written_as", "amount"),
    [
        ("1.234,50", "1234.5"),
        ("12,5", "12.5"),
        ("-0,01", "-0.01"),
        ("1.234.567", "1234567"),
        ("7", "7"),
        ("7.25", "7.25"),
    ],
)
def test_between_semicolons_a_comma_is_a_decimal_point(written_as: str, amount: str) -> None:
    content = f"day;sku;cost;currency\n2026-10-01;a;{written_as};USD\n".encode()
    assert [one.amount for one in charges(content)] == [int(Decimal(amount) * UNIT)]


def test_between_commas_a_comma_groups_digits_in_quotes() -> None:
    content = b'day,sku,cost,currency\n2026-10-01,a,"1,234.50",USD\n'
    assert [one.amount for one in charges(content)] == [123450 * UNIT // 100]


def test_a_dot_that_can_be_read_in_two_ways_is_refused() -> None:
    head = "day;sku;cost;currency\n2026-10-01;a;1.234;USD\n"
    assert [one.amount for one in charges(head.encode())] == [1234 * UNIT // 1000]
    said = refusal((head + "2026-10-02;a;0,5;USD\n").encode())
    assert said.startswith("Line 2: “1.234” can be read as 1234 or as 1,234")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("2026-13-01,a,1,USD", "Line 3: day “2026-13-01” is no day. Write it as 2026-10-31."),
        ("2026-10-01,a,$1,USD", "Line 3: “$1” is no amount."),
        ("2026-10-01,a,NaN,USD", "is no amount."),
        ("2026-10-01,a,1e30,USD", "no amount that a bill can have"),
        ("2026-10-01,a,,USD", "the cost is empty. Write 0"),
        ("2026-10-01,a,1,EUR", "Line 3: the charge is in EUR, the portal reports in USD."),
        ("2026-10-01,a,1,", "the charge has no currency"),
        ("2026-10-01,a,1", "Line 3: 3 columns where the head has 4."),
        ('2026-10-01,"a,1,USD', "Line 3: the CSV is broken"),
        ("3026-10-01,a,1,USD", "is no charge period"),
    ],
)
def test_a_wrong_line_is_named_with_what_to_do(row: str, said: str) -> None:
    assert said in refusal(f"day,sku,cost,currency\n2026-10-01,a,1,USD\n{row}\n".encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Line 1: the head is empty."),
        (b"\x1f\x8b\x08\x00", "The file is compressed, or a workbook."),
        (b"day,sku,co\xff\n", "Line 1: the text is not UTF-8"),
        (b"day,sku,cost,currency\n2026-10-01,\xff,1,USD\n", "Line 2: the text is not UTF-8"),
        (b"day,amount\n", "Line 1: no column gpu_model or sku, cost, currency."),
        (b"BillingCurrency\nUSD\n", "no column ChargePeriodStart, ChargePeriodEnd, BilledCost"),
        (b"day,last_day,sku,cost,currency\n2026-10-02,2026-10-01,a,1,USD\n", "comes before day"),
        (focus(focus_row("a", "1", "soon", "2026-10-02")), "ChargePeriodStart “soon” is no time"),
        (focus(focus_row("a", "1", "2026-10-02", "2026-10-01")), "ends before it starts"),
        (
            focus(focus_row("a", "1", "2026-10-01", "2026-10-02", ChargeCategory="Fee")),
            "Line 2: the category “Fee” is unknown.",
        ),
    ],
)
def test_a_file_that_is_no_bill_is_refused(content: bytes, said: str) -> None:
    assert said in refusal(content)


def test_lines_are_counted_over_cells_of_several_lines_and_blank_ones() -> None:
    content = b'day,sku,cost,currency\n\n2026-10-01,"a\nb",1,USD\n\n2026-10-01,c,x,USD\n'
    assert refusal(content).startswith("Line 6: “x”")


# ---------------------------------------------------------------- days

_minutes = st.integers(0, 525_000).map(lambda minutes: timedelta(minutes=minutes))
_times = _minutes.map(lambda since: datetime(2026, 1, 1, tzinfo=UTC) + since)
_amounts = st.integers(-(10**15), 10**15)


@given(
    start=_times,
    length=st.timedeltas(timedelta(0), timedelta(days=70)),
    amount=_amounts,
    zone=st.sampled_from(ZONES),
)
def test_a_charge_is_spread_over_its_days_and_nothing_is_lost(
    start: datetime, length: timedelta, amount: int, zone: ZoneInfo
) -> None:
    end = start + length
    parts = spread(start, end, amount, zone)
    assert sum(part for _, part in parts) == amount
    days = [day for day, _ in parts]
    assert days == sorted(set(days))
    assert days[0] == start.astimezone(zone).date()
    if length:
        assert days[-1] == (end - timedelta(microseconds=1)).astimezone(zone).date()


def test_a_month_is_spread_by_hour_where_clocks_change() -> None:
    start, end = datetime(2026, 10, 24, tzinfo=BERLIN), datetime(2026, 10, 27, tzinfo=BERLIN)
    parts = dict(spread(start, end, 73 * UNIT, BERLIN))
    assert parts == {
        date(2026, 10, 24): 24 * UNIT,
        date(2026, 10, 25): 25 * UNIT,
        date(2026, 10, 26): 24 * UNIT,
    }


def test_a_day_of_utc_is_parted_between_two_local_days() -> None:
    start = datetime(2026, 7, 1, tzinfo=UTC)
    parts = dict(spread(start, start + timedelta(days=1), 24, HONOLULU))
    assert parts == {date(2026, 6, 30): 10, date(2026, 7, 1): 14}


def test_a_day_that_a_zone_left_out_gets_nothing() -> None:
    """Samoa had no 30 December 2011."""
    start = datetime(2011, 12, 29, 10, tzinfo=UTC)
    parts = spread(start, start + timedelta(days=2), 48, ZoneInfo("Pacific/Apia"))
    assert parts == [(date(2011, 12, 29), 24), (date(2011, 12, 31), 24)]


def sums_of(*rows: tuple[str, str, object]) -> BillSums:
    return sum_charges(charges(plain(*rows)), BERLIN)


def test_a_bill_of_another_month_is_refused_with_its_days() -> None:
    sums = sums_of(("2026-08-03", "a", 1), ("2026-09-01", "a", 1))
    check_month(sums, date(2026, 9, 1))
    with pytest.raises(BillRefused, match="its days are 2026-08-03 to 2026-09-01"):
        check_month(sums, OCTOBER)
    with pytest.raises(BillRefused, match="no line below its head"):
        sum_charges([], BERLIN)
    with pytest.raises(BillRefused, match="larger than 92 billion"):
        sums_of(*(("2026-10-01", "a", 10**10) for _ in range(10)))


def test_a_bill_of_taxes_alone_is_of_their_month() -> None:
    start = datetime(2026, 10, 1, tzinfo=UTC)
    tax = BillCharge("vat", "", ChargeKind.TAX, start, start, 5)
    check_month(sum_charges([tax], BERLIN), OCTOBER)


# ---------------------------------------------------------------- SKUs


def test_skus_are_mapped_by_users_or_by_the_name_of_a_model() -> None:
    mapper = SkuMapper({"x": SkuTarget(H100, "spot"), "s3": SkuTarget("")}, [A100, H100])
    assert mapper.target("x") == SkuTarget(H100, "spot")
    assert mapper.target("s3") == SkuTarget("")
    assert mapper.target(f"{A100}/on-demand") == SkuTarget(A100, "on-demand", automatic=True)
    assert mapper.target("nvidia a100 sxm4 80gb") == SkuTarget(A100, automatic=True)
    assert mapper.target("p5.48xlarge") is None
    assert mapper.target(f"{A100}/weekly") is None


@pytest.mark.parametrize(
    ("sku", "description", "model"),
    [
        ("p5.48xlarge", "", H100),
        ("ABC123", "$32.77 per On Demand Linux p4de.24xlarge Instance Hour", A100),
        ("0D7F", "Nvidia Tesla T4 GPU attached to Spot instances", "Tesla-T4"),
        ("ND96", "H100 80GB", H100),
        ("m6i.large", "Linux", ""),
        ("standard", "", ""),
    ],
)
def test_a_model_is_suggested_where_one_alone_is_named(
    sku: str, description: str, model: str
) -> None:
    mapper = SkuMapper({}, [A100, H100, "Tesla-T4", "standard model"])
    assert mapper.suggestion(sku, description) == model


def test_of_two_sizes_of_memory_the_named_one_is_suggested() -> None:
    small = "NVIDIA-A100-SXM4-40GB"
    mapper = SkuMapper({}, [A100, small])
    assert mapper.suggestion("p4d.24xlarge", "") == small
    assert mapper.suggestion("A100 80GB", "") == A100
    assert mapper.suggestion("A100", "") == ""


# ---------------------------------------------------------------- sums

_skus = st.sampled_from(["x", "s3", "new", f"{A100}/spot", A100])
_billed = st.lists(
    st.builds(
        BilledDay,
        sku=_skus,
        kind=st.sampled_from(list(ChargeKind)),
        day=st.dates(OCTOBER, date(2026, 10, 4)),
        amount=_amounts,
    )
)
_pools = st.dictionaries(
    st.builds(
        PoolDay,
        day=st.dates(OCTOBER, date(2026, 10, 4)),
        gpu_model=st.sampled_from([A100, H100]),
        capacity_type=st.sampled_from(["spot", "on-demand"]),
    ),
    st.integers(0, 10**15),
)


@given(billed=_billed, portal=_pools)
def test_the_parts_of_a_bill_sum_to_it_and_so_do_its_differences(
    billed: list[BilledDay], portal: dict[PoolDay, int]
) -> None:
    mapper = SkuMapper({"x": SkuTarget(H100, "spot"), "s3": SkuTarget("")}, [A100, H100])
    parts = divide(billed, mapper)
    assert parts.total == sum(one.amount for one in billed)
    by_sku: dict[str, int] = defaultdict(int)
    for one in billed:
        if one.kind is ChargeKind.USAGE:
            by_sku[one.sku] += one.amount
    assert (parts.not_mapped, parts.not_gpu) == (by_sku["new"], by_sku["s3"])
    whole = ComparedCost(parts.gpus, sum(portal.values()))
    for compared in (
        by_day_and_model(parts.mapped, portal),
        by_pool(parts.mapped, portal, of=OCTOBER),
    ):
        assert sum(one.billed for one in compared.values()) == whole.billed
        assert sum(one.difference for one in compared.values()) == whole.difference


def test_a_model_without_capacity_type_in_the_bill_is_compared_as_a_whole() -> None:
    day = OCTOBER
    portal = {PoolDay(day, A100, "spot"): 3, PoolDay(day, A100, "on-demand"): 7}
    portal[PoolDay(day, H100, "spot")] = 5
    billed = {PoolDay(day, A100): 11, PoolDay(day, H100, "spot"): 5}
    assert by_pool(billed, portal, of=day) == {
        PoolDay(day, A100): ComparedCost(11, 10),
        PoolDay(day, H100, "spot"): ComparedCost(5, 5),
    }
    assert ComparedCost(11, 10).ratio == pytest.approx(0.1)
    assert ComparedCost(1, 0).ratio is None
