"""The texts and numbers of a catalog: what each may be, and how that is said to people.

Each says in its `description` what is allowed; errors quote that. `private` in `extra` keeps a
wrong value out of the error, because it may be a secret in the wrong place.
"""

from typing import Annotated, Any

from msgspec import Meta


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
GpuCount = Annotated[
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
