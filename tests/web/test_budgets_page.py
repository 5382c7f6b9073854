"""Budgets: the pace in words, the burn-down as it is drawn, alerts."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.domain.structs import replace
from apps.quotas.domain.budgets import period_at
from apps.quotas.models import Budget, BudgetAlert
from apps.quotas.selectors import BudgetRow, BurnPoint
from apps.web.quotas.budgets import LaterBudgets, hasty_first, pace_of
from tests.factories import Portal, make_team
from tests.web.entitlements import SINCE
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of
from tests.web.test_devices_page import words

BERLIN = ZoneInfo("Europe/Berlin")
START, END = (datetime(2026, 10, 31, 23, tzinfo=UTC), datetime(2026, 11, 30, 23, tzinfo=UTC))
NOW = START + timedelta(days=15)
DAY = timedelta(days=1)
ROW = BudgetRow(
    team="vision",
    period="month",
    period_start=START,
    period_end=END,
    unit="gpu_hours",
    allowance=3000.0,
    used=1500.0,
    burn_rate=1.0,
    burn_rate_1d=1.0,
    burn_rate_7d=1.0,
    exhausted_at=None,
    exhausted_at_early=None,
    exhausted_at_late=None,
    as_of=NOW,
    points=(BurnPoint(START, 0.0), BurnPoint(NOW, 1500.0)),
)
AT = datetime(2026, 11, 24, 12, tzinfo=UTC)
EARLY, LATE = AT - 2 * DAY, AT + 5 * DAY


@pytest.mark.parametrize(
    ("row", "word", "text"),
    [
        pytest.param(
            replace(ROW, burn_rate=None),
            "not begun",
            "No hour of this period is closed yet.",
            id="before the first closed hour",
        ),
        pytest.param(ROW, "on pace", "Within budget.", id="even"),
        pytest.param(
            replace(ROW, burn_rate=0.5),
            "under pace",
            "Within budget.",
            id="slow",
        ),
        pytest.param(
            replace(ROW, burn_rate=1.4),
            "over pace, slowing",
            "Within budget.",
            id="fast at first",
        ),
        pytest.param(
            replace(ROW, exhausted_at_early=AT),
            "on pace",
            "Within budget at the pace of 7 days. At the highest daily use it ends 24 Nov.",
            id="may end",
        ),
        pytest.param(
            replace(ROW, exhausted_at=AT, exhausted_at_early=EARLY, exhausted_at_late=LATE),
            "over pace",
            "Over pace: used up on 24 Nov, between 22 Nov and 29 Nov.",
            id="too fast",
        ),
        pytest.param(
            replace(ROW, exhausted_at=AT, exhausted_at_early=EARLY),
            "over pace",
            "Over pace: used up on 24 Nov, on 22 Nov at the earliest. It may last.",
            id="too fast, perhaps",
        ),
        pytest.param(
            replace(ROW, exhausted_at=AT, exhausted_at_early=AT, exhausted_at_late=AT),
            "over pace",
            "Over pace: used up on 24 Nov.",
            id="too fast for sure",
        ),
        pytest.param(
            replace(ROW, used=3300.0, exhausted_at=AT, exhausted_at_early=AT, exhausted_at_late=AT),
            "used up",
            "Used up on 24 Nov; 300 GPU-hours over.",
            id="used up",
        ),
        pytest.param(
            replace(ROW, coverage_ratio=1.0, known_until=NOW),
            "on pace",
            "Within budget.",
            id="all hours known",
        ),
        pytest.param(
            replace(ROW, coverage_ratio=0.9996, known_until=NOW - 6 * DAY / 24),
            "not certain",
            "Within budget. Use may be higher: 99.9 % of the hours so far have data, all clusters "
            "until 15 Nov 18:00.",
            id="a cluster lags",
        ),
        pytest.param(
            replace(ROW, coverage_ratio=0.5),
            "not certain",
            "Within budget. Use may be higher: 50 % of the hours so far have data; one cluster "
            "has none.",
            id="a cluster was never collected",
        ),
        pytest.param(
            replace(ROW, coverage_ratio=0.5333, known_until=NOW, data_start=NOW - 8 * DAY),
            "not certain",
            "Within budget. Use may be higher: 53.3 % of the hours so far have data, from "
            "8 Nov 00:00 on.",
            id="data starts within the period",
        ),
        pytest.param(
            replace(ROW, used=3300.0, exhausted_at=AT, coverage_ratio=0.5, known_until=NOW),
            "used up",
            "Used up on 24 Nov; 300 GPU-hours over. Use may be higher: 50 % of the hours so far "
            "have data.",
            id="used up for certain",
        ),
        pytest.param(
            replace(ROW, burn_rate_7d=None, coverage_ratio=0.5, known_until=NOW),
            "not known",
            "No data after 16 Nov 00:00. Use may be higher: 50 % of the hours so far have data.",
            id="nothing was collected for a week",
        ),
        pytest.param(
            replace(ROW, burn_rate=None, burn_rate_7d=None, coverage_ratio=0.0),
            "not known",
            "No data in this period.",
            id="nothing was collected since before the period",
        ),
        pytest.param(
            replace(ROW, exhausted_at=AT, at=AT + DAY, coverage_ratio=0.6, known_until=NOW),
            "not certain",
            "Probably used up since 24 Nov, at the earlier pace. No data after 16 Nov 00:00. Use "
            "may be higher: 60 % of the hours so far have data.",
            id="its end was projected and is past",
        ),
    ],
)
def test_the_pace_is_told_in_words(row: BudgetRow, word: str, text: str) -> None:
    pace = pace_of(row, BERLIN)
    assert (pace.word, pace.text) == (word, text)


def test_days_are_those_of_the_report_zone() -> None:
    late = datetime(2026, 11, 24, 23, 30, tzinfo=UTC)
    assert "25 Nov" in pace_of(replace(ROW, exhausted_at=late), BERLIN).text


def test_what_ends_soonest_comes_first_then_the_fastest() -> None:
    rows = [
        replace(ROW, team="a", burn_rate=0.9),
        replace(ROW, team="b", burn_rate=1.2),
        replace(ROW, team="c", exhausted_at=AT),
        replace(ROW, team="d", exhausted_at=EARLY),
    ]
    assert [row.team for row in hasty_first(rows)] == ["d", "c", "b", "a"]


def test_the_rest_of_a_budget_is_read_when_it_is_shown_and_once() -> None:
    asked: list[list[str]] = []

    def in_full(rows: Sequence[BudgetRow]) -> list[BudgetRow]:
        asked.append([row.team for row in rows])
        return [replace(row, exhausted_at_early=AT) for row in rows]

    rows = LaterBudgets([replace(ROW, team=str(n)) for n in range(1200)], in_full)
    assert len(rows) == 1200
    assert asked == []
    shown = rows[25:50]
    assert [row.team for row in shown] == [str(n) for n in range(25, 50)]
    assert {row.exhausted_at_early for row in (*shown, *rows[25:30])} == {AT}
    assert [len(teams) for teams in asked] == [25]
    assert [row.team for row in rows] == [str(n) for n in range(1200)]
    assert [len(teams) for teams in asked] == [25, 475, 500, 200]
    assert rows[-1].team == "1199"


# ---------------------------------------------------------------- the page


def budgets(page: str) -> list[list[str]]:
    return [[cell.text for cell in row] for row in tables_of(page)["budgets"].rows[1:]]


def test_budgets_are_told_and_drawn(portal: Portal, admin: Client) -> None:
    page = text_of(admin, "/costs/budgets/")
    (row,) = budgets(page)
    assert row[:2] == ["vision", "month"]
    (record,) = records_of(admin, "/costs/budgets/?format=csv&table=budgets")
    assert record["allowance_gpu_hours"] == "5000"
    assert (len(row), len(record)) == (12, 19), "the file has those that the outlook tells in words"
    assert "vision: budget of the month" in text_of(admin, "/costs/budgets/?tab=burn")


def test_the_linear_pace_is_a_tick_on_the_bar(
    portal: Portal, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = datetime(2025, 10, 26, 20, tzinfo=UTC)
    monkeypatch.setattr("django.utils.timezone.now", lambda: later)
    (record,) = records_of(admin, "/costs/budgets/?format=csv&table=budgets")
    mark = float(record["used_ratio"]) / float(record["burn_rate"])
    assert f"--mark: {min(1.0, mark):.3f}" in text_of(admin, "/costs/budgets/")


def test_a_budget_that_burns_is_drawn_against_an_linear_pace(portal: Portal, admin: Client) -> None:
    period = period_at("year", timezone.now(), portal.zone)
    Budget.objects.filter(team=portal.vision).delete()
    Budget.objects.create(team=portal.vision, period="year", gpu_hours=9e4, valid_from=SINCE)
    page = text_of(admin, "/costs/budgets/?tab=burn")
    assert "vision: budget of the year" in page
    local = period.start.astimezone(portal.zone)
    assert f"{local.day} {local:%b} – 31 Dec (Europe/Berlin)" in page


def test_everybody_sees_the_budgets_of_all_teams(portal: Portal) -> None:
    client = Client()
    client.force_login(portal.dan)
    assert [row[0] for row in budgets(text_of(client, "/costs/budgets/"))] == ["vision"]


def test_a_team_filter_narrows_budgets_and_alerts(portal: Portal, admin: Client) -> None:
    Budget.objects.create(team=portal.speech, period="week", gpu_hours=10.0, valid_from=SINCE)
    for team in (portal.speech, portal.vision):
        alert(portal, team=team)
    asked = "/costs/budgets/?team=speech&first=2025-10-25&last=2025-10-27"
    assert [row[0] for row in budgets(text_of(admin, asked))] == ["speech"]
    page = text_of(admin, f"{asked}&tab=alerts")
    assert [row[1].text for row in tables_of(page)["alerts"].rows[1:]] == ["speech"]
    other = make_team("third")
    assert "No budget of these teams runs now." in text_of(
        admin, f"/costs/budgets/?team={other.name}"
    )


def alert(portal: Portal, **values: object) -> None:
    given = {
        "team": portal.vision,
        "unit": "gpu_hours",
        "period": "month",
        "period_start": datetime(2025, 9, 30, 22, tzinfo=UTC),
        "period_end": datetime(2025, 10, 31, 23, tzinfo=UTC),
        "kind": "used",
        "threshold": 0.8,
        "at": datetime(2025, 10, 26, 9, tzinfo=UTC),
        "used": 4000.0,
        "allowance": 5000.0,
    } | values
    BudgetAlert.objects.create(**given)


def test_alerts_of_the_window_are_told_in_words_and_money_to_whom_it_concerns(
    portal: Portal, admin: Client
) -> None:
    alert(portal)
    alert(portal, kind="projected", threshold=1.0, exhausted_at=datetime(2025, 10, 29, tzinfo=UTC))
    alert(portal, unit="USD", allowance=777777.0)
    page = text_of(admin, "/costs/budgets/?tab=alerts&first=2025-10-25&last=2025-10-27")
    assert [row[2].text for row in tables_of(page)["alerts"].rows[1:]] == [
        "80 % of the budget was used.",
        "Forecast: used up on 29 Oct 2025, before its period ends.",
        "80 % of the budget was used.",
    ]
    assert "777,777" in words(page)
    outsider = Client()
    outsider.force_login(portal.dan)
    page = text_of(outsider, "/costs/budgets/?tab=alerts&first=2025-10-25&last=2025-10-27")
    assert len(tables_of(page)["alerts"].rows[1:]) == 2
    assert "777" not in words(page)
    before = text_of(admin, "/costs/budgets/?tab=alerts&first=2025-10-24&last=2025-10-24")
    assert "No budget reached a threshold in this window." in before


def test_only_the_most_pressing_budgets_are_drawn(portal: Portal, admin: Client) -> None:
    for n in range(30):
        Budget.objects.create(
            team=make_team(f"team-{n:02}"), period="month", gpu_hours=9.0, valid_from=SINCE
        )
    page = text_of(admin, "/costs/budgets/?tab=burn")
    assert page.count(": budget of the month</h2>") == 4
    assert "The 4 most urgent of 31 budgets." in words(page)
    assert len(budgets(text_of(admin, "/costs/budgets/"))) == 25
    assert len(records_of(admin, "/costs/budgets/?format=csv&table=budgets")) == 31


def test_a_hostile_team_is_shown_as_text(portal: Portal, admin: Client) -> None:
    team = make_team("<img src=x>")
    Budget.objects.create(team=team, period="month", gpu_hours=9.0, valid_from=SINCE)
    page = text_of(admin, "/costs/budgets/")
    assert "<img" not in page
    assert "&lt;img" in page


def test_budgets_are_sorted_by_what_is_read_late_and_the_file_has_it(
    portal: Portal, admin: Client
) -> None:
    for n in range(30):
        team = make_team(f"team-{n:02}")
        Budget.objects.create(team=team, period="month", gpu_hours=n, valid_from=SINCE)
    first = text_of(admin, "/costs/budgets/")
    assert len(budgets(first)) == 25
    assert "1–25 of 31" in first
    falling = budgets(text_of(admin, "/costs/budgets/?sort=-allowance_gpu_hours"))
    assert [row[0] for row in falling][:2] == ["vision", "team-29"]
    assert len(budgets(text_of(admin, "/costs/budgets/?page=2"))) == 6
    records = records_of(admin, "/costs/budgets/?format=csv&table=budgets&sort=outlook")
    assert len(records) == 31
    assert all(record["outlook"] for record in records)


def test_budgets_in_money_are_a_tab_for_whom_they_concern(portal: Portal, admin: Client) -> None:
    Budget.objects.create(
        team=portal.vision, period="month", money=Decimal(60000), currency="USD", valid_from=SINCE
    )
    table = tables_of(text_of(admin, "/costs/budgets/?tab=money"))["money-budgets"]
    (row,) = table.rows[1:]
    assert [cell.text for cell in row[:2]] == ["vision", "month"]
    assert "60,000" in [cell.text for cell in row]
    outsider = Client()
    outsider.force_login(portal.dan)
    page = text_of(outsider, "/costs/budgets/?tab=money")
    assert "No team that you may see has a budget in money." in page


def test_who_leads_a_team_proposes_its_budget(portal: Portal, admin: Client) -> None:
    link = "/quotas/proposals/new/?kind=budget&amp;team=vision"
    assert link in text_of(admin, "/costs/budgets/?team=vision")
    outsider = Client()
    outsider.force_login(portal.finn)
    assert "Propose budget" not in text_of(outsider, "/costs/budgets/")
