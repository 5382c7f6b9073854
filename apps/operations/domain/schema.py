"""The catalog's schema, and the decoder of a tree into it. docs/catalog.md explains it to people.

Each text and number says in its `description` what is allowed; errors quote that. `private` in
`extra` keeps a wrong value out of the error, because it may be a secret in the wrong place.

msgspec decides whether a value fits its type; walking the structs here is what lets one run name
all misfits with their lines.
"""

import difflib
import re
import types
from collections.abc import Collection, Mapping
from decimal import Decimal
from enum import Enum, EnumType, StrEnum
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from apps.accounts.domain.formats import UNIT_SECONDS
from apps.clusters.domain.resources import gpus
from apps.clusters.domain.tiers import GpuSharing
from apps.costs.domain.prices import PriceKind, amortised
from apps.operations.domain.source_positions import Path, Problems, SourceNode, near, shown


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


def _text(pattern: str, description: str, *, longest: int = 253, private: bool = False) -> Any:
    return Meta(
        # `^` and `$` would let a line break at the end pass.
        pattern=rf"\A(?:{pattern})\Z",
        max_length=longest,
        description=description,
        extra={"private": private},
    )


# A name stands in URLs and, separated by commas, in filters.
Name = Annotated[
    str,
    _text(
        r"[^\W_](?:[\w .-]*[^\W_])?",
        "a name of letters, digits, blanks, dots, dashes and underscores that begins and ends "
        "with a letter or digit",
        longest=120,
    ),
]
# As long as Django's user names.
UserName = Annotated[
    str, _text(r"[\w.@+-]+", "a user name of letters, digits and @ . + - _", longest=150)
]
Line = Annotated[str, _text(r"[^\n]*", "one line of text", longest=120)]
Text = Annotated[str, _text(r"(?s:.*)", "text", longest=2000)]
Url = Annotated[str, _text(r"\S+", "a URL without blanks", longest=2000, private=True)]
NodeDashboard = Annotated[
    str,
    _text(
        r"(?=\S*\{node\})https?://[^\s{}/]+(?:/[^\s{}]*(?:\{(?:node|cluster)\}[^\s{}]*)*)?",
        "a URL that begins with http:// or https:// and a host, with {node}, and {cluster} where "
        "it is needed, after the host",
        longest=2000,
    ),
]
FilePath = Annotated[str, _text(r"[^\n]+", "the path of a file", longest=1000)]
Context = Annotated[str, _text(r"[^\n]+", "the name of a context in the kubeconfig")]
EnvName = Annotated[
    str,
    _text(
        r"[A-Za-z_][A-Za-z0-9_]*",
        "the name of an environment variable (letters, digits and underscores); "
        "the secret itself is never in the catalog",
        longest=120,
        private=True,
    ),
]
MatcherName = Annotated[
    str, _text(r"[a-zA-Z_][a-zA-Z0-9_]*", "a Prometheus label name", longest=200)
]
MetricName = Annotated[
    str, _text(r"[a-zA-Z_:][a-zA-Z0-9_:]*", "the name of a Prometheus metric", longest=200)
]
MatcherValue = Annotated[str, _text(r"[^\n]*", "the text that the label must have", longest=200)]
HeaderName = Annotated[
    str, _text(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", "the name of an HTTP header", longest=120)
]
HeaderValue = Annotated[
    str,
    _text(
        r"[!-~](?:[ -~]*[!-~])?",
        "the text of a header: one line of ASCII without blanks around it",
        longest=500,
        private=True,
    ),
]
ParameterName = Annotated[
    str, _text(r"[A-Za-z_][\w.\[\]-]*", "the name of a query parameter such as dedup", longest=120)
]
ParameterValue = Annotated[
    str, _text(r"[^\n]*", "the text of the parameter", longest=500, private=True)
]
Region = Annotated[
    str, _text(r"[a-z0-9-]+", "the name of a region or service such as us-east-1", longest=60)
]
ClientId = Annotated[
    str, _text(r"[!-~]+", "a client id: ASCII without blanks", longest=500, private=True)
]
Scope = Annotated[str, _text(r"[!-~]+", "a scope: ASCII without blanks", longest=500)]
HostList = Annotated[
    str,
    _text(
        r"[A-Za-z0-9._\[\],-]+", "a host or a host list of Slurm such as gpu[01-16]", longest=2000
    ),
]
LabelKey = Annotated[
    str,
    _text(
        r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?",
        "a Kubernetes label key such as nvidia.com/gpu.product",
        # A prefix of 253 characters, a slash and a name of 63.
        longest=317,
    ),
]
LabelValue = Annotated[
    str,
    _text(
        r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?",
        "a Kubernetes label value of letters, digits, dashes, underscores and dots",
        longest=63,
    ),
]
Resource = Annotated[
    str,
    _text(
        r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?",
        "a resource name such as nvidia.com/gpu",
    ),
]
DeviceClass = Annotated[
    str,
    _text(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", "a device class name such as gpu.nvidia.com"),
]
Pattern = Annotated[
    str,
    _text(
        r"[a-z0-9*?-]+",
        "a namespace name or pattern of lower-case letters, digits, dashes, * and ?",
        longest=63,
    ),
]
# One sign at least beside blanks and dashes, for models are compared without these.
GpuModel = Annotated[str, _text(r"[^\n]*[^\s-][^\n]*", "the name of a GPU model", longest=120)]
# As columns of money are: 20 digits, 8 of them after the point.
Amount = Annotated[
    str,
    _text(
        r"[0-9]{1,12}(?:\.[0-9]{1,8})?",
        'a decimal number of 0 or more in quotes such as "3.06", with up to 12 digits before '
        "and 8 after the point",
        longest=21,
    ),
]
Fraction = Annotated[
    str,
    _text(
        r"0(?:\.[0-9]{1,8})?|1(?:\.0{1,8})?",
        'a fraction from 0 to 1 in quotes such as "0.15", with up to 8 digits after the point',
        longest=10,
    ),
]
Currency = Annotated[str, _text(r"[A-Z]{3}", "a currency code (ISO 4217) such as USD", longest=3)]
Day = Annotated[str, _text(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a day such as 2026-10-12", longest=10)]
Month = Annotated[str, _text(r"[0-9]{4}-(?:0[1-9]|1[0-2])", "a month such as 2026-10", longest=7)]
Instant = Annotated[
    str,
    _text(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
        r"(?:[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2}))?",
        "a date such as 2026-01-01 or a time with its offset such as 2026-01-01T06:00:00Z",
        longest=32,
    ),
]
QueueTimeLimit = Annotated[
    str,
    _text(
        r"[1-9][0-9]{0,4}[smhd]",
        "a time of whole seconds, minutes, hours or days such as 90s, 30m, 2h or 1d",
        longest=6,
    ),
]
ObjectiveDays = Annotated[
    str, _text(r"(?:[7-9]|[12][0-9]|3[01])d", "a number of days from 7d to 31d", longest=3)
]
FirstTokenTime = Annotated[
    str,
    _text(
        r"[1-9][0-9]{0,5}ms|[1-9][0-9]{0,2}s",
        "a time of whole milliseconds or seconds such as 500ms or 2s, below 1000s",
        longest=8,
    ),
]
# With a kind before a slash it is compared as pages write workloads.
WorkloadPattern = Annotated[
    str,
    _text(
        r"(?:[A-Za-z*?]+/)?[a-z0-9.*?-]+",
        "a workload's name or pattern such as chat-*, with its kind such as Deployment/chat-*; "
        "* and ? stand for any characters and for one",
        longest=317,
    ),
]
# Brackets would be a set of characters, which no other pattern of the catalog knows.
ModelPattern = Annotated[
    str,
    _text(
        r"[^\s\[\]]+",
        "a served model's name or pattern such as meta-llama/*, without blanks and brackets; "
        "* and ? stand for any characters and for one",
        longest=200,
    ),
]
ZoneName = Annotated[
    str, _text(r"[A-Za-z0-9_+/-]+", "a time zone such as Europe/Berlin", longest=64)
]
CardCount = Annotated[
    int, Meta(description="a whole number of GPUs, 1 to 1,000,000", ge=1, le=1_000_000)
]
Years = Annotated[float, Meta(description="a number of years above 0, at most 30", gt=0.0, le=30.0)]
Seconds = Annotated[
    float, Meta(description="a number of seconds above 0, at most 3600", gt=0.0, le=3600.0)
]
Gpus = Annotated[
    float, Meta(description="a number of GPU-equivalents, 0 to 1,000,000", ge=0.0, le=1_000_000.0)
]
Weight = Annotated[float, Meta(description="a weight, 0 to 1,000,000", ge=0.0, le=1_000_000.0)]
GpuHours = Annotated[
    float, Meta(description="a number of GPU-hours above 0, at most 1e12", gt=0.0, le=1e12)
]


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
    gpus: CardCount
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
    gpus: CardCount
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


_SECRET = re.compile(r"(?i)passw|secret|token|credential|api_?key|basic_auth|authorization")
_HOLDS = {"bearer_token_env": " (a token)", "basic_auth_env": " (user:password)"}


def shaped(root: SourceNode, problems: Problems) -> Catalog | None:
    """Return the catalog that the tree holds; None when it is none at all.

    Where `problems` grew, what is returned has None or the default in place of what did not fit.
    """
    if root.value in (None, (), {}):
        problems.add((), "the catalog is empty; " + _allowed(msgspec.structs.fields(Catalog)))
        return None
    catalog: Catalog | None = _struct(root, Catalog, (), problems)
    return catalog


def _value(node: SourceNode, annotation: Any, path: Path, problems: Problems) -> Any:
    kind = _bare(annotation)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(node, kind, path, problems)
    if get_origin(kind) is tuple:
        return _items(node, get_args(kind)[0], path, problems)
    if get_origin(kind) is dict:
        key_kind, value_kind = get_args(kind)
        return _entries(node, key_kind, value_kind, path, problems)
    return _leaf(node, kind, path, problems)


def _struct(node: SourceNode, kind: type[msgspec.Struct], path: Path, problems: Problems) -> Any:
    fields = msgspec.structs.fields(kind)
    if not isinstance(node.value, Mapping):
        problems.add(path, f"{shown(node.value)} is not a mapping; {_allowed(fields)}")
        return None
    names = [field.name for field in fields]
    for key in node.value:
        if key not in names:
            problems.add((*path, key), _unknown(key, names))
    values = {}
    for field in fields:
        value = None
        inner = node.value.get(field.name)
        # A key with nothing behind it says as much as no key.
        if inner is not None and inner.value is not None:
            value = _value(inner, field.type, (*path, field.name), problems)
        elif field.required:
            problems.add((*path, field.name), f"is missing; it must be {_phrase(field.type)}")
        # A needed field that did not fit is None, so that all else can still be checked.
        if value is not None or field.required:
            values[field.name] = value
    return kind(**values)


def _items(node: SourceNode, kind: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(node.value, tuple):
        problems.add(path, f"{_hidden(node, kind)} is not a list; write each entry after a dash")
        return None
    return tuple(
        _value(item, kind, (*path, index), problems) for index, item in enumerate(node.value)
    )


def _entries(node: SourceNode, key_kind: Any, kind: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(node.value, Mapping):
        problems.add(path, f"{shown(node.value)} is not a mapping of keys to values")
        return None
    entries = {}
    for key, item in node.value.items():
        try:
            msgspec.convert(key, key_kind)
        except msgspec.ValidationError:
            problems.add((*path, key), f"the key {shown(key)} is not {_phrase(key_kind)}")
            continue
        entries[key] = _value(item, kind, (*path, key), problems)
    return entries


def _leaf(node: SourceNode, kind: Any, path: Path, problems: Problems) -> Any:
    if isinstance(node.value, str | int | float):
        try:
            return msgspec.convert(node.value, kind)
        except msgspec.ValidationError:
            pass
    problems.add(path, f"{_hidden(node, kind)} is not {_phrase(kind)}{_hint(node, kind)}")
    return None


def _bare(annotation: Any) -> Any:
    """Return the type without its `| None`."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    return next(part for part in get_args(annotation) if part is not types.NoneType)


def _meta(kind: Any) -> msgspec.Meta | None:
    return next((m for m in getattr(kind, "__metadata__", ()) if isinstance(m, msgspec.Meta)), None)


def _phrase(annotation: Any) -> str:
    kind = _bare(annotation)
    meta = _meta(kind)
    if meta is not None:
        return str(meta.description)
    if isinstance(kind, EnumType):
        return f"one of {', '.join(_values(kind))}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"a mapping; {_allowed(msgspec.structs.fields(kind))}"
    return "true or false"


def _values(kind: EnumType) -> list[str]:
    return [str(member.value) for member in cast("type[Enum]", kind)]


def _hidden(node: SourceNode, kind: Any) -> str:
    """Return the value for an error, unless it may be a secret in the wrong place."""
    meta = _meta(kind)
    if meta is not None and (meta.extra or {}).get("private"):
        return "the value (not shown here)"
    return shown(node.value)


def _hint(node: SourceNode, kind: Any) -> str:
    value = node.value
    base = getattr(kind, "__origin__", kind)
    if base is str and isinstance(value, bool | int | float):
        return "; put it in quotes to make it text"
    meta = _meta(kind)
    if meta is not None and meta.max_length and len(str(value)) > meta.max_length:
        return f"; at most {meta.max_length} characters are allowed"
    if isinstance(kind, EnumType) and isinstance(value, str):
        return near(value, _values(kind)).removesuffix(";")
    return ""


def _unknown(key: str, names: Collection[str]) -> str:
    # What nearly is a known key is a slip, and no secret in the wrong place.
    slip = difflib.get_close_matches(key[:80], names, n=1, cutoff=0.9)
    if _SECRET.search(key) and not slip:
        return _never_inline(names)
    return f"unknown key{near(key, names)} allowed are {', '.join(names)}"


def _never_inline(names: Collection[str]) -> str:
    """Return why no secret may stand here, and which of these keys name a variable instead."""
    keys = [f"{name}{_HOLDS.get(name, '')}" for name in names if name.endswith("_env")]
    *others, last = keys or [f"{name}{holds}" for name, holds in _HOLDS.items()]
    named = f"{', '.join(others)} or {last}" if others else last
    return (
        f"secrets are never in the catalog: name the environment variable that holds it, in {named}"
    )


def _allowed(fields: Collection[msgspec.structs.FieldInfo]) -> str:
    return f"allowed are the keys {', '.join(field.name for field in fields)}"


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
