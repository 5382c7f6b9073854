"""Every figure leads to what it is made of, and that adds up."""

import html
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.http import QueryDict
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.clusters.models import Cluster
from apps.usage.domain.amounts import Amounts, nano
from apps.usage.domain.usage_query import Filters
from apps.web.components import tables
from apps.web.components.page_query import explain_href, window_from
from apps.web.explain.explanation import lasting_href
from apps.web.explain.figures import (
    ALLOCATED_EQUATION,
    CAPACITY_EQUATION,
    FIGURES,
    FigureScope,
    figure_named,
)
from apps.web.query_session import QuerySession
from tests.factories import Portal
from tests.thinned import thinned
from tests.web.conftest import DAILY, HOURLY
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of

SignIn = Callable[[User], Client]
# The worked example of docs/definitions.md, one hour.
EXAMPLE = Amounts(
    allocated=nano(36),
    not_running=nano(0.5),
    unmeasured=nano(3.5),
    idle=nano(3.8),
    underused=nano(11.0),
    busy=nano(17.2),
    capacity=nano(40),
    unhealthy=nano(1),
    unallocated=nano(2),
    planned_outage=nano(1),
    stranded=nano(0),
    unattributed=nano(0),
)
SCOPES = {
    "tier": "tier=gold",
    "team": "team=vision&tier=gold",
    "namespace": "namespace=vision",
    "workload": "cluster=west&namespace=vision&workload=Job/train",
    "pod": "cluster=west&pod=uid-train-0",
}


def computed(formula: tuple[str, ...] | list[str], amounts: Amounts) -> float:
    """Work a formula out as it is written."""
    words = {"÷": "/", "−": "-"}
    parts = [
        str(FIGURES[part].value(amounts)) if part in FIGURES else words.get(part, part)
        for part in formula
    ]
    return float(eval(" ".join(parts)))  # noqa: S307 - our own constants


@pytest.mark.parametrize("key", [key for key, figure in FIGURES.items() if figure.formula])
def test_a_formula_gives_the_figure(key: str) -> None:
    figure = FIGURES[key]
    assert computed(list(figure.formula), EXAMPLE) == pytest.approx(figure.value(EXAMPLE))


@pytest.mark.parametrize("equation", [CAPACITY_EQUATION, ALLOCATED_EQUATION])
def test_the_equations_of_the_ledger_are_those_of_its_definition(equation: list[str]) -> None:
    whole, _, *parts = equation
    assert FIGURES[whole].value(EXAMPLE) == computed(parts, EXAMPLE)


def test_every_column_with_a_figure_can_be_explained() -> None:
    assert set(FIGURES) >= tables.EXPLAINED
    assert figure_named("busy") is figure_named("busy_gpu_hours") is not None
    assert figure_named("nonsense") is None


def test_the_address_of_a_figure_names_figure_scope_and_window() -> None:
    query = (("window", "7d"), ("cluster", "east"), ("cluster", "west"))
    assert explain_href("busy", query, tier="a b") == (
        "/explain/?figure=busy&tier=a+b&window=7d&cluster=east&cluster=west"
    )
    assert explain_href("busy", query, cluster="west", tier="") == (
        "/explain/?figure=busy&cluster=west&window=7d"
    )
    with pytest.raises(ValueError, match="colour"):
        explain_href("busy", query, colour="red")


@pytest.mark.parametrize(("figure", "scope"), thinned(FIGURES, SCOPES.values()))
def test_every_figure_of_every_scope_has_a_page(figure: str, scope: str, admin: Client) -> None:
    page = text_of(admin, f"/explain/?figure={figure}&{scope}&{HOURLY}")
    assert html.escape(FIGURES[figure].meaning) in page
    assert "please report it" not in page


@pytest.mark.parametrize(
    ("figure", "query", "scope"),
    thinned(
        ["busy_gpu_hours", "not_busy_gpu_hours", "utilization_ratio"],
        [HOURLY, DAILY],
        [SCOPES["tier"], SCOPES["team"], SCOPES["workload"]],
        together=2,
    ),
)
def test_pods_add_up_to_the_number_to_the_last_digit(
    figure: str, query: str, scope: str, admin: Client
) -> None:
    address = f"/explain/?figure={figure}&{scope}&{query}&format=csv"
    *parts, whole = records_of(admin, f"{address}&table=sum")
    pods = records_of(admin, f"{address}&table=pods")
    pods = [record for record in pods if record["pod"] != "Total"]
    assert len(parts) == 1
    for key in whole:
        if key != "part":
            assert sum(Decimal(record[key]) for record in pods) == Decimal(whole[key]), key


def test_the_number_is_the_one_that_led_here(admin: Client) -> None:
    """From each table of a tier, the explanation shows the same value in full."""
    page = text_of(admin, f"/capacity/tiers/gold/?{HOURLY}&tab=teams")
    cells = re.findall(
        r'<td[^>]*title="([^" ]+) GPU-h"><a class="explained" href="([^"]+)">([^<]+)</a>', page
    )
    assert len(cells) > 10
    for exact, link, text in cells:
        explained = text_of(admin, html.unescape(link))
        value = re.findall(r'<p class="explain-value">([^<]+?)\s*(?:<|$)', explained)
        assert value == [text], link
        assert f"{Decimal(exact).normalize():,f}" in explained, link


def test_hours_add_up_to_what_a_pod_held(admin: Client) -> None:
    address = f"/explain/?figure=busy&{SCOPES['pod']}&{HOURLY}"
    *hours, total = records_of(admin, f"{address}&format=csv&table=hours")
    assert len(hours) > 40
    spent = sum((Decimal(hour["busy_gpu_hours"]) for hour in hours), Decimal(0))
    assert spent == Decimal(total["busy_gpu_hours"])
    assert f"{spent.normalize():,f} GPU-h" in text_of(admin, address)


def test_nodes_add_up_to_the_capacity_for_who_sees_them(
    portal: Portal, signed_in: SignIn, admin: Client
) -> None:
    address = f"/explain/?figure=capacity&tier=gold&{HOURLY}"
    rows = records_of(admin, f"{address}&format=csv&table=nodes")
    nodes = [row for row in rows if row["cluster"] != "Total"]
    groups = records_of(admin, f"{address}&format=csv&table=groups")
    whole = [row for row in groups if row["cluster"] == "Total"] or groups
    assert sum(Decimal(n["capacity_gpu_hours"]) for n in nodes) == Decimal(
        whole[0]["capacity_gpu_hours"]
    )
    assert "nodes" not in tables_of(text_of(signed_in(portal.ada), address))


def test_of_other_teams_only_sums_are_told(portal: Portal, signed_in: SignIn) -> None:
    address = f"/explain/?figure=allocated&tier=gold&{HOURLY}&list=pods"
    page = text_of(signed_in(portal.dan), address)
    for hidden in ("train-0", "uid-train", "Job/train", "vision-prod"):
        assert hidden not in page
    assert "Pods of teams of which you see sums only" in page
    parts = records_of(signed_in(portal.dan), f"{address}&format=csv&table=sum")
    numbers = [Decimal(part["allocated_gpu_hours"]) for part in parts]
    assert sum(numbers[:-1]) == numbers[-1] > 0


@pytest.mark.parametrize("scope", ["namespace", "workload"])
def test_what_may_not_be_seen_looks_like_what_is_not_there(
    scope: str, portal: Portal, signed_in: SignIn
) -> None:
    address = f"/explain/?figure=busy&{SCOPES[scope]}&{HOURLY}"
    hidden = text_of(signed_in(portal.dan), address)
    absent = text_of(signed_in(portal.dan), address.replace("=vision", "=nowhere"))
    for page in (hidden, absent):
        assert "Nothing of that name held a GPU" in page
        assert tables_of(page) == {}
    assert without_tokens(hidden).replace("vision", "nowhere") == without_tokens(absent)
    assert "Nothing of that name" not in text_of(signed_in(portal.ada), address)


def without_tokens(page: str) -> str:
    """Return a page without its CSRF token, which differs each time."""
    return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", page)


def test_a_pod_of_another_team_is_not_found(portal: Portal, signed_in: SignIn) -> None:
    address = f"/explain/?figure=busy&{SCOPES['pod']}&{HOURLY}"
    assert signed_in(portal.dan).get(address).status_code == 404
    assert signed_in(portal.ada).get(address).status_code == 200
    absent = address.replace("uid-train-0", "uid-nowhere")
    assert signed_in(portal.ada).get(absent).status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        "figure=nonsense",
        "figure=busy&tier=nowhere",
        "figure=busy&team=nobody",
        "figure=busy&cluster=nowhere",
        "figure=busy&pod=uid-train-0",
        "figure=busy&team=%00",
    ],
)
def test_what_is_not_there_is_not_found(query: str, admin: Client) -> None:
    assert admin.get(f"/explain/?{query}").status_code == 404


def test_tiers_are_not_blended_into_one_ratio(admin: Client) -> None:
    page = text_of(admin, f"/explain/?figure=utilization_ratio&{HOURLY}")
    assert "Tiers are never blended into one ratio" in page
    assert len(tables_of(page)["groups"].rows) > 2


def test_a_team_has_no_capacity_and_the_page_says_so(admin: Client) -> None:
    page = text_of(admin, f"/explain/?figure=capacity&team=vision&{HOURLY}")
    assert "Only nodes have it" in page


def test_a_window_without_facts_has_no_number(admin: Client) -> None:
    page = text_of(admin, "/explain/?figure=busy&tier=gold&first=2025-09-01&last=2025-09-02")
    assert "No data in this window" in page


def test_the_queries_are_narrowed_to_what_the_figure_is_of(admin: Client) -> None:
    page = html.unescape(text_of(admin, f"/explain/?figure=busy&{SCOPES['workload']}&{HOURLY}"))
    assert 'sum_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_namespace="vision"' in page
    assert "kube_pod_status_scheduled_time" in page
    assert "train-0" in page[page.index("DCGM_FI_PROF") :]


@pytest.mark.parametrize("figure", ["busy_gpu_hours", "allocated_gpu_hours", "capacity"])
def test_a_cluster_known_by_its_job_log_is_explained_by_files(
    figure: str, portal: Portal, admin: Client
) -> None:
    Cluster.objects.filter(name="west").update(
        prometheus={}, slurm={"jobs": "/var/lib/hpc/*.psv", "time_zone": "UTC", "nodes": []}
    )
    page = html.unescape(text_of(admin, f"/explain/?figure={figure}&tier=gold&{HOURLY}"))
    assert "/var/lib/hpc/*.psv" in page
    # No query that nobody can put; another cluster that has a Prometheus keeps its own.
    block = page[page.index("/var/lib/hpc/*.psv") :]
    assert "DCGM_FI_PROF" not in block
    assert "kube_pod_status_scheduled_time" not in block
    if figure == "capacity":
        assert "slurm.nodes of the catalog" in block
    else:
        assert "AllocTRES" in block
    if figure == "busy_gpu_hours":
        assert "never idle" in block


def test_days_chosen_by_hand_need_no_other_address(admin: Client) -> None:
    page = text_of(admin, f"/explain/?figure=busy&tier=gold&{HOURLY}")
    assert "Link to exactly this window" not in page


def test_a_window_that_moves_has_an_address_that_does_not(portal: Portal) -> None:
    zone = portal.zone
    now = datetime(2025, 10, 27, 12, tzinfo=UTC)
    choice = window_from(QueryDict("window=yesterday"), zone=zone, now=now)
    reading = QuerySession(choice, Filters(cluster=("west",)), EVERYTHING, now, (), (), ())
    assert lasting_href(FIGURES["busy_gpu_hours"], FigureScope({"tier": "gold"}), reading) == (
        "/explain/?figure=busy_gpu_hours&tier=gold&start=2025-10-25T22%3A00%3A00Z"
        "&end=2025-10-26T23%3A00%3A00Z&cluster=west"
    )


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("figure", ["utilization_ratio", "capacity"])
def test_an_explanation_needs_few_queries(
    figure: str,
    scope: str,
    admin: Client,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    with django_assert_max_num_queries(17):
        text_of(admin, f"/explain/?figure={figure}&{scope}&{HOURLY}")


def test_over_a_long_window_the_pods_are_listed_when_asked_for(admin: Client) -> None:
    address = "/explain/?figure=busy_gpu_hours&tier=gold&first=2025-10-01&last=2025-10-27"
    page = text_of(admin, address)
    assert "groups" in tables_of(page)
    assert not {"pods", "sum"} & set(tables_of(page))
    link = html.unescape(re.findall(r'href="([^"]+)">List the pods it sums', page)[0])
    listed = text_of(admin, link.partition("#")[0])
    assert {"pods", "sum"} <= set(tables_of(listed))
    assert "List the pods it sums" not in listed
    records = records_of(admin, f"{address}&format=csv&table=pods")
    assert "train-0" in {record["pod"] for record in records}
