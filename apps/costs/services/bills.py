"""Import bills, map their SKUs, and delete bills: each one transaction and one audit entry."""

import hashlib
from collections.abc import Mapping
from datetime import date, datetime
from typing import BinaryIO
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import QuerySet
from msgspec import Struct

from apps.accounts import services as accounts
from apps.accounts.domain.identity import ActingParty
from apps.clusters.domain.tiers import CapacityType
from apps.clusters.models import GpuModel
from apps.clusters.selectors import report
from apps.costs.adapters.bill_files import BillFile, open_bill
from apps.costs.domain.bills.charges import AmountReader, BillCurrency, BillRefused
from apps.costs.domain.bills.days import BillSums, check_month, sum_charges
from apps.costs.domain.bills.focus_charges import COST_COLUMNS, focus_charges, is_focus
from apps.costs.domain.bills.invoice_charges import COST_COLUMN, invoice_charges
from apps.costs.domain.bills.sku_mapping import SkuTarget
from apps.costs.domain.costing import money
from apps.costs.domain.exchange_rates import rate_text
from apps.costs.models import Bill, BillAmount, BillSku, SkuMapping
from apps.costs.selectors.bills.imported import mapped_skus
from apps.costs.selectors.months import closed_period, exchange_rates_of

MOST_BYTES = 64 * 1024 * 1024
_ROWS_AT_ONCE = 5000
_BLOCK = 1 << 20


class BillInput(Struct, frozen=True):
    """What is said of a file: its month (the first day), and the provider, empty for one bill.

    `cost_column` chooses what is read of a FOCUS file: what was billed, or the effective cost.
    """

    month: date
    file_name: str
    provider: str = ""
    cost_column: str = COST_COLUMNS[0]


def check_size(size: int) -> None:
    """Raise BillRefused for a file that is too large; to be asked before it is read."""
    if size > MOST_BYTES:
        raise BillRefused(
            f"The file has {size / 2**20:,.0f} MiB, more than {MOST_BYTES // 2**20}. Export it as "
            "Parquet, or with the GPU services alone."
        )


def import_bill(binary: BinaryIO, given: BillInput, *, by: ActingParty, now: datetime) -> Bill:
    """Import a bill and return it; an earlier one of the same month and provider ends.

    Nothing is imported where a line is wrong. `binary` is seekable. Raises BillRefused.
    """
    if given.cost_column not in COST_COLUMNS:
        raise BillRefused(f"The cost column is {' or '.join(COST_COLUMNS)}.")
    closed = closed_period(given.month)
    settings = report()
    # A closed month keeps the zone that it was closed in, and so do its days.
    zone = ZoneInfo(closed.time_zone) if closed else settings.zone
    sha256, size = _digest(binary)
    file = open_bill(binary)
    rates = exchange_rates_of(given.month, closed)
    currency = BillCurrency(settings.currency, rates)
    sums, cost_column = _read(file, given, zone=zone, currency=currency)
    check_month(sums, given.month)
    with transaction.atomic():
        before = _end(Bill.objects.filter(month=given.month, provider=given.provider), by, now)
        bill = Bill.objects.create(
            month=given.month,
            provider=given.provider,
            file_name=given.file_name[:250],
            file_format=f"{'focus' if is_focus(file.head) else 'plain'}-{file.format}",
            cost_column=cost_column,
            sha256=sha256,
            size=size,
            currency=settings.currency,
            exchange_rates={name: rate_text(rate) for name, rate in rates.items()},
            time_zone=zone.key,
            line_count=sums.line_count,
            total=sums.total,
            imported_at=now,
            imported_by=by.name,
        )
        Bill.objects.filter(pk__in=[one.pk for one in before]).update(replaced_by=bill)
        _write_amounts(bill, sums)
        accounts.record(
            by,
            "import-bill",
            _subject(bill),
            at=now,
            before=_of_audit(before[0]) if before else None,
            after=_of_audit(bill),
        )
    return bill


def _digest(binary: BinaryIO) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while block := binary.read(_BLOCK):
        digest.update(block)
        size += len(block)
        # Again: not every source tells its size before it is read.
        check_size(size)
    binary.seek(0)
    return digest.hexdigest(), size


def _read(
    file: BillFile, given: BillInput, *, zone: ZoneInfo, currency: BillCurrency
) -> tuple[BillSums, str]:
    """Return the sums of a file, and the column that its amounts are from."""
    amounts = AmountReader(semicolons=file.semicolons)
    if is_focus(file.head):
        column = given.cost_column
        charges = focus_charges(
            file.head, file.rows, cost_column=column, currency=currency, amounts=amounts
        )
    else:
        column = COST_COLUMN
        charges = invoice_charges(
            file.head, file.rows, zone=zone, currency=currency, amounts=amounts
        )
    sums = sum_charges(charges, zone)
    # Only the whole file tells whether its dots are decimal points.
    amounts.check()
    return sums, column


def _write_amounts(bill: Bill, sums: BillSums) -> None:
    skus = [
        BillSku(bill=bill, sku=sku, description=text) for sku, text in sums.descriptions.items()
    ]
    BillSku.objects.bulk_create(skus, batch_size=_ROWS_AT_ONCE)
    ids = {row.sku: row.pk for row in skus}
    rows = [
        BillAmount(sku_id=ids[sku], day=day, kind=kind.value, amount=amount)
        for (sku, kind, day), amount in sorted(sums.amounts.items())
    ]
    BillAmount.objects.bulk_create(rows, batch_size=_ROWS_AT_ONCE)


def _end(bills: QuerySet[Bill, Bill], by: ActingParty, now: datetime) -> list[Bill]:
    """End the bills in force among these; their amounts go, their rows stay as history."""
    # Locked: two imports of one month would else both be in force, and one fail late.
    found = list(bills.select_for_update().filter(ended_at__isnull=True).order_by("pk"))
    for bill in found:
        bill.ended_at, bill.ended_by = now, by.name
        bill.save(update_fields=["ended_at", "ended_by"])
        BillSku.objects.filter(bill=bill).delete()
    return found


def delete_bill(pk: int, *, by: ActingParty, now: datetime) -> bool:
    """Take a bill out of its month; say whether there was one in force."""
    with transaction.atomic():
        ended = _end(Bill.objects.filter(pk=pk), by, now)
        for bill in ended:
            accounts.record(by, "delete-bill", _subject(bill), at=now, before=_of_audit(bill))
    return bool(ended)


def map_skus(targets: Mapping[str, SkuTarget | None], *, by: ActingParty, now: datetime) -> int:
    """Map SKUs, or with None take their mapping back; return how many changed.

    Bills that were imported are compared anew by it at once. Raises BillRefused for an unknown GPU
    model or capacity type.
    """
    models = dict(GpuModel.objects.values_list("name", "pk"))
    wrong = next((t for t in targets.values() if t and not _is_known(t, models)), None)
    if wrong is not None:
        raise BillRefused(
            f"The portal knows no {wrong.gpu_model} {wrong.capacity_type}".rstrip()
            + ". Choose a GPU model and a capacity type of the list."
        )
    with transaction.atomic():
        stored = mapped_skus()
        changed = {sku: t for sku, t in targets.items() if stored.get(sku) != t}
        if not changed:
            return 0
        SkuMapping.objects.filter(sku__in=[s for s, t in changed.items() if t is None]).delete()
        SkuMapping.objects.bulk_create(
            [
                SkuMapping(
                    sku=sku,
                    gpu_model_id=models.get(target.gpu_model),
                    capacity_type=target.capacity_type,
                    updated_at=now,
                    updated_by=by.name,
                )
                for sku, target in changed.items()
                if target is not None
            ],
            update_conflicts=True,
            unique_fields=["sku"],
            update_fields=["gpu_model", "capacity_type", "updated_at", "updated_by"],
        )
        accounts.record(
            by,
            "map-skus",
            "sku-mapping",
            at=now,
            before={sku: _words(stored.get(sku)) for sku in changed},
            after={sku: _words(target) for sku, target in changed.items()},
        )
    return len(changed)


def _is_known(target: SkuTarget, models: Mapping[str, int]) -> bool:
    types = {"", *map(str, CapacityType)}
    return target.capacity_type in types and (not target.gpu_model or target.gpu_model in models)


def _words(target: SkuTarget | None) -> str:
    if target is None:
        return "not mapped"
    return " ".join(filter(None, (target.gpu_model or "not GPU", target.capacity_type)))


def _subject(bill: Bill) -> str:
    return f"bill/{bill.month:%Y-%m}{f'/{bill.provider}' if bill.provider else ''}"


def _of_audit(bill: Bill) -> dict[str, object]:
    return {
        "bill": bill.pk,
        "file": bill.file_name,
        "format": bill.file_format,
        "cost_column": bill.cost_column,
        "sha256": bill.sha256,
        "lines": bill.line_count,
        "total": f"{money(bill.total):f}",
        "currency": bill.currency,
    }
