"""The pages to test, and how a test reads one and its files."""

import csv
import html
import io
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

from django.test import Client

from tests.web.appearances import is_exhaustive

# Page → the most queries that it may need, signing in and report settings included.
PAGES = {
    "/": 17,
    "/capacity/tiers/gold/": 19,
    "/capacity/teams/": 12,
    "/capacity/teams/vision/": 20,
    "/capacity/fairness/": 15,
    "/capacity/fairness/gold/": 15,
    "/workloads/": 14,
    "/workloads/west/vision/Job/train/": 20,
    "/pods/west/uid-train-0/": 10,
    "/admin/data-quality/": 15,
    "/explain/": 10,
    "/explain/pending_gpu_hours/": 16,
    "/costs/waste/": 18,
    "/capacity/goodput/": 22,
    "/capacity/serving/": 17,
}

# The same of pages that show no window of time, or mostly what is now.
STANDING = {
    "/capacity/tiers/": 17,
    "/pending/": 12,
    "/pending/west/uid-train-2/": 9,
    "/preflight/": 11,
    "/quotas/": 11,
    "/costs/budgets/": 14,
    "/quotas/west/ResourceQuota/vision/gpus/requests.nvidia.com/gpu/": 20,
    "/capacity/teams/vision/statement/": 16,
    "/capacity/fairness/gold/what-if/": 8,
    "/capacity/backtest/": 8,
    "/capacity/reliability/": 15,
    "/capacity/layouts/": 12,
    "/capacity/plan/": 10,
    "/capacity/plan/gold/": 11,
    "/capacity/plan/gold/case/": 11,
    "/capacity/policies/": 20,
    "/costs/": 18,
    "/costs/recommendations/": 12,
    "/costs/prices/": 7,
    "/costs/exports/": 7,
    "/costs/bill/": 6,
    "/costs/report/2025-10/": 54,
    "/capacity/gpus/": 13,
    "/capacity/topology/": 20,
    "/capacity/gpus/west/GPU-00000000-0000-0000-0000-000000000001/": 14,
    "/search/": 3,
    "/first-run/": 10,
    "/views/": 3,
    "/tokens/": 4,
    "/password/": 3,
    "/admin/users/": 5,
    "/admin/audit/": 6,
    "/quotas/requests/": 4,
    "/quotas/requests/new/": 11,
    "/quotas/proposals/": 6,
    "/quotas/proposals/new/": 5,
    "/quotas/approvals/": 7,
    "/alerts/": 6,
    "/alerts/channels/": 6,
    "/alerts/deliveries/": 6,
}


def text_of(client: Client, address: str) -> str:
    """Return a page that must be there."""
    response = client.get(address)
    assert response.status_code == 200, address
    return response.content.decode()


def file_of(response: Any) -> str:
    """Return the text of a download, streamed or not."""
    text: str = response.getvalue().decode()
    return text


def records_of(client: Client, address: str) -> list[dict[str, str]]:
    """Return the lines of a downloaded table by their head."""
    response = client.get(address)
    assert response.status_code == 200, address
    return list(csv.DictReader(io.StringIO(file_of(response), newline="")))


def table_links(page: str) -> list[str]:
    """Return the addresses of a page's downloads."""
    return [
        html.unescape(link) for link in re.findall(r'class="csv-link[^"]*" href="([^"]+)"', page)
    ]


_EXPLAINED = re.compile(
    r'<a class="(?:explained|key-value)" href="(/explain/[a-z][^"?]*/\?[^"]*)"[^>]*>([^<]+)<'
)
_NUMBER = re.compile(r"([-−]?[\d,]+(?:\.(\d+))?)(?: %| [A-Z]{3}(?: a month)?)?")


def _to_open(page: str) -> Iterator[tuple[str, str]]:
    """Yield the links that explain, with their texts: the first, one of the middle, the last."""
    alike: dict[tuple[str, ...], dict[tuple[str, str], None]] = {}
    for link, text in _EXPLAINED.findall(page):
        path, _, query = html.unescape(link).partition("?")
        kind = (path, str(_NUMBER.fullmatch(text) is None), *sorted(parse_qs(query)))
        alike.setdefault(kind, {})[link, text] = None
    for links in map(list, alike.values()):
        middle = len(links) // 2
        yield from links if is_exhaustive() else dict.fromkeys([links[0], links[middle], links[-1]])


def check_explained(client: Client, address: str) -> set[str]:
    """Open *Explain* of the figures of a page and hold them against what the page shows.

    Of each figure in each kind of scope three are opened, all in check-full. Returns the figures.
    """
    found = set()
    for link, text in _to_open(text_of(client, address)):
        response: Any = client.get(html.unescape(link))
        assert response.status_code == 200, (address, link)
        explanation = response.context["explanation"]
        value = explanation.one.value
        found.add(explanation.one.figure)
        number = _NUMBER.fullmatch(text)
        assert explanation.holds is (None if value is None else True), (link, text)
        if number is None or value is None:
            assert number is None or value is not None, (link, text)
            continue
        shown = float(number[1].replace(",", "").replace("−", "-"))
        step = 10.0 ** -len(number[2] or "")
        near = [abs(shown - float(value) * scale) for scale in (1, 100)]
        assert min(near) <= 1.01 * step, (link, text, value)
    return found
