"""The groups of pages in the navigation, and the addresses that pages had before."""

from collections.abc import Iterable

from django.conf import settings
from django.http import HttpRequest, HttpResponsePermanentRedirect
from django.views.decorators.http import require_safe
from msgspec import Struct

from apps.web.components.page_query import Query, href


class NavPage(Struct, frozen=True):
    """One page: `name` is that of its address, `shown_in` the template folders it stands for.

    `key` follows `g` on the keyboard; `admin` pages are for administrators, those of `finance` for
    these and finance, and those `of_persons` are there where the portal keeps who is behind pods.
    """

    label: str
    name: str
    key: str
    shown_in: tuple[str, ...]
    admin: bool = False
    finance: bool = False
    of_persons: bool = False


_POLICIES = ("policies", "policy_simulation")

GROUPS: tuple[tuple[str, tuple[NavPage, ...]], ...] = (
    ("Home", (NavPage("Home", "home", "h", ("home",)),)),
    (
        "My workloads",
        (NavPage("My workloads", "my-workloads", "4", ("my_workloads",), of_persons=True),),
    ),
    ("Pending", (NavPage("Pending", "pending", "p", ("pending", "pending_detail")),)),
    ("Preflight", (NavPage("Preflight", "preflight", "j", ("preflight",)),)),
    ("Workloads", (NavPage("Workloads", "workloads", "w", ("workloads", "workload", "pod")),)),
    (
        "Quotas",
        (
            NavPage("Limits", "quotas", "q", ("quotas", "quota")),
            NavPage("Requests", "requests", "r", ("quota_requests", "quota_request")),
            NavPage("Proposals", "proposals", "b", ("proposals", "proposal", "proposal_new")),
            NavPage("Approvals", "approvals", "a", ("approvals",), admin=True),
        ),
    ),
    (
        "Cost",
        (
            NavPage("Overview", "costs", "c", ("costs",)),
            NavPage("Waste", "waste", "x", ("waste",)),
            NavPage(
                "Recommendations", "recommendations", "o", ("recommendations", "recommendation")
            ),
            NavPage("Prices", "prices", "i", ("prices",)),
            NavPage("Budgets", "budgets", "y", ("budgets",)),
            NavPage("Exports", "exports", "e", ("exports",)),
            NavPage("Bill", "bill", "n", ("bill",), finance=True),
            NavPage("Report", "report", "s", ("month_report",)),
        ),
    ),
    (
        "Capacity",
        (
            NavPage("Tiers", "tiers", "t", ("catalog", "tier")),
            NavPage("Teams", "teams", "m", ("teams", "team", "statement")),
            NavPage("Fairness", "fairness", "f", ("fairness", "tier_fairness", "what_if")),
            NavPage("GPUs", "gpus", "g", ("gpus", "gpu")),
            NavPage("Topology", "topology", "z", ("topology",)),
            NavPage("Plan", "plan", "v", ("plan", "tier_plan", "tier_case", *_POLICIES)),
            NavPage("Goodput", "goodput", "3", ("goodput",)),
            NavPage("Serving", "serving", "5", ("serving",)),
            NavPage("Reliability", "reliability", "1", ("reliability",), admin=True),
            NavPage("Layouts", "layouts", "2", ("layouts",)),
            NavPage("Backtest", "backtest", "k", ("backtest",)),
        ),
    ),
    (
        "Admin",
        (
            NavPage("Data quality", "data-quality", "d", ("data_quality",)),
            NavPage("Users", "users", "u", ("users", "user"), admin=True),
            NavPage("Audit", "audit", "l", ("audit",), admin=True),
        ),
    ),
)


class NavLink(Struct, frozen=True):
    """A link of the navigation; `current` is `page` on the page itself, `true` below it."""

    label: str
    href: str
    name: str
    key: str
    current: str


class NavGroup(Struct, frozen=True):
    """A group that leads to its first page; `pages` is empty where that is the only one."""

    first: NavLink
    label: str
    current: str
    pages: tuple[NavLink, ...]


def groups_for(
    query: Query, shown: str, *, is_admin: bool, is_finance: bool = False
) -> list[NavGroup]:
    """Return the groups of a reader; `shown` is the template folder of the page that is open."""
    # The pages of a request are in folders below that of the request.
    folder = shown.partition("/")[0]
    return [
        _group(label, links)
        for label, pages in GROUPS
        if (
            links := tuple(
                _links(_for_reader(pages, is_admin=is_admin, is_finance=is_finance), query, folder)
            )
        )
    ]


def _for_reader(pages: Iterable[NavPage], *, is_admin: bool, is_finance: bool) -> Iterable[NavPage]:
    return (
        page
        for page in pages
        if (settings.PEOPLE is not None or not page.of_persons)
        and (is_admin or not (page.admin or (page.finance and not is_finance)))
    )


def _links(pages: Iterable[NavPage], query: Query, folder: str) -> Iterable[NavLink]:
    for page in pages:
        current = "" if folder not in page.shown_in else "true"
        # The first folder is the page's own; the others are of pages below it.
        current = "page" if folder == page.shown_in[0] else current
        yield NavLink(page.label, href(page.name, query) or "", page.name, page.key, current)


def _group(label: str, links: tuple[NavLink, ...]) -> NavGroup:
    open_one = next((link for link in links if link.current), None)
    # A menu of one page would open to say what the group says already.
    if len(links) == 1:
        return NavGroup(links[0], links[0].label, links[0].current, ())
    return NavGroup(links[0], label, "true" if open_one else "", links)


_MOVED = {
    "tiers": "capacity/tiers",
    "teams": "capacity/teams",
    "fairness": "capacity/fairness",
    "devices": "capacity/gpus",
    "requests": "quotas/requests",
    "review": "quotas/approvals",
    "waste": "costs/waste",
    "exports": "costs/exports",
    "recommendations": "costs/recommendations",
    "health/data": "admin/data-quality",
    "people": "admin/users",
    "audit": "admin/audit",
    "notices/sent": "alerts/deliveries",
    "notices": "alerts",
}
MOVED = rf"^(?P<old>{'|'.join(_MOVED)})/"
"""Matches the addresses that pages had before; mails and bookmarks still hold them."""


@require_safe
def moved(request: HttpRequest, old: str) -> HttpResponsePermanentRedirect:
    """Lead from an address of before to where its page is now, with its query."""
    # The path as it was sent: a name may hold an escaped `?`, `#` or `%`.
    path = request.get_full_path()
    start = path.index(f"/{old}/")
    return HttpResponsePermanentRedirect(
        f"{path[:start]}/{_MOVED[old]}/{path[start + len(old) + 2 :]}"
    )
