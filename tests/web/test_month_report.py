"""The monthly report: the figures of the pages, what is missing, the file and the mail."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.models import Cluster, Tier
from apps.costs import selectors as costs
from apps.costs.domain.costing import money
from apps.costs.selectors import CostQuery
from apps.costs.services import close_period
from apps.fairness.models import QueueTimeObjective
from apps.fairness.selectors import fairness_rows
from apps.operations.domain.month_report import MonthPage
from apps.operations.services import (
    UnknownTeamReport,
    month_report,
    month_report_file,
    send_monthly_reports,
)
from apps.usage import selectors as usage
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Grouping, UsageQuery
from gpuportal.queries import reading_once
from tests.costs.portal import Priced
from tests.costs.recommendation_rows import make
from tests.factories import BEGINNING, make_team, make_tier, make_workload
from tests.pending.rows import make_episode
from tests.web.pages import file_of, records_of, text_of

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]
OCTOBER = date(2026, 10, 1)
NOW = datetime(2026, 11, 4, 12, tzinfo=UTC)


def markup_of(text: str) -> str:
    """Return a file without its scripts: the bundle has words such as "revision"."""
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def values(page: MonthPage) -> dict[str, object]:
    return {figure.key: figure.value for figure in page.figures}


def test_savings_that_came_in_part_or_in_full_are_realized(priced: Priced) -> None:
    decided = {"decided_by": "ada", "decided_at": datetime(2026, 10, 9, tzinfo=UTC)}
    for number, (state, verdict) in enumerate(
        (("done", "came"), ("accepted", "partly"), ("accepted", "did-not-come"))
    ):
        make(number, state=state, verdict=verdict, saved_per_month=Decimal(100), **decided)
    make(3, state="done", verdict="came", saved_per_month=Decimal(100), alternative=True, **decided)
    pages = month_report(OCTOBER, visibility=EVERYTHING, now=NOW).pages
    saved = {page.team: values(page)["saved"] for page in pages}
    assert (saved[""], saved["vision"]) == (200, 200)
    assert saved["speech"] is None  # nothing of its was judged, which is not zero


def test_the_figures_are_those_of_the_ledger_and_of_the_costs(priced: Priced) -> None:
    found = month_report(OCTOBER, visibility=EVERYTHING, now=NOW)
    window = costs.month_window(OCTOBER, priced.portal.zone)
    ledger = {
        row.groups[Grouping.TEAM]: row.amounts
        for row in usage.usage_rows(
            UsageQuery(window, group_by=(Grouping.TEAM,)), visibility=EVERYTHING
        )
    }
    charged: dict[str, int] = {}
    basis, policy = costs.charging()
    asked = CostQuery(window, group_by=(Grouping.TEAM,), basis=basis, policy=policy)
    for row in costs.cost_rows(asked, visibility=EVERYTHING):
        name = row.groups[Grouping.TEAM]
        charged[name] = charged.get(name, 0) + (row.cost or 0)
    pages = {page.team: values(page) for page in found.pages}
    assert set(pages) >= {"", "vision", "speech"}
    for team in ("vision", "speech"):
        assert pages[team]["allocated"] == ledger[team].allocated
        assert pages[team]["utilization"] == ledger[team].utilization_ratio
        assert pages[team]["charged"] == money(charged[team])
    (whole,) = usage.usage_rows(UsageQuery(window), visibility=EVERYTHING)
    assert pages[""]["allocated"] == whole.amounts.allocated
    assert pages[""]["capacity"] == whole.amounts.capacity
    teams = sum(cost for name, cost in charged.items() if name)
    assert pages[""]["charged"] == money(teams)
    assert sum(charged.values()) > teams


def test_the_figures_are_those_that_the_pages_show(priced: Priced, signed_in: SignIn) -> None:
    finance = signed_in(priced.portal.finn)
    found = month_report(OCTOBER, visibility=EVERYTHING, now=NOW)
    window = "first=2026-10-01&last=2026-10-31"
    for row in records_of(finance, f"/costs/?{window}&by=team&format=csv&table=costs"):
        shown = next((page for page in found.pages if page.team == row["team"]), None)
        if shown is not None and shown.team:
            assert values(shown)["charged"] == Decimal(row["cost"]), row


def test_a_teams_page_begins_with_its_entitlement(priced: Priced) -> None:
    found = month_report(OCTOBER, visibility=EVERYTHING, now=NOW)
    window = costs.month_window(OCTOBER, priced.portal.zone)
    entitled = sum(
        own.entitlement_gpus * tier.hours.known
        for tier in fairness_rows(window, now=NOW, visibility=EVERYTHING)
        for own in tier.teams
        if own.team == "vision"
    )
    page = next(page for page in found.pages if page.team == "vision")
    assert page.figures[0].key == "entitled"
    if page.figures[0].value is not None:
        assert float(page.figures[0].value) / NANO == pytest.approx(entitled)


def test_the_page_has_a_legend_and_says_once_that_the_month_before_has_no_data(
    priced: Priced, signed_in: SignIn
) -> None:
    for query in ("", "?team=vision"):
        page = text_of(signed_in(priced.portal.finn), f"/costs/report/2026-10/{query}")
        assert '<ul class="class-legend"' in page
        assert page.count("No data for September.") == 1
        assert "Sep: no data" not in page
        assert "p50 in Sep" not in page
        value = re.search(r'id="figure-allocated" title="([^"]*)">([^<]*)</span>', page)
        assert value
        assert value[1].endswith("\u00a0GPU-h")
        assert "GPU" not in value[2], "the unit stands beside it, small"
    head = re.findall(
        r"<th[^>]*>Allocated <span class=.unit.>(.*?)</span>",
        text_of(signed_in(priced.portal.finn), "/costs/report/2026-10/"),
    )
    assert head[-1] == "GPU-h", "units stand once, in the head"


@pytest.mark.parametrize("now", ["2026-11-04", "2026-10-20"])
def test_without_a_month_it_is_of_the_last_whole_one_and_of_this_one_in_the_first(
    priced: Priced, signed_in: SignIn, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = datetime.fromisoformat(f"{now}T12:00:00+00:00")
    monkeypatch.setattr("django.utils.timezone.now", lambda: noon)
    assert "October 2026" in text_of(signed_in(priced.portal.finn), "/costs/report/")


def test_teams_sum_to_the_page_of_all(priced: Priced) -> None:
    found = month_report(OCTOBER, visibility=EVERYTHING, now=NOW)
    whole, *teams = found.pages
    for key in ("charged", "unused"):
        parts = [
            figure.value for line in whole.teams for figure in line.figures if figure.key == key
        ]
        assert sum(Decimal(str(part)) for part in parts) == values(whole)[key]
    assert [line.team for line in whole.teams if line.team != UNASSIGNED] == [p.team for p in teams]


def test_the_layers_of_a_day_are_the_capacity(priced: Priced) -> None:
    days = month_report(OCTOBER, visibility=EVERYTHING, now=NOW).pages[0].days
    known = [day for day in days if day.capacity is not None]
    assert len(known) == 2
    for day in known:
        parts = (day.active, day.unused, day.no_metrics, day.unallocated, day.unavailable)
        assert sum(part or 0 for part in parts) == pytest.approx(day.capacity)


def test_a_month_without_facts_says_so_and_a_running_one_is_marked(priced: Priced) -> None:
    empty = month_report(date(2026, 3, 1), visibility=EVERYTHING, now=NOW)
    assert "No data for this month." in empty.notes
    assert values(empty.pages[0])["allocated"] is None
    assert values(empty.pages[0])["charged"] is None
    assert values(empty.pages[0])["saved"] is None
    assert not empty.runs
    running = month_report(date(2026, 11, 1), visibility=EVERYTHING, now=NOW)
    assert running.runs
    assert "Open month" in month_report_file(running)


def test_who_sees_some_teams_gets_their_pages_and_no_other(priced: Priced) -> None:
    sees = Visibility(everything=False, team_ids=frozenset({priced.portal.vision.pk}))
    found = month_report(OCTOBER, visibility=sees, now=NOW)
    assert [page.team for page in found.pages] == ["vision"]
    assert "speech" not in month_report_file(found)
    for team in ("speech", "nobody"):
        with pytest.raises(UnknownTeamReport):
            month_report(OCTOBER, team=team, visibility=sees, now=NOW)
    same = month_report(OCTOBER, team="vision", visibility=EVERYTHING, now=NOW)
    assert values(same.pages[0]) == values(found.pages[0])


def test_the_number_of_queries_does_not_grow_with_teams(
    priced: Priced, django_assert_max_num_queries: Callable[[int], object]
) -> None:
    with reading_once(), django_assert_max_num_queries(41):  # type: ignore[attr-defined]
        month_report(OCTOBER, visibility=EVERYTHING, now=NOW)
    for number in range(5):
        make_tier(f"another-{number}")
        make_team(f"another-{number}")
    with reading_once(), django_assert_max_num_queries(41):  # type: ignore[attr-defined]
        month_report(OCTOBER, visibility=EVERYTHING, now=NOW)


def test_the_file_needs_no_network_and_has_a_page_for_each_team(priced: Priced) -> None:
    text = month_report_file(month_report(OCTOBER, visibility=EVERYTHING, now=NOW))
    markup = markup_of(text)
    assert not re.search(r"""(src|href)=|url\(|@import""", markup)
    assert text.count("Plotly.newPlot(") >= 3
    assert markup.count('class="sheet"') >= 3
    assert "<script>" in text
    assert len(text) < 2_500_000


def test_the_command_writes_the_file(priced: Priced, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    call_command("monthly_report", "2026-10", str(path), team="vision")
    assert "October 2026: vision" in path.read_text(encoding="utf-8")
    with pytest.raises(CommandError, match="There is no team"):
        call_command("monthly_report", "2026-10", str(path), team="nobody")
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("monthly_report", "2026-10", str(tmp_path / "no" / "report.html"))


def test_the_page_shows_it_to_whom_it_may_concern(priced: Priced, signed_in: SignIn) -> None:
    finance = signed_in(priced.portal.finn)
    page = text_of(finance, "/costs/report/2026-10/")
    assert "October 2026" in page
    assert "Not closed" in page
    assert "vision" in text_of(finance, "/costs/report/2026-10/?team=vision")
    dan = signed_in(priced.portal.dan)
    assert dan.get("/costs/report/2026-10/?team=vision").status_code == 404
    assert dan.get("/costs/report/2026-10/file?team=vision").status_code == 404
    assert dan.get("/costs/report/2026-13/").status_code == 404
    response = dan.get("/costs/report/2026-10/file")
    assert response["Content-Disposition"] == 'attachment; filename="gpu-report-2026-10.html"'
    markup = markup_of(file_of(response))
    assert "speech" in markup
    assert "vision" not in markup


def test_leads_get_their_teams_alone_and_only_where_it_is_switched_on(
    priced: Priced, settings: Settings
) -> None:
    settings.EMAIL_HOST = "mail.example"
    settings.MONTHLY_MAIL_DAY = 2
    settings.MONTHLY_MAIL_TO = []
    User.objects.filter(pk=priced.portal.finn.pk).update(email="finn@example.org")
    User.objects.filter(pk=priced.portal.ada.pk).update(email="ada@example.org")
    close_period(OCTOBER, by="finn", now=NOW, forced="what was before the portal")
    send_monthly_reports(now=NOW)
    assert [message.to for message in mail.outbox] == [["finn@example.org"]]
    settings.MONTHLY_MAIL_LEADS = True
    send_monthly_reports(now=NOW)
    of_finance, of_lead = mail.outbox
    assert of_lead.to == ["ada@example.org"]
    ((name, text, kind),) = of_lead.attachments
    assert (name, kind) == ("gpu-report-2026-10.html", "text/html")
    assert "vision" in text
    assert "speech" not in text
    assert "speech" not in of_lead.body
    assert "all teams" in of_finance.attachments[0][1]


def test_a_mail_of_a_lead_has_the_figures_of_their_report_and_page_alone(
    priced: Priced, settings: Settings, signed_in: SignIn
) -> None:
    settings.EMAIL_HOST, settings.MONTHLY_MAIL_DAY = "mail.example", 2
    settings.MONTHLY_MAIL_TO, settings.MONTHLY_MAIL_LEADS = [], True
    User.objects.filter(pk=priced.portal.ada.pk).update(email="ada@example.org")
    close_period(OCTOBER, by="finn", now=NOW, forced="what was before the portal")
    send_monthly_reports(now=NOW)
    (of_lead,) = mail.outbox
    body = str(of_lead.body)
    seen = Visibility(everything=False, team_ids=frozenset({priced.portal.vision.pk}))
    (own,) = (
        page
        for page in month_report(OCTOBER, visibility=seen, now=NOW).pages
        if page.team == "vision"
    )
    charged, unused = (values(own)[key] for key in ("charged", "unused"))
    sums = re.findall(r"Total +([\d,.]+)", body)
    assert [Decimal(one.replace(",", "")) for one in sums] == [
        Decimal(str(one)).quantize(Decimal(1)) for one in (charged, unused)
    ]
    assert "platform" not in body.split("Charge basis")[0]
    window = "first=2026-10-01&last=2026-10-31"
    address = f"/costs/?{window}&by=team&team=vision&format=csv&table=costs"
    (row,) = records_of(signed_in(priced.portal.ada), address)
    assert Decimal(row["cost"]) == charged


def test_the_report_tells_the_attainment_of_the_month(priced: Priced) -> None:
    tier = Tier.objects.filter(builtin=False).order_by("pk")[0]
    QueueTimeObjective.objects.create(tier=tier, p95_seconds=1800, days=7, valid_from=BEGINNING)
    workload = make_workload(Cluster.objects.order_by("pk")[0], "vision", "aimed")
    for day, minutes in ((2, 20), (2, 40), (25, 20)):
        since = datetime(2026, 10, day, 12, tzinfo=UTC)
        make_episode(workload, since=since, until=since + timedelta(minutes=minutes), tier=tier)
    page = month_report(OCTOBER, visibility=EVERYTHING, now=NOW).pages[0]
    (row,) = [one for one in page.queue_times if one.objective is not None]
    assert (row.tier, row.objective) == (tier.name, 1800)
    assert row.attainment == pytest.approx(2 / 3)
    assert page.has_objectives
