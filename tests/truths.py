"""Holds what the portal says of a whole trace against the trace's published sums.

`python -m tests.truths [DAYS]` serves `helios`, loads its catalog, collects its days over HTTP
into the database of DATABASE_URL (which it migrates first), and compares allocated and pending
GPU-hours and quotas of every team, and what the API says of fairness. Nobody watches the cluster:
demand is what the series show. It ends with status 1 when a figure is off.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

TOLERANCE = 0.0005
"""0.05 %, as promised for every figure."""

FAIRNESS_TOLERANCE = 0.002
"""0.2 %: half hours average what the trace has by the minute."""

PUBLISHED_FAIRNESS = {
    "jain_index": 0.995274,
    "jain_allocation_ratio": 0.793167,
    "denied_gpu_hours": 32_096.067,
    "borrowable_gpu_hours": 32_034.450,
}
"""Of all 24 days; see docs/definitions.md#fairness."""

Figures = Mapping[str, Mapping[str, float]]
"""Measure → team, in lower case as its namespace is → amount."""


def begin() -> None:
    """Make Django ready, and the tables of the database of DATABASE_URL."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def trace_figures(first_minute: int, minutes: int) -> Figures:
    """Return allocated and pending GPU-hours, and the mean quota, of a part of the trace."""
    from tests.simulator.truths import trace_columns

    columns = trace_columns()
    part = slice(first_minute, first_minute + minutes)

    def mean(column: str, per: float) -> dict[str, float]:
        return {t.lower(): sum(values[part]) / per for t, values in columns[column].items()}

    return {
        "allocated GPU-hours": mean("running_gpu_num", 60),
        "pending GPU-hours": mean("pending_gpu_num", 60),
        "quota GPUs": mean("total_gpu_num", minutes),
    }


def portal_figures(start: datetime, end: datetime) -> Figures:
    """Return the same of what was collected: facts, the pod ledger, and the quota series."""
    from apps.clusters.domain.window import Window
    from apps.clusters.gateways import metrics_source
    from apps.clusters.models import Cluster, Pod
    from apps.usage.models import TeamHour

    allocated: dict[str, float] = defaultdict(float)
    hours = TeamHour.objects.filter(hour__gte=start, hour__lt=end)
    for team, amount in hours.values_list("team__name", "allocated"):
        allocated[team.lower()] += amount / 1e9
    pending: dict[str, float] = defaultdict(float)
    for pod in Pod.objects.select_related("workload__namespace").iterator():
        until = min(t for t in (pod.bound_at, pod.ended_at, end) if t is not None)
        waited = (until - max(pod.created_at, start)).total_seconds()
        pending[pod.workload.namespace.name] += max(0.0, waited) / 3600 * pod.units
    quota: dict[str, list[float]] = defaultdict(list)
    window = Window(max(start, end - timedelta(days=1)), end)
    for slot in metrics_source(Cluster.objects.get()).quotas(window).rows:
        quota[slot.namespace].append(slot.hard or 0.0)
    return {
        "allocated GPU-hours": allocated,
        "pending GPU-hours": pending,
        "quota GPUs": {team: sum(values) / len(values) for team, values in quota.items()},
    }


def trace_fairness(first_minute: int, minutes: int) -> dict[str, float]:
    """Return the fairness of a part of the trace, minute by minute."""
    from apps.accounts.domain.structs import replace
    from apps.fairness.domain.measures import integrate, measure
    from tests.fairness.tiers import helios

    _, slots, _ = helios()
    part = slice(first_minute, first_minute + minutes)
    names = ("hours", "capacity", "entitlement", "weight", "held", "pending")
    sums = integrate(measure(replace(slots, **{n: getattr(slots, n)[part] for n in names})))
    return {
        "jain_index": sums.jain_index or 0.0,
        "jain_allocation_ratio": sums.jain_allocation_ratio or 0.0,
        "denied_gpu_hours": float(sums.denied.sum()),
        "borrowable_gpu_hours": sums.borrowable,
    }


def derive(now: datetime) -> None:
    """Derive what follows from collected hours, as the tasks do: pending history, fairness."""
    from apps.clusters.models import Cluster
    from apps.fairness import services as fairness
    from apps.pending import services as pending

    pending.take_in_pods([Cluster.objects.get().pk], now=now)
    fairness.compute_hours(now=now, at_most=24 * 31)
    fairness.roll_days(now=now)


def portal_fairness(start: datetime, end: datetime) -> dict[str, float]:
    """Return what the API says of the fairness of a window, and how many hours it is of."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client(SERVER_NAME="localhost")
    client.force_login(get_user_model().objects.get_or_create(username="truths")[0])
    window = {"start": start.isoformat(), "end": end.isoformat()}
    tiers = client.get("/api/v1/fairness", window).json()["results"]
    (tier,) = (tier for tier in tiers if tier["capacity_gpu_hours"])
    names = ("jain_index", "jain_allocation_ratio", "borrowable_gpu_hours", "hours_known")
    return {
        **{name: tier[name] for name in (*names, "hours_estimated", "hours_unknown")},
        "denied_gpu_hours": sum(team["denied_gpu_hours"] for team in tier["teams"]),
    }


def fairness_differences(
    expected: Mapping[str, float], found: Mapping[str, float], *, hours: int
) -> Iterator[str]:
    """Yield a line for every figure of fairness that is off; all hours are to be estimated."""
    for name, wanted in expected.items():
        if abs(found[name] - wanted) > FAIRNESS_TOLERANCE * wanted:
            yield f"{name}: {found[name]:.6f}, the trace has {wanted:.6f}"
    told = [found[f"hours_{name}"] for name in ("known", "estimated", "unknown")]
    if told != [0, hours, 0]:
        yield f"hours known, estimated and unknown: {told}, all {hours} are to be estimated"


def differences(expected: Figures, found: Figures) -> Iterator[str]:
    """Yield a line for every figure that is off, teams and totals."""
    for measure, teams in expected.items():
        have = found[measure]
        pairs = [(team, amount, have.get(team, 0.0)) for team, amount in sorted(teams.items())]
        pairs.append(("all teams", sum(teams.values()), sum(have.values())))
        for name, wanted, got in pairs:
            if abs(got - wanted) > TOLERANCE * wanted + 1e-6:
                yield f"{measure} of {name}: {got:.6f}, the trace has {wanted:.6f}"


def collect_days(
    url: str,
    catalog: str,
    end: datetime,
    days: int,
    watch: Callable[[], None] | None = None,
) -> Iterator[str]:
    """Load the catalog, `watch` if told, and collect the days before `end`; yield a line each."""
    from apps.clusters.domain.window import Window
    from apps.operations.services import load_catalog
    from apps.usage.services import collect_window

    load_catalog(catalog, "catalog.yaml", now=end, dry_run=False)
    if watch is not None:
        watch()
    for back in range(days):
        day = Window(end - timedelta(days=back + 1), end - timedelta(days=back))
        outcomes = collect_window("lab", day, now=end)
        states = sorted({outcome.state.value for outcome in outcomes})
        yield f"{day.start.date()}: {len(outcomes)} hours {', '.join(states)}"


def main(days: int) -> int:
    begin()
    from simulator.catalog import catalog_yaml
    from simulator.scenarios.registry import load
    from tests.served_lab import served_lab
    from tests.simulator import truths as lab_truths

    scenario = load("helios", now=lab_truths.NOW)
    first = lab_truths.origin_of(scenario)
    end = datetime.fromtimestamp(first + lab_truths.MINUTES * 60, UTC)
    minutes = days * 24 * 60
    expected = trace_figures(lab_truths.MINUTES - minutes, minutes)
    with served_lab(scenario, lab_truths.NOW) as url:
        for line in collect_days(url, catalog_yaml(scenario, url=url), end, days):
            say(line)
        start = end - timedelta(days=days)
        found = portal_figures(start, end)
        derive(end + timedelta(hours=1))
        fairness = portal_fairness(start, end)
    for measure, teams in found.items():
        say(f"{measure}: {sum(teams.values()):,.3f} over {len(teams)} teams")
    for name, value in fairness.items():
        say(f"{name}: {value:,.6f}")
    truth = PUBLISHED_FAIRNESS
    if minutes != lab_truths.MINUTES:
        truth = trace_fairness(lab_truths.MINUTES - minutes, minutes)
    off = list(differences(expected, found))
    off += fairness_differences(truth, fairness, hours=days * 24)
    for line in off:
        say(line)
    say("every figure is as in the trace" if not off else f"{len(off)} figures are off")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 24))
