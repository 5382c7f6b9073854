"""The page of a workload: the verdict first, then pictures and facts; the rest in tabs."""

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.clusters.models import Pod
from apps.pending.models import Episode
from apps.usage.models import PodHour
from tests.factories import Portal
from tests.web.conftest import HOURLY
from tests.web.pages import records_of, text_of
from tests.web.pending import look_now, make_waiting
from tests.web.shown import tables_of
from tests.web.test_devices_page import words

SignIn = Callable[[User], Client]
TRAIN = f"/workloads/west/vision/Job/train/?{HOURLY}"


def test_the_verdict_stands_before_everything_else(admin: Client) -> None:
    page = words(text_of(admin, TRAIN))
    assert " unused" in page
    assert page.index(" unused") < page.index("Average GPUs")


def test_without_metrics_the_verdict_says_so_and_nothing_else(admin: Client) -> None:
    for hour in PodHour.objects.filter(workload__name="train"):
        for name in ("busy", "idle", "underused", "not_running"):
            setattr(hour, name, 0)
        hour.unmeasured = hour.allocated
        hour.save()
    page = words(text_of(admin, TRAIN))
    assert "No utilization: 100 % of its GPU-hours have no metrics." in page
    assert "Request fewer" not in page
    assert "Stop it" not in page


def test_what_is_idle_for_hours_is_told_with_its_time(admin: Client) -> None:
    for hour in PodHour.objects.filter(workload__name="train"):
        for name in ("busy", "underused", "not_running", "unmeasured"):
            setattr(hour, name, 0)
        hour.idle = hour.allocated
        hour.save()
    page = words(text_of(admin, TRAIN))
    assert "100 % unused" in page
    assert " idle 25 Oct " in page
    assert "Stop it, or release its GPUs." in page


@pytest.mark.parametrize(
    ("state", "runs", "sentence", "button"),
    [
        ("idle", True, "Stop it, or release its GPUs.", "Release GPUs"),
        ("idle", False, "Request fewer.", "Request fewer"),
        ("not_running", True, "Fix the start of its pods.", "Fix start"),
        ("busy", True, "Well used.", None),
    ],
)
def test_home_team_and_workload_advise_the_same(
    state: str, runs: bool, sentence: str, button: str | None, portal: Portal, signed_in: SignIn
) -> None:
    for hour in PodHour.objects.filter(workload__name="train"):
        for name in ("busy", "idle", "underused", "not_running", "unmeasured"):
            setattr(hour, name, 0)
        setattr(hour, state, hour.allocated)
        hour.save()
    if not runs:
        ended = PodHour.objects.filter(workload__name="train").latest("hour").hour
        Pod.objects.filter(workload__name="train").update(finished_at=ended, ended_at=ended)
    client = signed_in(portal.ada)
    page = words(text_of(client, TRAIN))
    assert sentence in page
    assert ("Pods running 0" in page) is not runs
    for address in (f"/?{HOURLY}", f"/capacity/teams/vision/?{HOURLY}"):
        rows = re.findall(r"<li><b.*?</li>", text_of(client, address), re.S)
        own = [row for row in rows if "Job/train" in row]
        assert [f">{button}</a>" in one for one in own] == [True] * len(own)
        assert bool(own) == (button is not None)
    table = tables_of(text_of(client, f"/capacity/teams/vision/?{HOURLY}&tab=cost"))["workloads"]
    fixes = [row[-1].text for row in table.rows[1:] if row[0].text == "train"]
    assert set(fixes) <= {"–", "", button}


def test_a_range_in_which_it_held_nothing_has_no_verdict(admin: Client) -> None:
    page = text_of(admin, "/workloads/west/vision/Job/train/?first=2025-01-01&last=2025-01-02")
    assert "workload-verdict" not in page
    assert "This workload held no GPU in this window." in page


def test_pods_are_drawn_over_time_and_listed(admin: Client) -> None:
    page = text_of(admin, f"{TRAIN}&tab=pods")
    assert 'id="pod-timeline-heading"' in page
    assert {row[0].text for row in tables_of(page)["pods"].rows[1:]} >= {"train-0", "train-1"}
    drawn = records_of(admin, f"{TRAIN}&tab=pods&format=csv&table=pod-timeline")
    assert {row["state"] for row in drawn} >= {"pending", "running"}


def test_links_to_the_pods_from_before_there_were_tabs_still_lead_there(admin: Client) -> None:
    assert records_of(admin, f"{TRAIN}&format=csv&table=pods")


def test_without_prices_its_cost_says_so(admin: Client) -> None:
    assert "No hour of this range has a price" in text_of(admin, f"{TRAIN}&tab=cost")


def test_its_pending_history_leads_to_each_item(portal: Portal, admin: Client) -> None:
    Episode.objects.all().delete()
    make_waiting(portal, look_now(portal))
    page = text_of(admin, f"{TRAIN}&tab=pending")
    rows = tables_of(page)["episodes"].rows[1:]
    assert [row[0].text for row in rows] == ["Pod train-2", "Pod train-2"]
    assert "/pending/west/uid-train-2/" in page


def test_kubectl_lines_can_be_copied(admin: Client) -> None:
    page = unescape(text_of(admin, TRAIN))
    assert "kubectl describe job train --namespace vision" in page
    assert 'data-copy="workload-command-1"' in page


@pytest.mark.parametrize("tab", ["overview", "pods", "cost", "pending"])
def test_tabs_of_hidden_workloads_are_not_found(
    tab: str, portal: Portal, signed_in: SignIn
) -> None:
    assert signed_in(portal.dan).get(f"{TRAIN}&tab={tab}").status_code == 404
