"""A small cluster whose pods serve models, and what its simulator knows of them."""

from datetime import UTC, datetime

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.kube_objects import KEPT_FOR_LATENCY
from apps.clusters.domain.window import Window
from apps.clusters.services import snapshot_cluster
from apps.operations.services import load_catalog
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from simulator.fleet import Controller, Phase, Pod
from simulator.prometheus.exporters.serving import stretches
from simulator.scenarios.base import Service, Team
from tests.simulator.small import ORIGIN, Small, deployment, pod

HOUR = 3600
HOURS = 6
NOW_SECONDS = ORIGIN + HOURS * HOUR + 900
NOW = datetime.fromtimestamp(NOW_SECONDS, UTC)
START, END = (datetime.fromtimestamp(at, UTC) for at in (ORIGIN, ORIGIN + HOURS * HOUR))
WINDOW = Window(START, END)
SERVICES = (
    Service("vision", "chat", "vllm", "llama", restarting=(0,), restarts_at=2 * HOUR + 1205),
    Service("vision", "rank", "triton", "ranker", 500.0, 40.0, 7.0, silent=(2,)),
    Service("vision", "old", "vllm-0.9", "opt", 900.0, 300.0, 2.0),
)


def service_pod(owner: Controller, device: int, *activities: float) -> Pod:
    """Return a pod whose activity changes every three hours."""
    made = pod(f"{owner.name}-{device}", owner=owner, bound=0, started=0, devices=(device,))
    phases = tuple(
        Phase(ORIGIN + number * 3 * HOUR, activity, 250.0, activity)
        for number, activity in enumerate(activities)
    )
    return replace(made, phases=phases)


def serving_scenario() -> Small:
    """Return four pods of three services; one is not scraped, one server starts again.

    The oldest one is marked to stay however idle it is.
    """
    owners = [deployment(name) for name in ("chat", "rank", "old")]
    (chat, rank, old) = (owner for _, owner in owners)
    pods = [
        service_pod(chat, 0, 0.3, 0.7),
        service_pod(rank, 1, 0.2, 0.5),
        service_pod(rank, 2, 0.2, 0.5),
        replace(service_pod(old, 3, 0.0, 0.1), annotations={KEPT_FOR_LATENCY: "true"}),
    ]
    made = Small(pods, [one for pair in owners for one in pair])
    made.services = SERVICES
    made.teams = [Team("vision", ("vision",), 4, "CC-1")]
    return made


def load_served(scenario: Small, url: str, objectives: str = "", *, now: datetime = NOW) -> None:
    """Load the catalog of the scenario, with these objectives of services (YAML)."""
    text = f"{catalog_yaml(scenario, url=url)}\n{objectives}"
    load_catalog(text, "catalog.yaml", now=now, dry_run=False)


def collect_served(scenario: Small, url: str, objectives: str = "") -> None:
    """Collect all hours as in production."""
    load_served(scenario, url, objectives)
    snapshot_cluster("lab", now=NOW)
    collect_window("lab", WINDOW, now=NOW)


def known(scenario: Small, service: Service) -> tuple[float, float, float]:
    """Return tokens in and out, and GPU-hours, of the scraped pods while their server was up."""
    read = written = seconds = 0.0
    epoch = scenario.epoch_at(ORIGIN)
    assert epoch is not None
    for one in epoch.pods:
        assert one.owner.parent is not None
        if one.owner.parent.name != service.name or one.devices[0] in service.silent:
            continue
        for part in stretches(one, service, ORIGIN, ORIGIN + HOURS * HOUR):
            length = part.end - part.start
            read += service.tokens_in * part.activity * length
            written += service.tokens_out * part.activity * length
            seconds += length
    return read, written, seconds / HOUR
