"""The portal of the demo as of one moment: watched, collected and computed as in production.

Its pages are as full as those of a real cluster: limits of length are held against it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from apps.accounts.domain.identity import ActingParty
from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.domain.channels import ChannelKind
from apps.alerts.models import Alert, Channel
from apps.alerts.services import ChannelInput, MuteInput, add_channel, mute
from apps.clusters.domain.window import Window
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster, Device, Pod
from apps.clusters.services.watch.follow import snapshot
from apps.operations.domain.proposals import ProposalKind, ProposalTarget, ProposedValue
from apps.operations.management.demo_setup import Story, close_last_month, ensure_people
from apps.operations.models import CatalogProposal
from apps.operations.services import load_catalog, reject_proposal, submit_proposal
from apps.operations.services.deriving import derive_after_history
from apps.pending.models import Episode
from apps.planning.domain.policy_change import PolicyChange
from apps.planning.models import PolicySimulation
from apps.planning.selectors import limits_to_change
from apps.planning.services import LimitInput, simulate_policies, start_simulation
from apps.quota_requests.models import ChangeRequest
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from simulator.scenarios.base import Scenario
from tests.costs.bills import imported, plain
from tests.served_lab import scenario_of, served_lab

# A Sunday morning in Berlin: the last hours of October, which is closed, and the first of November.
NOW = datetime(2026, 11, 1, 6, 20, tzinfo=UTC)
HOURS = 16
LEAD, MEMBER, ADMIN, FINANCE = "ada", "ben", "admin", "finn"


def fill_campus_portal() -> None:
    """Load the demo's catalog, watch its cluster, collect HOURS and compute what follows.

    The quota requests of the demo are made, and October is closed.
    """
    with served_cluster() as url:
        load_catalog(catalog_yaml(_scenario(), url=url), "catalog.yaml", now=NOW, dry_run=False)
        ensure_people()
        _watch()
        end = NOW.replace(minute=0)
        collect_window("lab", Window(end - timedelta(hours=HOURS), end), now=NOW)
        derive_after_history(lambda: NOW)
        Story(lambda: NOW).tell()
        _propose()
        _simulate_policies()
        close_last_month(NOW)
        _make_channel()
        _import_bill()
    # Their accounts are as old as all else, whatever day it is.
    User.objects.update(date_joined=NOW)


PROPOSED: Sequence[tuple[ProposalTarget, ProposedValue, str]] = (
    (
        ProposalTarget(ProposalKind.BUDGET, "vision", "month money"),
        {"amount": "90000", "currency": "USD"},
        "A larger model is planned.",
    ),
    (
        ProposalTarget(ProposalKind.ENTITLEMENT, "speech", "whole-a100"),
        {"gpus": "20"},
        "Two training runs a week from November on.",
    ),
    (
        ProposalTarget(ProposalKind.NAMESPACES, "vision"),
        {"patterns": ["vision", "vision-*", "robotics-dev"]},
        "The simulator is ours since the reorganization.",
    ),
    (
        ProposalTarget(ProposalKind.BUDGET, "speech", "month gpu_hours"),
        {"amount": "30000"},
        "The budget of October ended on the 20th.",
    ),
)


BILLED = ("NVIDIA A100-SXM4-80GB", "Standard storage", "p5.48xlarge", "Outbound traffic")


def _propose() -> None:
    """Propose changes of the catalog of each kind; the first is rejected."""
    lead, admin = (User.objects.get(username=name) for name in (LEAD, ADMIN))
    asks, decides = ActingParty(LEAD, "campus"), ActingParty(ADMIN, "campus")
    made = [
        submit_proposal(lead, target, value, reason=reason, now=NOW, by=asks)
        for target, value, reason in PROPOSED
    ]
    reject_proposal(admin, made[0].pk, decision="After the audit.", now=NOW, by=decides)


def _make_channel() -> None:
    """Make a channel of the platform, with a silence of a day."""
    admin = User.objects.get(username=ADMIN)
    wanted = ChannelInput("platform", ChannelKind.EMAIL, "gpu@example.org", tuple(AlertKind))
    made = add_channel(admin, wanted, now=NOW)
    silence = MuteInput(until=NOW + timedelta(days=1), why="Maintenance.", kind=AlertKind.IDLE)
    mute(admin, made, silence, now=NOW)


def _import_bill() -> None:
    """Import a bill of October with many SKUs, some of which map by their name."""
    lines = [("2026-10-31", f"{name}, zone {n}", 40.0 + n) for name in BILLED for n in range(1, 7)]
    imported(plain(*lines))


def _simulate_policies() -> None:
    """Halve the first limit that can be changed, and end what is idle for an hour."""
    row = limits_to_change("lab", NOW, visibility=EVERYTHING)[0]
    author = User.objects.get(username=ADMIN)
    limit = LimitInput(row.ref, row.hard // 2)
    start_simulation(author, "lab", PolicyChange(idle_minutes=60.0), [limit], now=NOW)
    # The hour of the watch has to be over.
    simulate_policies(now=NOW + timedelta(hours=1))


def _watch() -> None:
    cluster = Cluster.objects.get(name="lab")
    source = cluster_source(cluster)
    assert source is not None
    try:
        snapshot(cluster, source, NOW)
    finally:
        source.close()


@contextmanager
def served_cluster() -> Iterator[str]:
    """Serve the cluster of the portal and yield its URL."""
    with served_lab(_scenario(), NOW.timestamp()) as url:
        yield url


def connect_cluster(url: str) -> None:
    """Let the portal find its cluster: a request's dry run asks it."""
    cluster = Cluster.objects.get(name="lab")
    cluster.kubernetes = {"api_server": url, "writer": {"api_server": url}}
    cluster.save()


def _scenario() -> Scenario:
    return scenario_of("campus", NOW.timestamp())


_PAGES = {
    "home": "/",
    "pending": "/pending/",
    "workloads": "/workloads/",
    "workload": "/workloads/lab/speech-apps/Deployment/whisper-live/",
    "quotas": "/quotas/",
    "quota": "/quotas/lab/ResourceQuota/speech-lab/gpus/requests.nvidia.com/gpu/",
    "queue": "/quotas/lab/ClusterQueue/-/speech-shared-t4/t4/nvidia.com/gpu/",
    "requests": "/quotas/requests/",
    "new-request": "/quotas/requests/new/?key=lab/ResourceQuota/speech-lab/gpus/"
    "requests.nvidia.com/gpu",
    "proposals": "/quotas/proposals/",
    "decided-proposals": "/quotas/proposals/?tab=decided",
    "new-proposal": "/quotas/proposals/new/",
    "approvals": "/quotas/approvals/",
    "costs": "/costs/",
    "waste": "/costs/waste/",
    "recommendations": "/costs/recommendations/",
    "prices": "/costs/prices/",
    "budgets": "/costs/budgets/",
    "exports": "/costs/exports/",
    "bill": "/costs/bill/?month=2026-10",
    "month-report": "/costs/report/2026-10/",
    "tiers": "/capacity/tiers/",
    "tier": "/capacity/tiers/whole-a100/",
    "teams": "/capacity/teams/",
    "team": "/capacity/teams/speech/",
    "statement": "/capacity/teams/speech/statement/",
    "fairness": "/capacity/fairness/",
    "serving": "/capacity/serving/",
    "tier-fairness": "/capacity/fairness/whole-a100/",
    "gpus": "/capacity/gpus/",
    "data-quality": "/admin/data-quality/",
    "users": "/admin/users/",
    "audit": "/admin/audit/",
    "explain": "/explain/?figure=idle_gpu_hours&tier=whole-a100",
    "explain-figure": "/explain/pending_gpu_hours/",
    "search": "/search/?q=whisper",
    "first-run": "/first-run/",
    "views": "/views/",
    "tokens": "/tokens/",
    "password": "/password/",
    "alerts": "/alerts/",
    "channels": "/alerts/channels/",
    "deliveries": "/alerts/deliveries/",
    "not-found": "/nothing-here/",
    "styleguide": "/styleguide/",
}
"""The pages that name no row."""
OF_A_ROW = frozenset(
    {
        *("pending-detail", "pod", "request", "edit-request", "proposal"),
        *("what-if", "gpu", "user", "alert", "channel", "policy-simulation"),
    }
)
"""The pages that name one."""
PAGE_NAMES = OF_A_ROW.union(_PAGES)


def campus_pages() -> dict[str, str]:
    """Return an address of every page that shows something here, by the page's name."""
    request = ChangeRequest.objects.filter(state="in review").order_by("pk")[0]
    pod = Pod.objects.filter(workload__name="whisper-live", ended_at=None).order_by("pk")[0]
    item = Episode.objects.filter(until=None, workload__namespace__name__startswith="speech")[0]
    device = Device.objects.order_by("pk")[0]
    draft = ChangeRequest.objects.get(state="draft")
    proposal = CatalogProposal.objects.filter(state="submitted").order_by("pk")[0]
    person = User.objects.get(username=MEMBER)
    alert = Alert.objects.order_by("pk")[0]
    channel = Channel.objects.order_by("pk")[0]
    simulation = PolicySimulation.objects.get()
    found = {
        "pending-detail": f"/pending/lab/{item.uid}/",
        "pod": f"/pods/lab/{pod.uid}/",
        "request": f"/quotas/requests/{request.pk}/",
        "edit-request": f"/quotas/requests/{draft.pk}/edit/",
        "proposal": f"/quotas/proposals/{proposal.pk}/",
        "what-if": "/capacity/fairness/whole-a100/what-if/",
        "gpu": f"/capacity/gpus/lab/{device.uuid}/",
        "user": f"/admin/users/{person.pk}/",
        "alert": f"/alerts/?{urlencode({'kind': alert.kind, 'subject': alert.subject})}",
        "channel": f"/alerts/channels/{channel.pk}/",
        "policy-simulation": f"/capacity/policies/{simulation.pk}/",
    }
    assert found.keys() == OF_A_ROW
    return _PAGES | found
