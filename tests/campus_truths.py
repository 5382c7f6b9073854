"""Holds what the portal recommends for `campus` against what it must show.

`python -m tests.campus_truths [DAYS]` serves `campus`, loads its catalog, watches it once and
collects its days over HTTP into the database of DATABASE_URL (which it migrates first), sums and
prices them, and asks the API what it recommends. It ends with status 1 when under half of the
waste is covered, by fewer than six kinds, or when something else does not hold.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

from msgspec import Struct, field

from apps.usage.domain.usage_query import UsageQuery
from tests.truths import begin

LEAST_COVERED = 0.5
LEAST_KINDS = 6
WELL_USED = 0.8
_DAYS = 30
_MOST_ROUNDS = 1000


class CampusSummary(Struct):
    """The API's summary, the open rows, and what is wrong with them, in sentences."""

    summary: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return float(self.summary["waste_covered_ratio"] or 0.0)

    @property
    def kinds(self) -> list[str]:
        return sorted({row["kind"] for row in self.rows})


def campus_summary(days: int) -> CampusSummary:
    """Run the whole chain over `days` days of campus and return what the API says then."""
    from simulator.scenarios.registry import load
    from tests.served_lab import served_lab

    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    scenario = load("campus", now=int(now.timestamp()))
    with served_lab(scenario, now.timestamp()) as url:
        _collect(scenario, url, now, days)
    found = _asked()
    found.wrong = [*_well_used(found), *_too_much()]
    return found


def _collect(scenario: Any, url: str, now: datetime, days: int) -> None:
    from apps.costs.services import price_hours
    from apps.costs.services.recommendation_run import store_recommendations
    from apps.quotas.services import roll_hours
    from apps.usage.services import roll_days
    from simulator.catalog import catalog_yaml
    from tests.truths import collect_days

    for line in collect_days(
        url, catalog_yaml(scenario, url=url), now.replace(hour=0), days, watch=_watch
    ):
        sys.stderr.write(f"{line}\n")
    roll_days(now=now)
    for step in (price_hours, roll_hours):
        for _ in range(_MOST_ROUNDS):
            if not step(now=now):
                break
    store_recommendations(now=now)


def _watch() -> None:
    from django.core.management import call_command

    call_command("watch", "--once")


def _asked() -> CampusSummary:
    """Ask the API as an administrator does."""
    from rest_framework.test import APIClient

    from apps.accounts.domain.identity import Role
    from apps.accounts.models import User

    client = APIClient(SERVER_NAME="127.0.0.1")
    client.force_authenticate(User.objects.create_user("truths", role=Role.ADMIN.value))
    page = client.get("/api/v1/recommendations", {"page_size": 500}).json()
    found = CampusSummary(page["summary"], list(page["results"]))
    while page["next"]:
        page = client.get(page["next"]).json()
        found.rows += page["results"]
    return found


def _well_used(found: CampusSummary) -> Iterator[str]:
    """Yield a line for each workload that is well used and has a recommendation all the same.

    Well used over the days that the API names as those of the evidence.
    """
    from apps.accounts.permissions import EVERYTHING
    from apps.clusters.domain.window import Window, day_window
    from apps.clusters.selectors import report
    from apps.usage.domain.usage_query import Grouping
    from apps.usage.selectors import usage_rows

    zone = report().zone
    first, last = (
        day_window(date.fromisoformat(str(found.summary[name])), zone)
        for name in ("first_day", "last_day")
    )
    used: dict[tuple[str, str, str], float | None] = {}
    for row in usage_rows(
        UsageQuery(
            Window(first.start, last.end),
            group_by=(Grouping.NAMESPACE, Grouping.WORKLOAD, Grouping.TIER),
        ),
        visibility=EVERYTHING,
    ):
        key = (row.groups["namespace"], row.groups["workload"], row.groups["tier"])
        used[key] = row.amounts.utilization_ratio
    for one in found.rows:
        key = (one["namespace"] or "", one["workload"] or "", one["tier"] or "")
        if (used.get(key) or 0.0) >= WELL_USED:
            yield f"{one['kind']} for {key}, which is {used[key]:.0%} busy"


def _too_much() -> Iterator[str]:
    """Yield a line for each team, tier and cause of which more is covered than there is."""
    from apps.costs.models import Recommendation, WasteSum

    waste: dict[tuple[object, ...], int] = defaultdict(int)
    for row in WasteSum.objects.all():
        waste[row.tier_id, row.team_id, row.cause] += row.cost
    cells: dict[tuple[object, ...], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in Recommendation.objects.filter(state="open"):
        for name, cause, units in one.covers:
            own = cells[one.tier_id, one.team_id, cause]
            own[name] = max(own[name], units)
    for key, own in cells.items():
        if sum(own.values()) > waste[key]:
            yield f"{key}: covered {sum(own.values())} of {waste[key]}"


def main(days: int) -> int:
    begin()
    found = campus_summary(days)
    if found.ratio < LEAST_COVERED:
        found.wrong.append(f"only {found.ratio:.1%} of the waste is covered")
    if len(found.kinds) < LEAST_KINDS:
        found.wrong.append(f"only {len(found.kinds)} kinds: {', '.join(found.kinds)}")
    sys.stderr.write("".join(f"{line}\n" for line in found.wrong))
    counts = {kind: sum(row["kind"] == kind for row in found.rows) for kind in found.kinds}
    said = {**found.summary, "kinds": counts, "wrong": found.wrong}
    sys.stdout.write(f"{json.dumps(said)}\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else _DAYS))
