"""The page of quotas and budgets, and that of one key: what is shown, to whom, and as files."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from zoneinfo import ZoneInfo

import pytest
from django.core.cache import cache
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.domain.structs import replace
from apps.accounts.models import User
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorQuota,
    FlavorUse,
    LocalQueueSnapshot,
    ObservedKind,
    QuotaSnapshot,
)
from apps.clusters.models import NamespaceTeam, ObservedObject, Pod, WatchCoverage
from apps.quota_requests.models import ChangeRequest
from apps.quotas.domain.usage_changes import UsageStep
from apps.quotas.models import Budget, QuotaHour, QuotaKey, QuotaKeyHour
from apps.quotas.selectors import QuotaPoint
from apps.web.quotas.key_usage import limit_runs
from tests.factories import Portal, make_pod, make_team, make_workload
from tests.quotas.quota_rows import GPU, KEY, refuse, see, see_quota
from tests.web.conftest import HOURLY
from tests.web.entitlements import HOUR, MORNING, SINCE, fill_key
from tests.web.pages import check_explained, records_of, table_links, text_of
from tests.web.shown import tables_of
from tests.web.test_devices_page import words

SPEECH = "ResourceQuota west/speech/gpus"
VISION = "ResourceQuota west/vision/gpus"
INERT = "ResourceQuota west/vision-prod/inert"
SignIn = Callable[[User], Client]
LIST = "/quotas/"
EVERY = "/quotas/?show=all"
TEAMS = "/quotas/?tab=teams"
UNUSED = "/quotas/?tab=unused"
ONE = f"/quotas/west/ResourceQuota/vision/gpus/{KEY}/"


@pytest.fixture(autouse=True)
def span(portal: Portal) -> WatchCoverage:
    """The cluster is watched now."""
    west = portal.clusters[0]
    return WatchCoverage.objects.create(cluster=west, start=SINCE, end=timezone.now())


_place = re.compile(r"\b(?:ResourceQuota|ClusterQueue|Queue) \S+")


def lines(page: str) -> dict[str, str]:
    """Return the lines of the list by quota and place, in their order, as text."""
    rows = re.findall(r'<tr role="row">\s*<td(.*?)</tr>', page, re.DOTALL)
    told = [words(f"<td{row}").strip() for row in rows]
    return {_place.findall(line)[0]: line for line in told}


def keys_file(client: Client, query: str = "") -> list[dict[str, str]]:
    return records_of(client, f"{EVERY}&format=csv&table=keys{query}")


# ---------------------------------------------------------------- the list


def test_keys_are_listed_the_fullest_first_and_those_without_effect_last(admin: Client) -> None:
    assert list(lines(text_of(admin, EVERY))) == [SPEECH, VISION, INERT]


def test_limits_at_80_percent_or_blocking_are_shown_first_and_others_when_asked(
    admin: Client,
) -> None:
    page = text_of(admin, LIST)
    assert list(lines(page)) == [SPEECH]
    assert "80 % or blocking 1" in words(page)
    assert "all 3" in words(page)
    assert list(lines(text_of(admin, f"{LIST}?show=unenforced"))) == [INERT]
    assert list(lines(text_of(admin, f"{LIST}?q=vision"))) == [VISION, INERT]
    assert [row["name"] for row in records_of(admin, f"{LIST}?format=csv")] == ["gpus"]


def test_a_list_without_tight_limits_leads_to_all(admin: Client) -> None:
    page = text_of(admin, f"{LIST}?team=vision")
    assert "No limit is at 80 % or blocks work." in words(page)
    (link,) = re.findall(r'href="([^"]+)">Show all limits', page)
    assert list(lines(text_of(admin, unescape(link)))) == [VISION, INERT]


def test_a_line_says_what_is_used_of_what_and_which_tiers_it_can_reach(admin: Client) -> None:
    line = lines(text_of(admin, EVERY))[VISION]
    assert line.startswith(f"{KEY} {VISION} gold , silver vision 6 / 8")
    assert "75 %" in line


def test_a_full_quota_is_told_to_be_full(admin: Client) -> None:
    line = lines(text_of(admin, LIST))[SPEECH]
    assert "4 / 4" in line
    assert "100 %" in line


def test_quotas_that_nobody_watches_now_are_told_as_of_when_they_were_seen(
    admin: Client, span: WatchCoverage
) -> None:
    span.delete()
    page = text_of(admin, LIST)
    full = lines(page)[SPEECH]
    assert "100 % was full" in full
    assert "Stale" in full
    assert "Not watched now: as of" in page
    assert "Clusters that are not watched show their last known values" in text_of(admin, TEAMS)
    assert {row["stale"] for row in keys_file(admin)} == {"yes"}
    one = text_of(admin, ONE)
    assert "Used / limit as last seen" in words(one)
    assert "Not watched now: as of" in one


def test_what_is_watched_is_not_marked(admin: Client) -> None:
    page = text_of(admin, LIST)
    assert "Not watched now" not in page
    assert "nobody watches now" not in page
    assert {row["stale"] for row in keys_file(admin)} == {"no"}


def test_a_key_that_limits_nothing_comes_with_the_fix_and_without_saturation(
    admin: Client,
) -> None:
    line = lines(text_of(admin, EVERY))[INERT]
    assert "Not enforced" in line
    assert line.endswith("–")
    address = f"/quotas/west/ResourceQuota/vision-prod/inert/{GPU}/"
    assert f"Fix: Replace it with {KEY}" in words(text_of(admin, address))
    (row,) = [row for row in keys_file(admin) if row["name"] == "inert"]
    assert (row["effective"], row["used"], row["saturation_ratio"]) == ("no", "", "")
    assert row["instead"] == KEY


@pytest.mark.parametrize(
    ("query", "left"),
    [
        pytest.param("cluster=east", [], id="cluster"),
        pytest.param("team=speech", ["west/speech"], id="team"),
        pytest.param("namespace=vision", ["west/vision"], id="namespace"),
        pytest.param(
            "tier=gold&source=ResourceQuota",
            ["west/speech", "west/vision", "west/vision-prod"],
            id="tier",
        ),
        pytest.param("source=ClusterQueue", [], id="source"),
        pytest.param("sort=used", ["west/speech", "west/vision", "west/vision-prod"], id="by use"),
    ],
)
def test_filters_narrow_the_list_and_its_file(query: str, left: list[str], admin: Client) -> None:
    page = text_of(admin, f"{EVERY}&{query}")
    assert [place.split(" ")[-1].rpartition("/")[0] for place in lines(page)] == left
    found = [f"{row['cluster']}/{row['namespace']}" for row in keys_file(admin, f"&{query}")]
    assert found == left
    if not left:
        assert "No quota that you may see is like that. Take off a filter." in page


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "source=Bag",
            "There is no source “Bag”; there are: ResourceQuota, ClusterQueue, Queue, KaiQueue.",
        ),
        ("show=%3Cb%3E", "There is no show “<b>”"),
    ],
)
def test_what_makes_no_sense_is_said_and_narrows_nothing(
    query: str, said: str, admin: Client
) -> None:
    page = text_of(admin, f"{LIST}?{query}")
    assert said in unescape(page)
    assert len(lines(page)) == 1
    assert "<b>”" not in page


def test_a_queue_is_listed_without_a_namespace_and_has_its_page(
    portal: Portal, admin: Client
) -> None:
    quota = FlavorQuota(flavor="any", resource=GPU, nominal=8.0, borrowing_limit=2.0)
    used = (FlavorUse(flavor="any", resource=GPU, total=9.0, borrowed=1.0),)
    body = ClusterQueueSnapshot(quotas=(quota,), used=used, cohort="all")
    other = ClusterQueueSnapshot(quotas=(replace(quota, nominal=4.0),), cohort="all")
    for name, one in (("batch", body), ("other", other)):
        see(portal.clusters[0], ObservedKind.CLUSTER_QUEUE, one, name=name, since=SINCE)
    page = text_of(admin, f"{LIST}?source=ClusterQueue")
    assert list(lines(page)) == ["ClusterQueue west/batch"]
    address = f"/quotas/west/ClusterQueue/-/batch/any/{GPU}/"
    assert address in page
    shown = words(text_of(admin, address))
    assert "Cohort all, 1 borrowed, 10 at most" in shown
    assert "Borrowing limit 2" in shown
    assert check_explained(admin, f"{LIST}?source=ClusterQueue") >= {"quota_used", "quota_usage"}
    assert check_explained(admin, address) >= {"quota_ceiling", "quota_borrowed"}


def test_a_lead_and_an_admin_read_the_same_of_a_queue_of_one_team(
    portal: Portal, admin: Client, signed_in: SignIn
) -> None:
    """Hours before the watch know no LocalQueue, so no team: they are of the queue all the same."""
    quota = FlavorQuota(flavor="any", resource=GPU, nominal=8.0)
    used = (FlavorUse(flavor="any", resource=GPU, total=8.0, borrowed=0.0),)
    west, key = portal.clusters[0], f"any/{GPU}"
    body = ClusterQueueSnapshot(quotas=(quota,), used=used)
    see(west, ObservedKind.CLUSTER_QUEUE, body, name="batch", since=SINCE)
    local = LocalQueueSnapshot(cluster_queue="batch")
    see(west, ObservedKind.LOCAL_QUEUE, local, name="main", namespace="speech", since=SINCE)
    fill_key(portal, 8.0, 6.0, source="ClusterQueue", namespace="", name="batch", key=key)
    hours = QuotaKeyHour.objects.filter(key__name="batch")
    hours.update(team=None)
    hours.filter(hour__gte=MORNING + 4 * HOUR).update(team=portal.speech, used=8.0)
    address = f"/quotas/west/ClusterQueue/-/batch/{key}/?{HOURLY}"
    pages = [text_of(client, address) for client in (signed_in(portal.dan), admin)]
    of_lead, of_admin = (
        [[cell.text for cell in row] for row in tables_of(page)["points"].rows] for page in pages
    )
    assert len(of_lead) == 3
    assert of_lead == of_admin
    assert all("33 % of 6 h known" in words(page) for page in pages)


def test_many_keys_come_20_at_a_time_and_the_file_has_all(portal: Portal, admin: Client) -> None:
    for n in range(120):
        see_quota(portal.clusters[0], f"vision-{n:03}", 4.0, used=1.0, since=SINCE, uid=f"u{n}")
    first = text_of(admin, EVERY)
    (following,) = re.findall(r'href="([^"]+)" rel="next"', first)
    second = text_of(admin, unescape(following))
    assert len(lines(first)) == len(lines(second)) == 20
    assert not set(lines(first)) & set(lines(second))
    assert len(keys_file(admin)) == 123


def test_more_keys_need_no_more_queries(portal: Portal, admin: Client) -> None:
    with CaptureQueriesContext(connection) as before:
        text_of(admin, EVERY)
    for n in range(30):
        see_quota(portal.clusters[0], f"vision-{n:02}", 4.0, since=SINCE, uid=f"u{n}")
    for n in range(10):
        team = make_team(f"team-{n}", f"space-{n}")
        Budget.objects.create(team=team, period="month", gpu_hours=100.0, valid_from=SINCE)
    cache.clear()  # what was remembered would hide how many queries it takes
    with CaptureQueriesContext(connection) as after:
        text_of(admin, EVERY)
    assert len(after) == len(before)


# ---------------------------------------------------------------- sums and what was unused


def test_teams_are_summed_for_everybody_and_keys_listed_for_their_people(
    portal: Portal, signed_in: SignIn
) -> None:
    client = signed_in(portal.dan)
    every = text_of(client, EVERY)
    assert list(lines(every)) == [SPEECH]
    page = text_of(client, TEAMS)
    sums = tables_of(page)["sums"].rows[1:]
    assert [[cell.text for cell in row[:4]] for row in sums] == [
        ["speech", GPU, "GPUs", "gold, silver"],
        ["vision", GPU, "GPUs", "gold, silver"],
    ]
    assert "of other teams you see GPU sums only" in page
    links = [*table_links(every), *table_links(page), *table_links(text_of(client, UNUSED))]
    files = [text for link in links for text in [str(records_of_all(portal, link))]]
    for hidden in ("vision-prod", "inert"):
        assert hidden not in every + page
        assert all(hidden not in text for text in files)


def test_a_sum_of_which_a_part_is_not_known_is_told_to_be_so(
    portal: Portal, admin: Client, span: WatchCoverage
) -> None:
    assert "A sum is not known" not in text_of(admin, TEAMS)
    ObservedObject.objects.all().delete()
    span.delete()
    key = QuotaKey.objects.get_or_create(
        cluster=portal.clusters[0], source="ResourceQuota", namespace="vision", name="gpus", key=KEY
    )[0]
    QuotaKeyHour.objects.filter(cluster=key.cluster).delete()
    QuotaHour.objects.update_or_create(
        cluster=key.cluster, hour=MORNING, defaults={"collected_at": MORNING, "keys": 1}
    )
    QuotaHour.objects.exclude(hour=MORNING).delete()
    QuotaKeyHour.objects.create(
        key=key, cluster=key.cluster, team=portal.vision, hour=MORNING, seconds=3600, hard=8
    )
    page = text_of(admin, TEAMS)
    assert "A dash: part of the sum is not known." in page
    (row,) = tables_of(page)["sums"].rows[1:]
    assert [cell.text for cell in row[4:9]] == ["–", "8", "–", "–", "–"]
    (record,) = records_of(admin, f"{TEAMS}&format=csv")
    assert {record["used"], record["held"], record["saturation_ratio"]} == {""}


def records_of_all(portal: Portal, link: str) -> list[dict[str, str]]:
    client = Client()
    client.force_login(portal.dan)
    return records_of(client, link)


def test_what_was_held_but_unused_is_told_for_the_window(admin: Client) -> None:
    (row,) = tables_of(text_of(admin, f"{UNUSED}&{HOURLY}"))["unused"].rows[1:]
    assert [cell.text for cell in row][:11] == [
        *("gpus", "west", "vision", "ResourceQuota", KEY, "vision", "gold, silver"),
        *("25.0", "12", "48", "36"),
    ]
    (vision,) = [row for row in keys_file(admin, f"&{HOURLY}") if row["namespace"] == "vision"]
    assert vision["unused_hours"] == "12"


def test_a_window_without_hours_says_so(admin: Client) -> None:
    page = text_of(admin, f"{UNUSED}&first=2025-01-01&last=2025-01-03")
    assert "No quota of your teams was known in this window" in page


# ---------------------------------------------------------------- one key


def test_a_key_tells_its_figures_and_its_use_in_steps(admin: Client) -> None:
    page = text_of(admin, f"{ONE}?{HOURLY}")
    told = words(page)
    assert "6 / 8 GPUs" in told
    assert "0 % of 6 h known" in told
    assert page.count('<path class="plot-line plot-limit"') == 2  # the legend and the line
    assert page.count('<path class="plot-area plot-used-area"') == 1
    (row,) = tables_of(page)["points"].rows[1:]
    assert [cell.text for cell in row] == ["26 Oct 2025 07:00", "26 Oct 2025 13:00", "8", "6", "0"]


def test_each_change_of_use_is_a_step_and_the_time_at_the_limit_is_summed(admin: Client) -> None:
    QuotaKeyHour.objects.filter(hour=MORNING + HOUR).update(used=8.0, suppressed=2.0)
    page = text_of(admin, f"{ONE}?{HOURLY}")
    rows = tables_of(page)["points"].rows[1:]
    assert [[cell.text for cell in row[2:]] for row in rows] == [
        ["8", "6", "0"],
        ["8", "8", "2"],
        ["8", "6", "0"],
    ]
    assert "17 % of 6 h known" in words(page)


def test_pods_and_refusals_tell_when_something_changed(portal: Portal, admin: Client) -> None:
    Pod.objects.all().delete()
    started = MORNING + timedelta(minutes=15)
    make_pod(
        make_workload(portal.clusters[0], "vision", "train"),
        created_at=started,
        bound_at=started,
        units=4.0,
        requests={GPU: 4},
        ended_at=MORNING + HOUR,
    )
    QuotaKeyHour.objects.exclude(hour=MORNING).delete()
    QuotaKeyHour.objects.update(used=3.0)
    rows = tables_of(text_of(admin, f"{ONE}?{HOURLY}"))["points"].rows[1:]
    assert [[cell.text for cell in row[:4]] for row in rows] == [
        ["26 Oct 2025 07:00", "26 Oct 2025 07:15", "8", "0"],
        ["26 Oct 2025 07:15", "26 Oct 2025 08:00", "8", "4"],
    ]


LIMITS = f"{ONE}?tab=limits"


def test_the_limit_history_has_a_line_for_each_change_the_newest_first(
    portal: Portal, admin: Client
) -> None:
    QuotaKeyHour.objects.filter(hour=MORNING + 2 * HOUR).update(hard=12.0)
    QuotaKeyHour.objects.filter(hour__gt=MORNING + 3 * HOUR).update(team=portal.speech)
    rows = tables_of(text_of(admin, f"{LIMITS}&{HOURLY}"))["owners"].rows[1:]
    assert [[cell.text for cell in row] for row in rows] == [
        ["26 Oct 2025 11:00", "26 Oct 2025 13:00", "speech", "–", "8", "–", "–"],
        ["26 Oct 2025 10:00", "26 Oct 2025 11:00", "vision", "12", "8", "–", "outside the portal"],
        ["26 Oct 2025 09:00", "26 Oct 2025 10:00", "vision", "8", "12", "–", "outside the portal"],
        ["26 Oct 2025 07:00", "26 Oct 2025 09:00", "vision", "–", "8", "–", "–"],
    ]


def test_the_limit_history_has_its_teams_where_hours_begin_at_half_past() -> None:
    zone, first = ZoneInfo("Asia/Kolkata"), datetime(2026, 3, 1, 18, 30, tzinfo=UTC)
    hours = [
        QuotaPoint(first + n * HOUR, team, 3600.0, 4.0, 1.0, 1.0, 0.0, 0.0)
        for n, team in enumerate(("vision", "vision", "speech"))
    ]
    step = UsageStep(first + HOUR / 4, first + 3 * HOUR, 4.0, 1.0, 0.0)
    runs = [run for _, run in limit_runs([step], hours, zone)]
    assert [(run.start, run.end, run.team) for run in runs] == [
        (step.start, first + 2 * HOUR, "vision"),
        (first + 2 * HOUR, step.end, "speech"),
    ]


def test_a_change_of_the_limit_leads_to_its_request(portal: Portal, admin: Client) -> None:
    at = MORNING + 2 * HOUR + timedelta(minutes=3)
    request = ChangeRequest.objects.create(
        cluster=portal.clusters[0],
        team=portal.vision,
        source="ResourceQuota",
        namespace="vision",
        name="gpus",
        key=KEY,
        before="8",
        after="12",
        reason="More voices.",
        state="applied",
        authors=["ada"],
        approvals=["cleo"],
        created_at=MORNING,
        changed_at=at,
        changed_by="cleo",
        applied_at=at,
    )
    QuotaKeyHour.objects.filter(hour__gte=MORNING + 2 * HOUR).update(hard=12.0)
    page = text_of(admin, f"{LIMITS}&{HOURLY}")
    row = tables_of(page)["owners"].rows[1]
    assert [cell.text for cell in row[3:]] == ["8", "12", f"Request {request.pk}", "ada, cleo"]
    assert f'href="/quotas/requests/{request.pk}/' in page


def test_a_night_in_which_the_clock_changes_is_one_stretch(admin: Client) -> None:
    """02:00 comes twice on this morning; hours follow each other all the same."""
    QuotaKeyHour.objects.update(hour=F("hour") - 7 * HOUR)
    page = text_of(admin, f"{LIMITS}&first=2025-10-25&last=2025-10-26")
    (row,) = tables_of(page)["owners"].rows[1:]
    assert [cell.text for cell in row[:3]] == [
        *("26 Oct 2025 01:00", "26 Oct 2025 06:00", "vision"),
    ]


def test_a_key_that_was_away_is_told_twice(portal: Portal, admin: Client) -> None:
    QuotaKeyHour.objects.filter(hour=MORNING + 3 * HOUR).delete()
    rows = tables_of(text_of(admin, f"{LIMITS}&{HOURLY}"))["owners"].rows[1:]
    assert [row[1].text for row in rows] == ["26 Oct 2025 13:00", "26 Oct 2025 10:00"]


def test_yaml_of_a_key_can_be_copied_with_kubectl_lines(admin: Client) -> None:
    page = unescape(text_of(admin, f"{ONE}?tab=yaml"))
    assert 'kind: ResourceQuota\nmetadata:\n  name: "gpus"\n  namespace: "vision"' in page
    assert f'    "{KEY}": "8"' in page
    assert "kubectl describe resourcequota gpus --namespace vision" in page


def test_consumers_and_blocked_work_stand_below_the_drawing(portal: Portal, admin: Client) -> None:
    Pod.objects.all().delete()
    now = timezone.now() - timedelta(seconds=20)  # a page reads the clock in whole seconds
    train = make_workload(portal.clusters[0], "vision", "train")
    for _ in range(2):
        make_pod(
            train,
            created_at=now - 3 * HOUR,
            bound_at=now - 2 * HOUR,
            requests={GPU: 1},
            units=1.0,
        )
    refuse(portal.clusters[0], "vision", 3, since=now - HOUR, detail="gpus")
    page = text_of(admin, ONE)
    (row,) = tables_of(page)["consumers"].rows[1:]
    assert [row[1].text, row[3].text] == ["2", "2h 0m"]
    (blocked,) = tables_of(page)["blocked"].rows[1:]
    assert [cell.text for cell in blocked[:4]] == ["job", "1", "3", "1h 0m"]


def test_a_namespace_that_moved_shows_each_team_its_own_part(
    portal: Portal, signed_in: SignIn
) -> None:
    NamespaceTeam.objects.filter(team=portal.vision, pattern="vision").update(team=portal.speech)
    for person, there in ((portal.ada, True), (portal.dan, False)):
        page = text_of(signed_in(person), f"{ONE}?{HOURLY}")
        assert ("points" in tables_of(page)) is there
        assert ("This quota is not there now." in page) is there


def test_a_deleted_quota_is_told_as_it_was(portal: Portal, admin: Client) -> None:
    ObservedObject.objects.filter(namespace="vision").update(gone_at=MORNING + 6 * HOUR)
    page = text_of(admin, f"{ONE}?{HOURLY}")
    assert "This quota is not there now." in page
    assert len(tables_of(page)["points"].rows) == 2
    assert admin.get(f"{ONE}?first=2025-01-01&last=2025-01-02").status_code == 404


def test_a_stretch_that_is_not_known_is_shaded_and_never_zero(
    portal: Portal, admin: Client
) -> None:
    QuotaKeyHour.objects.filter(hour=MORNING + 3 * HOUR).update(used=None, held=None)
    page = text_of(admin, f"{ONE}?first=2025-10-26&last=2025-10-26")
    assert page.count('<span class="plot-gap"') == 3
    assert ">not known</li>" in page
    assert [row[3].text for row in tables_of(page)["points"].rows[1:]] == ["6", "–", "6"]


@pytest.mark.parametrize(
    "address",
    [
        "/quotas/west/ResourceQuota/vision/gpus/other/",
        f"/quotas/west/ResourceQuota/nowhere/gpus/{KEY}/",
        f"/quotas/west/Bag/vision/gpus/{KEY}/",
        f"/quotas/nowhere/ResourceQuota/vision/gpus/{KEY}/",
    ],
)
def test_a_quota_that_is_not_there_is_not_found(address: str, admin: Client) -> None:
    assert admin.get(address).status_code == 404


def test_every_table_comes_as_a_file(admin: Client) -> None:
    for address in (EVERY, TEAMS, UNUSED, f"{ONE}?"):
        links = table_links(text_of(admin, f"{address}&{HOURLY}"))
        assert links
        for link in links:
            assert records_of(admin, link)


def test_hostile_names_are_shown_as_text(portal: Portal, admin: Client) -> None:
    bad = '<img src=x onerror="alert(1)">'
    body = QuotaSnapshot(hard={KEY: 4.0}, observed_hard={KEY: 4.0}, used={KEY: 1.0})
    see(
        portal.clusters[0],
        ObservedKind.RESOURCE_QUOTA,
        body,
        name=bad,
        namespace="vision",
        since=SINCE,
    )
    fill_key(portal, 4.0, 2.0, name=bad)
    page = text_of(admin, f"{EVERY}&{HOURLY}")
    assert "<img" not in page
    assert "&lt;img" in page
    (address,) = {unescape(a) for a in re.findall(r'href="(/quotas/west/[^"]*img[^"]*)"', page)}
    one = text_of(admin, address)
    assert "<img" not in one
    assert "&lt;img" in one


def test_htmx_gets_the_results_alone(admin: Client) -> None:
    for address in (LIST, ONE):
        page = admin.get(address, headers={"HX-Request": "true"}).content.decode()
        assert "<html" not in page


def test_what_is_narrowed_here_stays_in_the_links_of_the_page(admin: Client) -> None:
    page = unescape(text_of(admin, f"{EVERY}&window=30d&team=vision&source=ResourceQuota"))
    assert f"{ONE}?window=30d&team=vision" in page
    assert "/quotas/?window=30d&team=vision&source=ResourceQuota&show=tight" in page
