"""The list of workloads: the most unused first, money, verdicts, filter and pages."""

import re
from collections.abc import Callable

from django.db.models import F
from django.test import Client

from apps.accounts.models import User
from apps.usage.models import PodHour, TeamDay, TeamHour, WorkloadDay
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.pages import check_explained, records_of, text_of
from tests.web.shown import tables_of
from tests.web.test_devices_page import words

SignIn = Callable[[User], Client]
LIST = f"/workloads/?{HOURLY}"


def rows_of(page: str) -> dict[str, list[str]]:
    """Return the cells of each row by the workload."""
    rows = tables_of(page)["workloads"].rows[1:]
    return {row[0].text: [cell.text for cell in row[1:]] for row in rows}


def test_every_workload_is_listed_the_most_unused_first(admin: Client) -> None:
    page = text_of(admin, LIST)
    found = rows_of(page)
    assert {"Job/train", "Deployment/serve", "StatefulSet/notes"} <= set(found)
    records = records_of(admin, f"{LIST}&format=csv&table=workloads")
    unused = [float(row["not_busy_gpu_hours"]) for row in records]
    assert unused == sorted(unused, reverse=True)
    assert {row["workload"] for row in records} == set(found)
    check_explained(admin, LIST)


def test_a_row_leads_to_workload_team_and_tier(admin: Client) -> None:
    page = text_of(admin, LIST)
    assert re.search(r'href="/workloads/west/vision/Job/train/\?[^"]+">Job/train<', page)
    assert "/capacity/teams/vision/" in page


def test_members_see_workloads_of_their_teams_alone(
    portal: Portal, signed_in: SignIn, admin: Client
) -> None:
    page = text_of(signed_in(portal.dan), LIST)
    assert set(rows_of(page)) == {"StatefulSet/notes"}
    assert "train" not in page


def test_the_list_is_filtered_by_name(admin: Client) -> None:
    assert set(rows_of(text_of(admin, f"{LIST}&q=notes"))) == {"StatefulSet/notes"}
    assert set(rows_of(text_of(admin, f"{LIST}&team=speech"))) == {"StatefulSet/notes"}


def test_workloads_are_drawn_with_their_links(admin: Client) -> None:
    page = text_of(admin, LIST)
    assert 'id="workload-scatter-heading"' in page
    drawn = records_of(admin, f"{LIST}&format=csv&table=workload-scatter")
    assert {row["workload"] for row in drawn} >= {"train", "notes"}


def test_a_range_without_data_says_so(admin: Client) -> None:
    page = text_of(admin, "/workloads/?first=2025-01-01&last=2025-01-02")
    assert "No hour of this window is collected." in page
    assert "No workload held a GPU" not in page
    assert words(page).count("no data") == 5


def test_without_metrics_no_unused_time_is_no_zero(admin: Client) -> None:
    found = ("idle", "underused", "busy", "not_running")
    held = F("idle") + F("underused") + F("busy") + F("not_running") + F("unmeasured")
    for table in (PodHour, WorkloadDay, TeamHour, TeamDay):
        table.objects.update(unmeasured=held, **dict.fromkeys(found, 0))
    page = words(text_of(admin, LIST))
    for figure in ("Utilization", "Unused allocation", "Unused cost"):
        assert f"{figure} no data" in page


def test_hours_without_data_are_in_no_average(admin: Client) -> None:
    def average(query: str) -> str:
        found = re.search(r"Allocated average ([\d.]+) GPUs", words(text_of(admin, query)))
        assert found
        return found[1]

    # The same hours have data in both ranges: the longer one has no more of them.
    assert average("/workloads/?first=2025-09-27&last=2025-10-27") == average(LIST)
