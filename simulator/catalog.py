"""The catalog that fits a scenario, as YAML for `load_catalog`.

Written by hand rather than by a YAML library: the lab needs none, and the text is to be read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from simulator.fleet import GPU
from simulator.machines import PRODUCT
from simulator.prometheus.series import SCRAPE_MS
from simulator.scenarios.base import (
    GpuRate,
    Owned,
    PriceConfirmation,
    Scenario,
    Service,
    SiteEnergy,
    Team,
    Tier,
)

TIER = "exclusive-a100"
PRICE = "3.06"
_TIERS = (
    Tier(
        name=TIER,
        sharing="exclusive",
        promise="A whole A100 with 80 GB, alone.",
        resources=(GPU,),
        node_selector={"nvidia.com/gpu.product": PRODUCT},
    ),
)


def catalog_yaml(scenario: Scenario, *, url: str) -> str:
    """Return the catalog of the lab served at `url`."""
    tiers = scenario.tiers or _TIERS
    lines = [*_clusters(scenario, url), "tiers:"]
    for tier in tiers:
        lines += _tier(tier)
    lines.append("teams:")
    for team in scenario.teams:
        lines += _team(team)
    prices = scenario.prices or {PRODUCT: PRICE}
    return "\n".join(
        [
            *lines,
            *_prices(prices, scenario.rates, scenario.confirmation),
            *_serving_objectives([one for one in scenario.services if one.ttft]),
            "report: {time_zone: Europe/Berlin, currency: USD}",
            "",
        ]
    )


def _clusters(scenario: Scenario, url: str) -> Iterator[str]:
    yield "clusters:"
    for name in (scenario.cluster, *(other.cluster for other in scenario.others)):
        yield from _cluster(name, url)
        if scenario.checkpoint_metric:
            yield f"      checkpoint_metrics: [{scenario.checkpoint_metric}]"
        if scenario.site is not None:
            yield _energy(scenario.site)
        if name == scenario.cluster:
            # The lab needs no account: the same address watches and writes.
            yield from _kubernetes(url)


def _cluster(name: str, url: str) -> Iterator[str]:
    yield f"  - name: {name}"
    yield "    prometheus:"
    yield f"      url: {_text(url)}"
    yield f"      matchers: {{cluster: {name}}}"
    yield f"      scrape_interval_seconds: {SCRAPE_MS // 1000}"


def _energy(site: SiteEnergy) -> str:
    factor = f'pue: "{site.pue}", carbon_g_per_kwh: "{site.carbon_g_per_kwh}"'
    return f"    energy: {{{factor}, valid_from: 2000-01-01}}"


def _kubernetes(url: str) -> Iterator[str]:
    yield f"    kubernetes: {{api_server: {_text(url)}, writer: {{api_server: {_text(url)}}}}}"


def _tier(tier: Tier) -> Iterator[str]:
    yield f"  - name: {tier.name}"
    yield f"    sharing: {tier.sharing}"
    if tier.resources:
        yield f"    resources: [{', '.join(tier.resources)}]"
    if tier.device_classes:
        yield f"    device_classes: [{', '.join(tier.device_classes)}]"
    if tier.node_selector:
        labels = (f"{key}: {_value(value)}" for key, value in tier.node_selector.items())
        yield f"    node_selector: {{{', '.join(labels)}}}"
    yield f"    promise: {_text(tier.promise)}"
    if tier.allowed_teams:
        yield f"    allowed_teams: [{', '.join(map(_text, tier.allowed_teams))}]"
    if tier.queue_time:
        yield f"    queue_time: {{p95: {tier.queue_time}, over: 28d}}"


def _team(team: Team) -> Iterator[str]:
    yield f"  - name: {_text(team.name)}"
    yield f"    cost_center: {_text(team.cost_center)}"
    if team.leads:
        yield f"    leads: [{', '.join(team.leads)}]"
    yield f"    namespaces: [{', '.join(map(_text, team.namespaces))}]"
    shares = team.entitlements or {TIER: team.entitlement}
    yield f"    entitlements: {{{', '.join(f'{tier}: {gpus}' for tier, gpus in shares.items())}}}"
    budgets = []
    if team.monthly_gpu_hours:
        budgets.append(f"{{period: month, gpu_hours: {team.monthly_gpu_hours}}}")
    if team.monthly_money:
        budgets.append(f'{{period: month, money: "{team.monthly_money}", currency: USD}}')
    if budgets:
        yield f"    budgets: [{', '.join(budgets)}]"


def _prices(
    prices: Mapping[str, str], rates: Sequence[GpuRate], confirmed: PriceConfirmation | None
) -> Iterator[str]:
    yield "prices:"
    for rate in (*(GpuRate(model, "on-demand", price) for model, price in prices.items()), *rates):
        yield f"  - gpu_model: {_text(rate.model) if ' ' in rate.model else rate.model}"
        yield f"    capacity_type: {rate.capacity_type}"
        if rate.owned is None:
            yield f'    per_gpu_hour: "{rate.per_gpu_hour}"'
        else:
            yield f"    owned: {{{', '.join(_owned(rate.owned))}}}"
        yield "    currency: USD"
        if confirmed is not None:
            if rate.owned is None:
                yield f"    source: {confirmed.source}"
            yield f"    confirmed_by: {confirmed.by}"
            yield f"    confirmed_on: {confirmed.on}"
        yield "    valid_from: 2000-01-01"


def _owned(owned: Owned) -> Iterator[str]:
    yield f'price: "{owned.price}"'
    yield f'residual: "{owned.residual}"'
    yield f"gpus: {owned.gpus}"
    yield f"years: {owned.years}"
    yield f'per_kwh: "{owned.per_kwh}"'
    yield f'pue: "{owned.pue}"'


def _serving_objectives(services: Sequence[Service]) -> Iterator[str]:
    if services:
        yield "serving_objectives:"
    for one in services:
        match = f"namespace: {one.namespace}, workload: Deployment/{one.name}"
        yield f"  - {{{match}, ttft: {one.ttft}}}"


def _value(value: str) -> str:
    """Return a label's value, in quotes where YAML would read a number or a truth."""
    return _text(value) if value in {"true", "false"} or value.isdecimal() else value


def _text(value: str) -> str:
    """Return a string as YAML: JSON's quotes hold for it."""
    return json.dumps(value)
