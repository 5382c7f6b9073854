"""The page on which a month is reconciled with its bill: for finance and administrators."""

from datetime import date
from http import HTTPStatus
from typing import Any, BinaryIO, cast

from django.http import Http404, HttpResponseBase, HttpResponseRedirect
from django.utils import timezone

from apps.accounts.adapters.addresses import client_address
from apps.accounts.domain.identity import ActingParty
from apps.clusters.domain.tiers import CapacityType
from apps.clusters.domain.window import month_before
from apps.clusters.selectors import report
from apps.costs import selectors as costs
from apps.costs.domain.bills.charges import BillRefused
from apps.costs.domain.bills.focus_charges import COST_COLUMNS
from apps.costs.domain.bills.sku_mapping import SkuTarget
from apps.costs.permissions import can_see_bills
from apps.costs.services import (
    MOST_BYTES,
    BillInput,
    check_size,
    delete_bill,
    import_bill,
    map_skus,
)
from apps.web.components.page_query import href
from apps.web.components.tabs import Tab, tab_bar
from apps.web.costs import bill_view
from apps.web.costs.exports import month_of
from apps.web.pages import change, page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session
from apps.web.uploads import at_most

TABS = (
    Tab("models", "By model"),
    Tab("days", "By day"),
    Tab("mapping", "SKU mapping"),
    Tab("bills", "Import"),
)
_NOT_THERE = "Bills are for finance and administrators."


@page
def bill(request: PageRequest) -> HttpResponseBase:
    """Show by how much the bill of a month differs from the portal's cost."""
    _check(request)
    return _page(request, _month(request.GET.get("month", "")))


def _check(request: PageRequest) -> None:
    if not can_see_bills(request.user):
        # Not found rather than forbidden: the page is in no other user's menu either.
        raise Http404(_NOT_THERE)


def _month(written: str) -> date | None:
    if not written:
        return None
    found = month_of(written)
    if found is None:
        raise Http404(f"“{written[:40]}” is not a month such as 2026-10.")
    return found


def _page(
    request: PageRequest,
    month: date | None,
    *,
    problem: str = "",
    status: int = HTTPStatus.OK,
) -> HttpResponseBase:
    reading = query_session(request)
    months = costs.bill_months(visibility=reading.visibility)
    month = month or _usual_month(months, reading)
    tabs = tab_bar(request, TABS, name="Bill")
    shown: dict[str, Any] = {}
    # Only with a bill: reading the portal's cost for nothing takes a dozen queries.
    if month in months:
        shown = _reconciled(reading, month, tabs.chosen)
    bills = costs.bill_rows(visibility=reading.visibility, month=month)
    if tabs.chosen == "bills" or month not in months:
        shown["tables"] = [bill_view.bill_table(bills, reading)]
    unmapped = shown.get("unmapped", 0)
    return respond(
        request,
        reading,
        "bill",
        status=status,
        month=f"{month:%Y-%m}",
        months=[f"{one:%Y-%m}" for one in months],
        bills=[one for one in bills if one.ended_at is None],
        tabs=tabs.counted({"mapping": unmapped} if unmapped else {}),
        problem=problem,
        cost_columns=COST_COLUMNS,
        currency=report().currency,
        most_mib=MOST_BYTES // 2**20,
        **shown,
    )


def _usual_month(months: list[date], reading: QuerySession) -> date:
    """Return the newest month with a bill, the last closed one, or the last that is over."""
    closed = costs.last_closed_month(visibility=reading.visibility)
    today = reading.now.astimezone(report().zone).date()
    return next(iter(months), closed or month_before(today))


def _reconciled(reading: QuerySession, month: date, tab: str) -> dict[str, Any]:
    found = costs.reconcile(month, visibility=reading.visibility, now=reading.now)
    if found is None:
        return {}
    skus = costs.sku_rows(month, visibility=reading.visibility)
    query = [("month", f"{month:%Y-%m}")]
    shown: dict[str, Any] = {
        "row": bill_view.bill_figures(found, skus, query),
        "gaps": [*found.gaps.texts(), *(f"costs in {name}" for name in found.others)],
        "unmapped": sum(one.target is None for one in skus),
        "found": found,
        "drawings": [bill_view.difference_map(found)],
    }
    if tab == "models":
        shown["tables"] = [bill_view.model_table(found)]
    elif tab == "days":
        shown["tables"] = [bill_view.day_table(found)]
    elif tab == "mapping":
        shown["tables"] = [bill_view.sku_table(skus, found)]
        shown["models"] = costs.gpu_model_names()
        shown["capacity_types"] = [str(kind) for kind in CapacityType]
    return shown


def _too_large(length: int) -> str:
    try:
        check_size(length)
    except BillRefused as refusal:
        return str(refusal)
    return "The form is too large."


@at_most(MOST_BYTES, _too_large)
@change
def upload(request: PageRequest) -> HttpResponseBase:
    """Import a bill of a month."""
    _check(request)
    month = month_of(request.POST.get("month", "").strip())
    file = request.FILES.get("file")
    if month is None or file is None:
        said = "Choose a month such as 2026-10, and a file."
        return _page(request, month, problem=said, status=HTTPStatus.BAD_REQUEST)
    given = BillInput(
        month=month,
        file_name=file.name or "",
        provider=request.POST.get("provider", "").strip()[:80],
        cost_column=request.POST.get("cost_column", COST_COLUMNS[0]),
    )
    try:
        # Again, by the file itself: the form's length was what the browser said.
        check_size(file.size or 0)
        import_bill(cast("BinaryIO", file.file), given, by=_by(request), now=timezone.now())
    except BillRefused as refusal:
        said = f"Nothing was imported. {refusal}"
        return _page(request, month, problem=said, status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(_href(month))


@change
def mapping(request: PageRequest) -> HttpResponseBase:
    """Map SKUs to GPU models; or say of all that are not mapped that they are no GPU."""
    _check(request)
    month = month_of(request.POST.get("month", "").strip())
    if month is None:
        return _page(request, None, problem="Choose a month.", status=HTTPStatus.BAD_REQUEST)
    try:
        if request.POST.get("then") == "rest-not-gpu":
            reading = query_session(request)
            rows = costs.sku_rows(month, visibility=reading.visibility)
            targets = {row.sku: SkuTarget("") for row in rows if row.target is None}
            map_skus(targets, by=_by(request), now=timezone.now())
        else:
            map_skus(bill_view.targets_in(request.POST), by=_by(request), now=timezone.now())
    except BillRefused as refusal:
        return _page(request, month, problem=str(refusal), status=HTTPStatus.BAD_REQUEST)
    return HttpResponseRedirect(_href(month, tab="mapping"))


@change
def delete(request: PageRequest, pk: int) -> HttpResponseBase:
    """Take a bill out of its month."""
    _check(request)
    month = month_of(request.POST.get("month", "").strip())
    if not delete_bill(pk, by=_by(request), now=timezone.now()):
        raise Http404("There is no such bill in force.")
    return HttpResponseRedirect(_href(month, tab="bills"))


def _href(month: date | None, *, tab: str = "") -> str:
    query = [("month", f"{month:%Y-%m}")] if month else []
    return href("bill", [*query, *([("tab", tab)] if tab else [])]) or "/"


def _by(request: PageRequest) -> ActingParty:
    return ActingParty(request.user.username, client_address(request) or "")
