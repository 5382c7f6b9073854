"""Where the form of a request is led to, and how a quota key stands in its address."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from apps.pending.domain.diagnosis import Action
from apps.quotas.domain.keys import QuotaRef
from apps.web.quota_requests.request_input import ask_href
from apps.web.quotas.keys import ref_in, ref_text
from tests.web.test_pending_suggestions import helped

QUOTA: dict[str, Any] = {
    "quota": "gpus",
    "key": "requests.nvidia.com/gpu",
    "from": 2.0,
    "to": 3.0,
}
CELL: dict[str, Any] = {
    "cluster_queue": "lab",
    "flavor": "a10",
    "resource": "nvidia.com/gpu",
    "from": 4.0,
    "to": 6.0,
}


@pytest.mark.parametrize(
    ("action", "change", "place", "after"),
    [
        pytest.param(
            *(Action.RAISE_QUOTA, QUOTA),
            QuotaRef("ResourceQuota", "vision", "gpus", "requests.nvidia.com/gpu", "west"),
            "3",
            id="a ResourceQuota",
        ),
        pytest.param(
            *(Action.RAISE_QUEUE_QUOTA, CELL),
            QuotaRef("ClusterQueue", "", "lab", "a10/nvidia.com/gpu", "west"),
            "6",
            id="a ClusterQueue",
        ),
    ],
)
def test_a_suggestion_to_raise_a_quota_leads_to_the_form(
    action: str, change: dict[str, Any], place: QuotaRef, after: str
) -> None:
    asked = urlsplit(helped(action, change).ask)
    assert asked.path == "/quotas/requests/new/"
    given = parse_qs(asked.query)
    assert (ref_in(given["key"][0]), given["after"]) == (place, [after])


def test_other_suggestions_and_those_of_another_version_lead_nowhere() -> None:
    assert helped(Action.UNCORDON, {"nodes": ["a"]}).ask == ""
    assert helped(Action.RAISE_QUOTA, {"quota": "gpus"}).ask == ""
    assert helped(Action.RAISE_QUEUE_QUOTA, {}).ask == ""


@pytest.mark.parametrize(
    "place",
    [
        QuotaRef("ResourceQuota", "team", "gpu", "requests.nvidia.com/gpu", "a/b"),
        QuotaRef("Queue", "", "bronze", "capability/nvidia.com/gpu", "west"),
        QuotaRef("Queue", "", "100%", "deserved/a b&c=d", "west"),
    ],
)
def test_a_key_comes_back_from_its_address_as_it_went_in(place: QuotaRef) -> None:
    assert ref_in(ref_text(place)) == place
    (text,) = parse_qs(urlsplit(ask_href(place)).query)["key"]
    assert ref_in(text) == place


@pytest.mark.parametrize(
    "text", ["", "west", "west/Queue/-/bronze", "west/Queue/-//x", "a/b/c/d/\0"]
)
def test_what_names_no_key_is_none(text: str) -> None:
    assert ref_in(text) is None
