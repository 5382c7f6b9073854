"""The catalog that fits a scenario, as YAML for `load_catalog`.

Written by hand rather than by a YAML library: the lab needs none, and the text is to be read.
"""

import json
from collections.abc import Iterator

from apps.lab.device_metrics import CLUSTER
from apps.lab.fleet import GPU
from apps.lab.machines import PRODUCT
from apps.lab.scenarios.base import Scenario, Team
from apps.lab.series import SCRAPE_MS

TIER = "exclusive-a100"
PRICE = "3.06"


def catalog_yaml(scenario: Scenario, *, url: str) -> str:
    """Return the catalog of the lab served at `url`."""
    lines = [*_cluster(url), *_tiers(), "teams:"]
    for team in scenario.teams:
        lines += _team(team)
    return "\n".join([*lines, *_prices(), "report: {time_zone: Europe/Berlin, currency: USD}", ""])


def _cluster(url: str) -> Iterator[str]:
    yield "clusters:"
    yield f"  - name: {CLUSTER}"
    yield "    prometheus:"
    yield f"      url: {_text(url)}"
    yield f"      matchers: {{cluster: {CLUSTER}}}"
    yield f"      scrape_interval_seconds: {SCRAPE_MS // 1000}"
    yield f"    kubernetes: {{api_server: {_text(url)}}}"


def _tiers() -> Iterator[str]:
    yield "tiers:"
    yield f"  - name: {TIER}"
    yield "    sharing: exclusive"
    yield f"    resources: [{GPU}]"
    yield f"    node_selector: {{nvidia.com/gpu.product: {PRODUCT}}}"
    yield '    promise: "A whole A100 with 80 GB, alone."'


def _team(team: Team) -> Iterator[str]:
    yield f"  - name: {_text(team.name)}"
    yield f"    cost_center: {_text(team.cost_center)}"
    if team.leads:
        yield f"    leads: [{', '.join(team.leads)}]"
    yield f"    namespaces: [{', '.join(map(_text, team.namespaces))}]"
    yield f"    entitlements: {{{TIER}: {team.entitlement}}}"
    if team.monthly_gpu_hours:
        yield f"    budgets: [{{period: month, gpu_hours: {team.monthly_gpu_hours}}}]"


def _prices() -> Iterator[str]:
    yield "prices:"
    yield f"  - gpu_model: {PRODUCT}"
    yield "    capacity_type: on-demand"
    yield f'    per_gpu_hour: "{PRICE}"'
    yield "    currency: USD"
    yield "    valid_from: 2000-01-01"


def _text(value: str) -> str:
    """Return a string as YAML: JSON's quotes hold for it."""
    return json.dumps(value)
