"""The HTTP API of Prometheus: how it is reached, queries as text, and answers as typed structs.

Every query that leaves the portal is put together here, from metric names and labels that are
constants of the adapters and from values that are escaped by `quoted`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct, field

from apps.clusters.adapters.prometheus.sign_in import Secret
from apps.clusters.domain.window import SLOT_SECONDS, from_seconds
from apps.clusters.ports import SourceRejected, SourceUnavailable

DEFAULT_INTERVAL_SECONDS = 30.0

_SIGN_INS = (
    *("bearer_token_env", "bearer_token_file", "basic_auth_env"),
    *("oauth2", "sigv4", "google_credentials"),
)
# Queries end a millisecond before a slot does, so that a sample on the boundary belongs to the
# next slot alone, whether the server closes a range on its left end (to Prometheus 2.x) or not.
END_MARGIN_SECONDS = 0.001
MAX_STEPS = 48
SLOT_RANGE = "30m"
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What RE2 reads as more than itself; `-` and `/` among others must not be escaped for it.
_REGEX_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
Labels = TypeVar("Labels")
Item = TypeVar("Item")
_RANGE = re.compile(r"\[(\d+)(ms|s|m)\]$")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_OTHER_TIME_SECONDS = 300.0
"""Some servers move the newest instants by the seconds that their samples take to arrive."""
_MOST_SAMPLES = 1e12
"""No sum of counts over a day comes near it."""


class PrometheusConfig(Struct, frozen=True):
    """One server and what of its series belongs to the cluster.

    `matchers` go into every query; `headers` and URL `parameters` into every request, with headers
    whose values variables hold (`headers_env`). `checkpoint_metrics` are gauges whose value is the
    Unix time at which a workload saved its state. `sign_in` has the keys of `sign_in_of`; secrets
    themselves are never part of the catalog.
    """

    url: str
    matchers: Mapping[str, str] = field(default_factory=dict)
    scrape_interval_seconds: float = DEFAULT_INTERVAL_SECONDS
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_env: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    sign_in: Mapping[str, Any] = field(default_factory=dict)
    checkpoint_metrics: Sequence[str] = ()
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @classmethod
    def from_catalog(cls, entry: Mapping[str, Any]) -> "PrometheusConfig":
        """Read the `prometheus` entry of a cluster. Raises SourceRejected without a URL."""
        url = str(entry.get("url") or "").rstrip("/")
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
            raise SourceRejected(
                f"the cluster's prometheus.url is {without_secrets(url)!r}: "
                "http://HOST:PORT or https://HOST is needed; correct the catalog"
            )
        return cls(
            url=url,
            matchers=_texts(entry, "matchers"),
            scrape_interval_seconds=float(
                entry.get("scrape_interval_seconds") or DEFAULT_INTERVAL_SECONDS
            ),
            headers=_texts(entry, "headers"),
            headers_env=_texts(entry, "headers_env"),
            parameters=_texts(entry, "parameters"),
            checkpoint_metrics=tuple(entry.get("checkpoint_metrics") or ()),
            sign_in={key: entry[key] for key in _SIGN_INS if entry.get(key)},
            ca_file=str(entry.get("ca_file") or ""),
            cert_file=str(entry.get("cert_file") or ""),
            key_file=str(entry.get("key_file") or ""),
        )

    @property
    def shown_url(self) -> str:
        """The URL as it may be shown to people."""
        return without_secrets(self.url)

    @property
    def loopback(self) -> bool:
        return urlsplit(self.url).hostname in {"127.0.0.1", "localhost", "::1"}

    def sent_headers(self, secret: Secret) -> dict[str, str]:
        """Return the headers of the catalog. Raises SourceRejected where a variable has none."""
        sent = dict(self.headers)
        for name, variable in self.headers_env.items():
            value = secret(variable).strip()
            if not value or not value.isascii() or not value.isprintable():
                raise SourceRejected(
                    f"the variable {variable} (headers_env of the catalog) holds no value for the "
                    f"header {name}"
                )
            sent[name] = value
        return sent

    @property
    def certificate(self) -> str | tuple[str, str] | None:
        """The client certificate, alone or with the file of its key."""
        return (self.cert_file, self.key_file) if self.key_file else self.cert_file or None

    @property
    def tls_files(self) -> dict[str, str]:
        """The files of TLS that are given, by key of the catalog."""
        given = {"ca_file": self.ca_file, "cert_file": self.cert_file, "key_file": self.key_file}
        return {key: path for key, path in given.items() if path}


def _texts(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    return {str(k): str(v) for k, v in (entry.get(key) or {}).items()}


def without_secrets(url: str) -> str:
    """Return `url` without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def quoted(value: str) -> str:
    """Return `value` as a PromQL string, in double quotes.

    What cannot be printed is written as \\u or \\U escapes, so that a hostile value can neither
    end the string nor the line.
    """
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    # A lone surrogate has no escape in Go and cannot be in a label either.
    if 0xD800 <= code <= 0xDFFF:
        return "\\uFFFD"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def literally(values: Iterable[str]) -> str:
    """Return the regular expression that matches exactly these values."""
    return "|".join(_REGEX_SPECIAL.sub(r"\\\1", value) for value in values)


class Matcher(Struct, frozen=True):
    """One label matcher; `operator` is one of = != =~ !~."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        if not _LABEL.fullmatch(self.label):
            raise ValueError(f"{self.label!r} is not a label name")
        return f"{self.label}{self.operator}{quoted(self.value)}"


def equal(matchers: Mapping[str, str]) -> tuple[Matcher, ...]:
    """Return the matchers that ask each label for exactly its value."""
    return tuple(Matcher(label, "=", value) for label, value in sorted(matchers.items()))


def one_of(label: str, values: Iterable[str]) -> Matcher:
    """Return the matcher of a label with one of these values."""
    return Matcher(label, "=~", literally(values))


def selector(metric: str, matchers: Sequence[Matcher] = ()) -> str:
    """Return `metric{matchers}`; several metrics are parted by "|"."""
    # Alternatives of a name: an exporter has one of them, so nothing counts twice.
    if "|" in metric:
        return selector("", (Matcher("__name__", "=~", metric), *matchers))
    inner = ",".join(str(matcher) for matcher in matchers)
    return f"{metric}{{{inner}}}" if inner else metric


def over(
    function: str, metric: str, matchers: Sequence[Matcher] = (), *, seconds: float | None = None
) -> str:
    """Return `function(metric{matchers}[range])`; the range is a slot unless `seconds` is given."""
    return f"{function}({selector(metric, matchers)}[{duration(seconds)}])"


def by(aggregation: str, labels: Sequence[str], inner: str) -> str:
    """Return `aggregation by (labels) (inner)`."""
    return f"{aggregation} by ({','.join(labels)}) ({inner})"


def raw(metric: str, matchers: Sequence[Matcher], *, seconds: float | None = None) -> str:
    """Return the range selector that gives raw samples."""
    return f"{selector(metric, matchers)}[{duration(seconds)}]"


def duration(seconds: float | None) -> str:
    """Return a PromQL duration; None is a slot."""
    if seconds is None or seconds == SLOT_SECONDS:
        return SLOT_RANGE
    whole = round(seconds)
    return f"{whole}s" if whole == seconds else f"{round(seconds * 1000)}ms"


class Instant(msgspec.Struct, Generic[Labels], gc=False):
    """One series of an instant query: (Unix seconds, value)."""

    metric: Labels
    value: tuple[float, float]


class Matrix(msgspec.Struct, Generic[Labels]):
    """One series of a range query or a range selector: its (Unix seconds, value) in order."""

    metric: Labels
    values: list[tuple[float, float]]


class _InstantText(msgspec.Struct, Generic[Labels], gc=False):
    metric: Labels
    value: tuple[float, str]


class _MatrixText(msgspec.Struct, Generic[Labels]):
    metric: Labels
    values: list[tuple[float, str]]


class _QueryResult(msgspec.Struct, Generic[Item], rename="camel"):
    result_type: str
    result: list[Item]


class Envelope(msgspec.Struct, Generic[Item], rename="camel"):
    """What surrounds every answer; `error` is the server's own text.

    `is_partial` is VictoriaMetrics' word for what Thanos says in a warning.
    """

    status: str
    data: Item | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    infos: list[str] | None = None
    is_partial: bool = False

    @property
    def notes(self) -> list[str]:
        """Everything the server remarked on its answer."""
        partial = ["the answer is partial"] if self.is_partial else []
        return [*(self.warnings or ()), *partial, *(self.infos or ())]


@lru_cache(maxsize=128)
def _decoder(item: Any) -> msgspec.json.Decoder[Envelope[_QueryResult[Any]]]:
    # Not strict: Prometheus writes sample values as strings, and here they become floats.
    return msgspec.json.Decoder(Envelope[_QueryResult[item]], strict=False)


def decode_instant(body: bytes, labels: type[Labels]) -> tuple[list[Instant[Labels]], list[str]]:
    """Return the series of an instant vector and the answer's remarks.

    Raises SourceUnavailable where the body was cut off, SourceRejected where it is no answer of
    the Prometheus API.
    """
    try:
        envelope = _decode(body, Instant[labels])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        # The fast path does not know "+Inf"; a server that sends one is read again, as text.
        text = _checked(body, _InstantText[labels])  # type: ignore[valid-type]
        items = [Instant(i.metric, (i.value[0], _number(i.value[1]))) for i in _items(text)]
        return items, text.notes
    return _items(envelope), envelope.notes


def decode_matrix(body: bytes, labels: type[Labels]) -> tuple[list[Matrix[Labels]], list[str]]:
    """Return the series of a matrix and the answer's remarks; raises as `decode_instant`."""
    try:
        envelope = _decode(body, Matrix[labels])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        text = _checked(body, _MatrixText[labels])  # type: ignore[valid-type]
        items = [Matrix(i.metric, [(t, _number(v)) for t, v in i.values]) for i in _items(text)]
        return items, text.notes
    return _items(envelope), envelope.notes


def decode_error(body: bytes) -> tuple[str, str] | None:
    """Return (error type, text) of an error answer; None where it is not one of Prometheus."""
    try:
        envelope = msgspec.json.decode(body, type=Envelope[Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return (envelope.error_type, envelope.error) if envelope.status == "error" else None


def _decode(body: bytes, item: Any) -> Envelope[_QueryResult[Any]]:
    try:
        return _decoder(item).decode(body)
    except msgspec.ValidationError:
        raise
    # The last of a body that is nested deeper than any answer is.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(body, str(error)) from error


def _checked(body: bytes, item: Any) -> Envelope[_QueryResult[Any]]:
    try:
        return _decode(body, item)
    except msgspec.ValidationError as error:
        raise SourceRejected(
            f"answers with JSON that is not of the Prometheus API ({error}); "
            "check that the URL is that of the API, without /api/v1"
        ) from error


def _unreadable(body: bytes, reason: str) -> SourceUnavailable | SourceRejected:
    # A body that was cut off may be whole at the next try; a page of HTML will not be JSON.
    cut = "truncated" in reason or not body.rstrip().endswith(b"}")
    if not body or (cut and body.lstrip()[:1] == b"{"):
        return SourceUnavailable(
            f"sent an answer that was cut off after {len(body)} bytes; "
            "a proxy's limit or time-out on the way may be the cause"
        )
    page = b"<html" in body[:2000].lower() or body.lstrip()[:1] == b"<"
    what = "an HTML page" if page else "something that is not JSON"
    return SourceRejected(
        f"answers with {what}; check that the URL is that of the API itself and not of a "
        "login page or a dashboard"
    )


def _items(envelope: Envelope[_QueryResult[Any]]) -> list[Any]:
    if envelope.status != "success" or envelope.data is None:
        detail = f": {envelope.error}" if envelope.error else ""
        raise SourceRejected(f"answers with status {envelope.status!r} and no data{detail}")
    return envelope.data.result


def check_counts(query: str, series: Sequence[Any]) -> None:
    """Raise SourceUnavailable where an answer to a query that counts samples has no such number.

    No sample makes Prometheus answer so: something between changes its answers, and what else it
    says is not to be trusted either.
    """
    values = [v for one in series for v in _values(one)]
    bad = [v for v in values if not 0.0 <= v <= _MOST_SAMPLES]
    if bad:
        what = "NaN" if bad[0] != bad[0] else f"{bad[0]:g}"
        raise SourceUnavailable(
            f"answers {what} for {len(bad):,} of {len(values):,} values of {query}, which counts "
            "samples: see what lies between the portal and Prometheus (a proxy, a query frontend)"
        )


def check_times(series: Sequence[Any], first: float, last: float) -> None:
    """Raise SourceUnavailable where an answer is of another time than first..last (Unix seconds).

    A cache that goes by the address alone gives one hour's answer for every hour: queries are in
    the bodies of requests. The first series tells, for all of an answer are of one time.
    """
    if not series:
        return
    one = series[0]
    points = [one.value] if isinstance(one, Instant) else one.values[:1] + one.values[-1:]
    if all(first - _OTHER_TIME_SECONDS <= at <= last + _OTHER_TIME_SECONDS for at, _ in points):
        return
    asked, answered = (f"{from_seconds(at):%Y-%m-%d %H:%M}" for at in (last, points[-1][0]))
    raise SourceUnavailable(
        f"answers what was at {answered} UTC where it was asked for {asked} UTC: see what lies "
        "between the portal and Prometheus (a cache that does not read bodies of requests)"
    )


def range_seconds(query: str) -> float:
    """Return for how long a range selector selects."""
    found = _RANGE.search(query)
    if found is None:
        raise ValueError(f"no range selector: {query}")
    return int(found[1]) * _UNITS[found[2]]


def _values(one: Any) -> list[float]:
    return [one.value[1]] if isinstance(one, Instant) else [value for _, value in one.values]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise SourceRejected(f"answers with a sample that is not a number: {text!r}") from error


def slot_of(at: float) -> int:
    """Return the slot that a query evaluated at `at` (a slot's end minus a millisecond) reads."""
    return round(at + END_MARGIN_SECONDS) - SLOT_SECONDS


def flat(series: list[Matrix[Labels]]) -> Iterator[tuple[int, Labels, float]]:
    """Yield (slot, labels, value) of every point of a range query over slots."""
    numbers: dict[float, int] = {}
    for one in series:
        labels = one.metric
        for at, value in one.values:
            # Few instants and many series: each instant is turned into its slot once.
            slot = numbers.get(at)
            if slot is None:
                slot = numbers[at] = slot_of(at)
            yield slot, labels, value
