"""The catalog's schema: what may be written where. docs/catalog.md explains it to people.

Each text and number says in its `description` what is allowed; errors quote that. `private` in
`extra` keeps a wrong value out of the error, because it may be a secret in the wrong place.
"""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from apps.clusters.domain.tiers import GpuSharing
from apps.costs.domain.prices import PriceKind


class Period(StrEnum):
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


class PaidAs(StrEnum):
    """How capacity is paid for; `unknown` prices nodes that say nothing of it."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"
    OWNED = "owned"
    UNKNOWN = "unknown"


def _text(pattern: str, description: str, *, longest: int = 253, private: bool = False) -> Any:
    return Meta(
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
UserName = Annotated[
    str, _text(r"[\w.@+-]+", "a user name of letters, digits and @ . + - _", longest=150)
]
Line = Annotated[str, _text(r"[^\n]*", "one line of text", longest=120)]
Text = Annotated[str, _text(r"(?s:.*)", "text", longest=2000)]
Url = Annotated[str, _text(r"\S+", "a URL without blanks", longest=2000, private=True)]
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
MatcherValue = Annotated[str, _text(r"[^\n]*", "the text that the label must have", longest=200)]
LabelKey = Annotated[
    str,
    _text(
        r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?",
        "a Kubernetes label key such as nvidia.com/gpu.product",
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
GpuModel = Annotated[str, _text(r"[^\n]*[^\s-][^\n]*", "the name of a GPU model", longest=120)]
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
Instant = Annotated[
    str,
    _text(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
        r"(?:[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2}))?",
        "a date such as 2026-01-01 or a time with its offset such as 2026-01-01T06:00:00Z",
        longest=32,
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


class Prometheus(Struct, frozen=True, kw_only=True):
    url: Url
    matchers: dict[MatcherName, MatcherValue] = {}
    scrape_interval_seconds: Seconds = 30.0
    bearer_token_env: EnvName | None = None
    basic_auth_env: EnvName | None = None
    ca_file: FilePath | None = None


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


class Cluster(Struct, frozen=True, kw_only=True):
    name: Name
    prometheus: Prometheus
    kubernetes: Kubernetes | None = None


class Tier(Struct, frozen=True, kw_only=True):
    name: Name
    sharing: GpuSharing
    resources: tuple[Resource, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    node_selector: dict[LabelKey, LabelValue] = {}
    promise: Text = ""
    allowed_teams: tuple[Name, ...] = ()
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
    `residual` what they are worth after `years`. `per_kwh` prices the measured energy of the
    cards, times `pue` (the site's energy ÷ that of its computers); it is a line of its own.
    """

    price: Amount
    gpus: CardCount
    years: Years
    residual: Amount = "0"
    per_kwh: Amount | None = None
    pue: Amount = "1"


class Price(Struct, frozen=True, kw_only=True):
    """What a GPU-hour costs: `per_gpu_hour` before `discount`, or what `owned` amounts to.

    The most specific price wins: of cluster and tier, of the cluster, of the tier, of any.
    `confirmed` lets a figure pass that looks like a typing error, such as one per month.
    `source` says where it is from; `example` that nobody has observed for it.
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
    source: Line = ""
    example: bool = False
    confirmed: bool = False
    valid_from: Instant | None = None


class Report(Struct, frozen=True, kw_only=True):
    time_zone: ZoneName = "UTC"
    currency: Currency = "USD"


class Catalog(Struct, frozen=True, kw_only=True):
    """A whole catalog, checked; lists keep the order of the text."""

    clusters: tuple[Cluster, ...] = ()
    tiers: tuple[Tier, ...] = ()
    teams: tuple[Team, ...] = ()
    prices: tuple[Price, ...] = ()
    report: Report = Report()
