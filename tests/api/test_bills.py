"""Bills and what months differ by, over the API."""

from typing import Any

import pytest

from apps.costs.models import Bill
from tests.api.conftest import client_of
from tests.costs.bills import imported, plain
from tests.costs.portal import Priced, make_priced
from tests.factories import A100, H100
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db
_priced = shared(make_priced)
priced = copy_of("_priced")


def get(priced: Priced, address: str) -> Any:
    return client_of(priced.portal.finn).get(f"/api/v1/{address}").json()


def test_bills_are_listed_with_those_that_were_replaced(priced: Priced) -> None:
    imported(plain(("2026-10-30", A100, 1)))
    imported(plain(("2026-10-30", A100, "2.5")))
    answer = get(priced, "bills?page_size=1")
    assert len(answer["results"]) == 1
    rows = [
        *answer["results"],
        *client_of(priced.portal.finn).get(answer["next"]).json()["results"],
    ]
    assert {row["total"] for row in rows} == {1.0, 2.5}
    assert [row["ended_at"] is None for row in rows].count(True) == 1
    assert {row["month"] for row in rows} == {"2026-10"}
    assert Bill.objects.count() == 2


def test_a_month_is_reconciled_and_its_summary_adds_up(priced: Priced) -> None:
    imported(plain(("2026-10-30", A100, 1000), ("2026-10-31", "p5", 250)))
    answer = get(priced, "reconciliation?month=2026-10")
    assert answer == get(priced, "reconciliation")
    rows, summary = answer["results"], answer["summary"]
    assert {row["gpu_model"] for row in rows} == {A100, H100}
    for key in ("billed_cost", "portal_cost", "difference"):
        assert sum(row[key] for row in rows) == pytest.approx(summary[key])
    assert (summary["not_mapped_cost"], summary["total_cost"]) == (250.0, 1250.0)
    ratio = summary["difference"] / summary["portal_cost"]
    assert summary["difference_ratio"] == pytest.approx(ratio)


def test_a_month_without_a_bill_has_the_portals_cost_alone(priced: Priced) -> None:
    answer = get(priced, "reconciliation?month=2026-10")
    assert answer["summary"]["billed_cost"] == 0.0
    assert answer["summary"]["difference_ratio"] == -1.0


def test_others_are_told_whom_bills_are_for(priced: Priced) -> None:
    for address in ("bills", "reconciliation"):
        answer = client_of(priced.portal.dan).get(f"/api/v1/{address}")
        assert answer.status_code == 403
        assert answer.json()["detail"] == "Bills are for finance and administrators."


def test_what_is_no_month_is_refused(priced: Priced) -> None:
    answer = client_of(priced.portal.finn).get("/api/v1/reconciliation?month=soon")
    assert answer.status_code == 400
    assert "write it as 2026-10" in answer.json()["detail"]
