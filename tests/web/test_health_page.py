"""Data quality: the calendar of hours and the list of collections."""

import html
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import User
from apps.clusters.models import Cluster, Tier
from apps.operations.models import DoctorCheck, DoctorFinding
from apps.usage.models import CollectionWindow, NodeHour
from apps.web.data_quality.cluster_health import ClusterHealth, tier_hours
from tests.factories import Portal
from tests.web.conftest import DAILY, HOURLY
from tests.web.pages import text_of
from tests.web.shown import figures_of, tables_of

QUALITY = f"/admin/data-quality/?{HOURLY}"
CALENDAR = f"{QUALITY}&tab=calendar"


def calendars_of(page: str) -> list[dict[str, list[str]]]:
    """Return by day what the hours of each calendar say; hours that are blank say nothing."""
    found = []
    for grid in page.split('<div class="hour-grid">')[1:]:
        lines = re.findall(
            r'<li><a class="row-name"[^>]*>([^<]+)</a><span class="hour-cells"[^>]*>(.*?)</span>',
            grid,
        )
        found.append({day: re.findall(r'title="([^"]+)"', cells) for day, cells in lines})
    return found


def runs_of(page: str, cluster: str) -> list[str]:
    """Return the lines of a cluster's hours, newest first."""
    found = re.search(rf'aria-label="Runs of hours of {cluster}">(.*?)</ul>', page, re.DOTALL)
    assert found
    return [re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", li)).strip() for li in split(found[1])]


def split(items: str) -> list[str]:
    return items.split("</li>")[:-1]


def test_a_calendar_for_each_cluster_marks_each_hour(admin: Client) -> None:
    calendars = calendars_of(text_of(admin, CALENDAR))
    assert len(calendars) == 2
    for days in calendars:
        assert {day: len(hours) for day, hours in days.items()} == {
            "Mon 27 Oct": 24,
            "Sun 26 Oct": 25,
            "Sat 25 Oct": 24,
        }
        assert days["Sat 25 Oct"][1].startswith("01:00 ")
        assert days["Sat 25 Oct"][1].endswith(" %")
        assert days["Sat 25 Oct"][2:4] == ["02:00 failed", "03:00 missing"]
        assert [hour[:5] for hour in days["Sun 26 Oct"][2:4]] == ["02:00", "02:00"]


def test_hours_that_are_alike_are_one_line(admin: Client) -> None:
    page = text_of(admin, CALENDAR)
    for cluster in ("west", "east"):
        lines = runs_of(page, cluster)
        assert [line.split("×")[-1].split("?")[-1].strip()[:27] for line in lines[1:3]] == [
            "1 hour not collected 25 Oct",
            "1 hour failed 25 Oct 2025 0",
        ]
        assert lines[0].startswith(
            "69 hours complete 25 Oct 2025 04:00 CEST – 28 Oct 2025 00:00 CET"
        )
        assert lines[3].startswith("2 hours complete 25 Oct 2025 00:00 – 02:00")
    assert "answered 503" in runs_of(page, "west")[2]


def test_data_health_leads_with_what_is_wrong(admin: Client) -> None:
    page = text_of(admin, QUALITY)
    assert '<h2 id="verdict-title">4 hours of 2 clusters incomplete' in page
    assert issues_of(page)[:4] == [
        "Error: 1 hour failed east · 25 Oct 2025 02:00 – 03:00 1 h",
        "Error: 1 hour not collected east · 25 Oct 2025 03:00 – 04:00 1 h",
        "Error: 1 hour failed west · 25 Oct 2025 02:00 – 03:00 1 h",
        "Error: 1 hour not collected west · 25 Oct 2025 03:00 – 04:00 1 h",
    ]
    assert "quality quality-ok" not in page
    sound = text_of(admin, "/admin/data-quality/?first=2025-10-27&last=2025-10-27")
    assert "Nothing is wrong" not in sound
    assert '<h2 id="verdict-title">Not checked yet</h2>' in sound
    assert "24 of 24 hours collected" in sound
    assert issues_of(sound) == []


def test_an_issue_has_cause_effect_action_and_owner(admin: Client) -> None:
    page = text_of(admin, QUALITY)
    found = re.search(r'<dl class="finding-facts">(.*?)</dl>', page, re.DOTALL)
    assert found
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", found[1], re.DOTALL))
    assert list(facts) == ["Cause", "Effect", "Action", "Owner"]
    assert "answered 503" in facts["Cause"]
    assert facts["Effect"] == "Totals exclude 1 hour."
    assert "manage.py backfill --cluster east" in facts["Action"]
    assert facts["Owner"] == "Platform admin"


def test_issues_stand_in_the_order_of_what_they_cost(portal: Portal, admin: Client) -> None:
    def find(code: str, severity: str, **cost: float) -> None:
        DoctorFinding.objects.create(
            cluster=portal.clusters[0], code=code, subject="", severity=severity,
            first_seen=CHECKED, last_seen=CHECKED, body={"cost": cost, "what": code},
        )  # fmt: skip

    find("slices-stranded", "note", gpu_hours=2000)
    find("virtual-gpus-off", "warning", pods=40)
    find("activity-unattributed", "warning", gpu_hours=300)
    find("namespaces-without-quota", "note", pods=5801)
    find("exporter-changed", "warning")
    find("watch-behind", "error")
    page = text_of(admin, QUALITY)
    assert 'tab=table&amp;state=unattributed">Unattributed GPUs</a>' in page
    told = issues_of(page)
    assert [line.split(" west")[0] for line in told[4:]] == [
        "Error: The watch is behind",
        "Note: MIG slices are stranded",
        "Warning: GPUs are active without a pod",
        "Note: GPU namespaces have no GPU quota",
        "Warning: Pods on one GPU are not told apart",
        "Warning: The exporter shows itself otherwise",
    ]
    assert told[5].endswith("2,000.0 GPU-h")


SOUND = "/admin/data-quality/?first=2025-10-27&last=2025-10-27"
TIERS = f"{SOUND}&tab=tiers"
CHECKED = datetime(2025, 10, 28, 7, 40, tzinfo=UTC)


def issues_of(page: str) -> list[str]:
    """Return the heads of the issues, in their order."""
    heads = re.findall(r"<summary>(<strong>.*?)</summary>", page, re.DOTALL)
    return [re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", head)).strip() for head in heads]


def verdicts_of(page: str) -> dict[str, str]:
    """Return the verdict on each cluster and tier of the tab of tiers."""
    return {row[1].text: row[2].text for row in tables_of(page)["verdicts"].rows[1:]}


def check(*clusters: str) -> None:
    for one in Cluster.objects.filter(name__in=clusters):
        DoctorCheck.objects.create(cluster=one, at=CHECKED, unread=["taints"])


def test_before_the_doctor_ran_nothing_is_said_to_be_well(admin: Client) -> None:
    page = text_of(admin, TIERS)
    assert set(verdicts_of(page).values()) == {"not checked yet"}
    assert "were examined" not in text_of(admin, SOUND)
    check("west")
    page = text_of(admin, TIERS)
    assert (verdicts_of(page)["west"], verdicts_of(page)["east"]) == (
        "no issues",
        "not checked yet",
    )
    assert '<h2 id="verdict-title">Not checked yet</h2>' in page


def test_no_issues_stands_with_the_time_of_the_check(admin: Client) -> None:
    check("west", "east")
    page = text_of(admin, TIERS)
    assert set(verdicts_of(page).values()) == {"no issues"}
    assert re.search(r'<h2 id="verdict-title">No issues, checked <time[^>]*>[^<]*08:40', page)
    assert "taints" in page


def test_warnings_of_the_doctor_are_part_of_the_verdict(admin: Client, portal: Portal) -> None:
    check("west", "east")
    tier = Tier.objects.filter(builtin=False).order_by("name")[0].name
    DoctorFinding.objects.create(
        cluster=portal.clusters[0], code="tier-matches-nothing", subject=tier, severity="warning",
        body={"tiers": [tier]}, first_seen=CHECKED, last_seen=CHECKED,
    )  # fmt: skip
    page = text_of(admin, TIERS)
    own = verdicts_of(page)
    assert '<h2 id="verdict-title">1 warning, checked' in page
    assert "24 of 24 hours collected" in page, "the hours are no issue of it"
    assert f"issues in {tier}" in page
    assert (own[portal.clusters[0].name], own[tier]) == ("warnings", "warnings")
    assert own[portal.clusters[1].name] == "no issues"
    DoctorFinding.objects.update(subject="unknown")
    assert "GPU model unknown" in text_of(admin, SOUND)


def test_the_hours_of_a_tier_are_those_of_the_clusters_that_have_it() -> None:
    healths = [ClusterHealth(name, 158, 157, (), None) for name in ("west", "east")]
    places = [("west", "gold"), ("west", "claim"), ("west", "shared"), ("east", "shared")]
    assert tier_hours(places, {("west", "claim"): 153, ("gone", "gold"): 7}, healths) == {
        "gold": (157, 158),
        "claim": (4, 158),
        "shared": (314, 316),
    }


def test_a_finding_counts_for_the_tiers_it_names_and_of_its_nodes(
    admin: Client, portal: Portal
) -> None:
    check("west", "east")
    hour = NodeHour.objects.filter(capacity__gt=0, tier__builtin=False).latest("hour", "pk")
    other = Tier.objects.filter(builtin=False).exclude(pk=hour.tier_id).order_by("name")[0].name
    for code, severity, about in (
        ("virtual-gpus-off", "warning", {"places": [hour.node.name]}),
        ("team-not-allowed", "note", {"tiers": [other]}),
    ):
        DoctorFinding.objects.create(
            cluster=hour.cluster, code=code, severity=severity,
            body=about, first_seen=CHECKED, last_seen=CHECKED,
        )  # fmt: skip
    page = text_of(admin, TIERS)
    rows = {row[1].text: [cell.text for cell in row] for row in tables_of(page)["verdicts"].rows}
    # Verdict, hours collected, hours due, errors, warnings, notes.
    assert rows[hour.tier.name][2] == "warnings"
    assert rows[hour.tier.name][5:8] == ["0", "1", "0"]
    assert rows[other][2] == "no issues"
    assert rows[other][5:8] == ["0", "0", "1"]
    assert int(rows[other][3]) == int(rows[other][4]) > 0, "its hours are told, too"
    assert f"issues in {hour.tier.name}" in page
    # The home counts as this page does: what is wrong, and what is worth knowing.
    assert '<h2 id="verdict-title">1 warning, 1 note, checked' in page
    figure = figures_of(text_of(admin, f"/?{HOURLY}"))["Data issues"]
    assert figure == "1 1 warning, 1 note"


@pytest.mark.parametrize(
    ("link", "states"),
    [
        (r'<a href="([^"#]+)#collections">[^<]*1 hour failed', ["failed"]),
        (r'<a class="row-name" href="([^"#]+)#collections">Sat 25 Oct', [*20 * ["complete"]]),
    ],
    ids=["hours that are alike", "a day"],
)
def test_hours_of_the_calendar_lead_to_the_log(link: str, states: list[str], admin: Client) -> None:
    found = re.search(link, text_of(admin, CALENDAR))
    assert found
    hours = text_of(admin, html.unescape(found[1]))
    rows = tables_of(hours)["collections"].rows[1:]
    assert [row[2].text for row in rows][: len(states)] == states
    assert len(rows) in {1, 23}
    assert '<details class="hour-list" id="hours" open>' in hours


def test_the_hours_one_by_one_are_folded_until_they_are_asked_for(admin: Client) -> None:
    assert '<details class="hour-list" id="hours">' in text_of(admin, CALENDAR)
    asked = text_of(admin, f"{CALENDAR}&state=failed")
    assert '<details class="hour-list" id="hours" open>' in asked


def test_clusters_begin_at_their_own_hour_and_those_that_lack_most_come_first(
    portal: Portal, admin: Client
) -> None:
    CollectionWindow.objects.filter(
        cluster=portal.clusters[0], hour__lt=datetime(2025, 10, 26, 23, tzinfo=UTC)
    ).delete()
    page = text_of(admin, CALENDAR)
    assert page.index('id="cluster-1-heading">east') < page.index('id="cluster-2-heading">west')
    assert "71 of 73 hours complete" in page
    assert "24 of 24 hours complete" in page


def test_a_long_window_shows_only_what_is_wrong(admin: Client) -> None:
    page = text_of(admin, "/admin/data-quality/?first=2025-07-01&last=2025-10-27&tab=calendar")
    assert calendars_of(page) == []
    assert "1 hour failed" in page
    assert "hours complete</a>" not in page


@pytest.mark.parametrize("window", ["first=2025-10-24&last=2025-10-25", HOURLY])
def test_hours_stand_above_the_calendar(window: str, admin: Client) -> None:
    page = text_of(admin, f"/admin/data-quality/?{window}&tab=calendar")
    found = re.search(r'<p class="hour-heads"[^>]*>(.*?)</p>', page)
    assert found
    heads = [clock for clock in re.findall(r"<span>(\d*)</span>", found[1]) if clock]
    assert heads == ["00", "06", "12", "18"]


def test_data_health_narrows_to_states(admin: Client) -> None:
    rows = tables_of(text_of(admin, f"{CALENDAR}&state=failed"))["collections"].rows
    assert {row[2].text for row in rows[1:]} == {"failed"}
    assert len(rows) == 3
    assert "answered 503" in rows[1][-1].text


def test_collections_are_paged_without_losing_a_row(admin: Client) -> None:
    address, seen = f"/admin/data-quality/?{DAILY}&tab=calendar", []
    for _ in range(10):
        page = text_of(admin, address)
        seen += [(r[0].text, r[1].text) for r in tables_of(page)["collections"].rows[1:]]
        found = re.search(r'href="([^"]+)#collections" rel="next"', page)
        if found is None:
            break
        address = html.unescape(found[1])
    assert len(seen) == len(set(seen)) == 2 * 97 - 2


def test_issues_that_only_administrators_see_are_counted(
    portal: Portal, admin: Client, signed_in: Callable[[User], Client]
) -> None:
    check("west", "east")
    DoctorFinding.objects.create(
        cluster=portal.clusters[0], code="quota-counts-nothing", subject="", severity="warning",
        first_seen=CHECKED, last_seen=CHECKED,
    )  # fmt: skip
    page = text_of(signed_in(portal.ada), SOUND)
    assert "1 more is shown to administrators" in page
    assert "No issues" not in page
    assert "shown to administrators" not in text_of(admin, SOUND)
    exporters = text_of(signed_in(portal.ada), f"{SOUND}&tab=exporters")
    assert "Exporters are shown to administrators." in exporters


def test_a_long_collection_shows_how_far_it_has_come_and_is_found_again(
    portal: Portal, admin: Client
) -> None:
    west = portal.clusters[0]
    assert 'id="work"' not in text_of(admin, f"/admin/data-quality/?{HOURLY}")
    before = datetime(2025, 9, 1, tzinfo=UTC)
    for hour in range(5):
        CollectionWindow.objects.create(
            cluster=west, hour=before + timedelta(hours=hour), state="waiting"
        )
    page = text_of(admin, f"/admin/data-quality/?{HOURLY}")
    done, asked = map(int, re.findall(r"(\d+) of (\d+) hours collected, 5 pending", page)[0])
    assert f'max="{asked}" value="{done}"' in page
    address = html.unescape(re.findall(r'id="work"[^>]*hx-get="([^"]+)"', page)[0])
    rows = CollectionWindow.objects.filter(cluster=west, state="waiting")
    rows.filter(hour__lt=before + timedelta(hours=2)).update(state="complete")
    part = admin.get(address, headers={"HX-Request": "true"}).content.decode()
    assert f"{done + 2} of {asked} hours collected, 3 pending" in part
    assert "<html" not in part
    assert "Collection stalled" in part
    rows.update(attempted_at=timezone.now() - timedelta(minutes=9))
    moving = admin.get(address, headers={"HX-Request": "true"}).content.decode()
    assert "Collection in progress" in moving
    rows.update(state="complete")
    over = admin.get(address, headers={"HX-Request": "true"}).content.decode()
    assert "Collection complete" in over
    assert "hx-get" not in over
