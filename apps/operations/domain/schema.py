"""The catalog's schema. docs/catalog.md explains it to people."""

from decimal import Decimal
from enum import StrEnum

from msgspec import Struct

from apps.accounts.domain.formats import UNIT_SECONDS
from apps.clusters.domain.resources import gpus
from apps.clusters.domain.tiers import GpuSharing
from apps.costs.domain.prices import PriceKind, amortised
from apps.operations.domain.catalog_values import (
    Amount,
    ClientId,
    Context,
    Currency,
    Day,
    DeviceClass,
    EnvName,
    FilePath,
    FirstTokenTime,
    Fraction,
    GpuCount,
    GpuHours,
    GpuModel,
    Gpus,
    HeaderName,
    HeaderValue,
    HostList,
    Instant,
    LabelKey,
    LabelValue,
    Line,
    MatcherName,
    MatcherValue,
    MetricName,
    ModelPattern,
    Month,
    Name,
    NodeDashboard,
    ObjectiveDays,
    ParameterName,
    ParameterValue,
    Pattern,
    QueueTimeLimit,
    Region,
    Resource,
    Scope,
    Seconds,
    Text,
    Url,
    UserName,
    Weight,
    WorkloadPattern,
    Years,
    ZoneName,
)


class Period(StrEnum):
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


class ClientAuth(StrEnum):
    """How an OAuth2 client shows its secret: in the Authorization header, or in the body."""

    BASIC = "basic"
    BODY = "body"


class PaidAs(StrEnum):
    """How capacity is paid for; `unknown` prices nodes that say nothing of it."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"
    OWNED = "owned"
    UNKNOWN = "unknown"


class SigV4(Struct, frozen=True, kw_only=True):
    """Requests signed for Amazon Managed Prometheus; `profile` is one of the AWS configuration."""

    region: Region
    service: Region = "aps"
    profile: Line | None = None


class OAuth2(Struct, frozen=True, kw_only=True):
    """A token from `token_url` by client credentials.

    The client shows a secret, or the token in `client_assertion_file`: that of a workload identity.
    """

    token_url: Url
    client_id: ClientId
    client_secret_env: EnvName | None = None
    client_assertion_file: FilePath | None = None
    client_auth: ClientAuth = ClientAuth.BASIC
    scopes: tuple[Scope, ...] = ()
    parameters: dict[ParameterName, ParameterValue] = {}


class Prometheus(Struct, frozen=True, kw_only=True):
    """How a Prometheus is asked; at most one sign-in, of those in `prometheus_checks.SIGN_INS`."""

    url: Url
    matchers: dict[MatcherName, MatcherValue] = {}
    scrape_interval_seconds: Seconds = 30.0
    headers: dict[HeaderName, HeaderValue] = {}
    headers_env: dict[HeaderName, EnvName] = {}
    parameters: dict[ParameterName, ParameterValue] = {}
    bearer_token_env: EnvName | None = None
    bearer_token_file: FilePath | None = None
    basic_auth_env: EnvName | None = None
    oauth2: OAuth2 | None = None
    sigv4: SigV4 | None = None
    google_credentials: bool = False
    ca_file: FilePath | None = None
    cert_file: FilePath | None = None
    key_file: FilePath | None = None
    node_dashboard: NodeDashboard | None = None
    checkpoint_metrics: tuple[MetricName, ...] = ()


class Account(Struct, frozen=True, kw_only=True):
    """One way to a Kubernetes API server, under one account."""

    kubeconfig: FilePath | None = None
    context: Context | None = None
    in_cluster: bool = False
    api_server: Url | None = None
    bearer_token_env: EnvName | None = None
    ca_file: FilePath | None = None


class Kubernetes(Account, frozen=True, kw_only=True):
    """How a cluster is watched, and `writer`: the account that may change its quotas."""

    writer: Account | None = None


class SiteEnergy(Struct, frozen=True, kw_only=True):
    """What a cluster's site adds to measured energy (`pue`), and the carbon of a kWh.

    `carbon_g_per_kwh` is one factor for all hours; `carbon_file` has one for each hour.
    """

    pue: Amount = "1"
    carbon_g_per_kwh: Amount | None = None
    carbon_file: FilePath | None = None
    valid_from: Instant | None = None


class SlurmNodes(Struct, frozen=True, kw_only=True):
    """Nodes of a Slurm cluster that are alike: a host list, the GPUs of each, and their labels."""

    names: HostList
    gpus: GpuCount
    model: LabelValue
    labels: dict[LabelKey, LabelValue] = {}


class Slurm(Struct, frozen=True, kw_only=True):
    """A cluster known by its job log: the files that sacct wrote, and the nodes.

    `events` are files of sacctmgr with what of the nodes was down or drained.
    """

    jobs: FilePath
    nodes: tuple[SlurmNodes, ...]
    events: FilePath | None = None
    time_zone: ZoneName = "UTC"


class Cluster(Struct, frozen=True, kw_only=True):
    """A cluster, known by `prometheus`, and `kubernetes` beside it, or by `slurm`."""

    name: Name
    prometheus: Prometheus | None = None
    kubernetes: Kubernetes | None = None
    slurm: Slurm | None = None
    energy: SiteEnergy | None = None


class QueueTime(Struct, frozen=True, kw_only=True):
    """The queue time that 95 % of a tier's work is to stay within, counted over the last days."""

    p95: QueueTimeLimit
    over: ObjectiveDays = "28d"


class Tier(Struct, frozen=True, kw_only=True):
    name: Name
    sharing: GpuSharing
    resources: tuple[Resource, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    node_selector: dict[LabelKey, LabelValue] = {}
    promise: Text = ""
    allowed_teams: tuple[Name, ...] = ()
    queue_time: QueueTime | None = None
    valid_from: Instant | None = None


class Budget(Struct, frozen=True, kw_only=True):
    period: Period
    gpu_hours: GpuHours | None = None
    money: Amount | None = None
    currency: Currency | None = None

    @property
    def unit(self) -> str:
        """`gpu_hours` or `money`."""
        return "gpu_hours" if self.gpu_hours is not None else "money"


class Team(Struct, frozen=True, kw_only=True):
    name: Name
    cost_center: Line = ""
    leads: tuple[UserName, ...] = ()
    namespaces: tuple[Pattern, ...] = ()
    entitlements: dict[Name, Gpus] = {}
    weights: dict[Name, Weight] = {}
    budgets: tuple[Budget, ...] = ()
    valid_from: Instant | None = None


class Owned(Struct, frozen=True, kw_only=True):
    """Hardware that was bought: written off in a straight line, energy by what is measured.

    `price` is that of the servers with all that belongs to them, in the price's currency;
    `residual` what they are worth after `years`. `per_kwh` prices the measured energy of the GPUs,
    times `pue` (the site's energy ÷ that of its computers); it is a line of its own.
    """

    price: Amount
    gpus: GpuCount
    years: Years
    residual: Amount = "0"
    per_kwh: Amount | None = None
    pue: Amount = "1"


class Energy(Struct, frozen=True, kw_only=True):
    """What measured energy costs beside a `per_gpu_hour`; with `owned` it stands in there."""

    per_kwh: Amount
    pue: Amount = "1"


class Price(Struct, frozen=True, kw_only=True):
    """What a GPU-hour costs: `per_gpu_hour` before `discount`, or what `owned` amounts to.

    The most specific price wins: of cluster and tier, of the cluster, of the tier, of any.
    `confirmed` lets a figure pass that looks like a typing error, such as one per month. `source`
    says where it is from; `example` that it was never confirmed, `confirmed_by` who did so and
    `confirmed_on` on which day.
    """

    gpu_model: GpuModel
    capacity_type: PaidAs
    per_gpu_hour: Amount | None = None
    currency: Currency
    cluster: Name | None = None
    tier: Name | None = None
    discount: Fraction = "0"
    kind: PriceKind | None = None
    owned: Owned | None = None
    energy: Energy | None = None
    source: Line = ""
    example: bool = False
    confirmed: bool = False
    confirmed_by: Line = ""
    confirmed_on: Day | None = None
    valid_from: Instant | None = None


class ServingObjective(Struct, frozen=True, kw_only=True):
    """The time to first token of inference services; the first entry that fits one counts.

    What is left out fits all. What no entry fits has the objective of the settings.
    """

    ttft: FirstTokenTime
    cluster: Name | None = None
    namespace: Pattern | None = None
    workload: WorkloadPattern | None = None
    model: ModelPattern | None = None
    valid_from: Instant | None = None

    @property
    def match(self) -> tuple[str | None, ...]:
        """What it is for, by which objectives are told apart."""
        return self.cluster, self.namespace, self.workload, self.model


class ExchangeRate(Struct, frozen=True, kw_only=True):
    """What one unit of a currency is worth in the report's, fixed for a month."""

    month: Month
    currency: Currency
    rate: Amount
    source: Line = ""


class Report(Struct, frozen=True, kw_only=True):
    time_zone: ZoneName = "UTC"
    currency: Currency = "USD"
    exchange_rates: tuple[ExchangeRate, ...] = ()


class Catalog(Struct, frozen=True, kw_only=True):
    """A whole catalog, checked; lists keep the order of the text."""

    clusters: tuple[Cluster, ...] = ()
    tiers: tuple[Tier, ...] = ()
    teams: tuple[Team, ...] = ()
    prices: tuple[Price, ...] = ()
    serving_objectives: tuple[ServingObjective, ...] = ()
    report: Report = Report()


def per_gpu_hour(price: Price) -> Decimal:
    """Return the price of a GPU-hour before the discount; of owned hardware its amortisation.

    Raises ValueError where hardware cannot be written off so.
    """
    if price.owned is None:
        # That a price has no amount is noted elsewhere; 0 lets the other checks run.
        return Decimal(price.per_gpu_hour or "0")
    return amortised(
        Decimal(price.owned.price),
        gpus=price.owned.gpus,
        years=Decimal(str(price.owned.years)),
        residual=Decimal(price.owned.residual),
    )


def kind_of(price: Price) -> PriceKind:
    """Return what kind of price it is: as said, else owned where it is, else a list price."""
    if price.kind is not None:
        return price.kind
    return PriceKind.OWNED if price.owned is not None else PriceKind.LIST


def written_off(price: Price) -> str:
    """Return how the price of owned hardware came about, in words; empty for others."""
    owned = price.owned
    if owned is None:
        return ""
    residual = "" if Decimal(owned.residual) == 0 else f" less {owned.residual}"
    return (
        f"{owned.price} {price.currency}{residual} for {gpus(owned.gpus)} over "
        f"{owned.years:g} years of 8,760 hours"
    )


def whole_seconds(time: str) -> int:
    """Return the seconds of a time such as `30m`."""
    return int(time[:-1]) * UNIT_SECONDS[time[-1]]
