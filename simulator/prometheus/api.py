"""The Prometheus HTTP API over the lab's signals, in the form of Prometheus 2.42."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

from simulator.clock import Clock
from simulator.prometheus.evaluate import LOOKBACK_MS, Labels, Times, evaluate, raw_samples
from simulator.prometheus.promql import (
    BadQuery,
    Call,
    Expression,
    NotEvaluated,
    Selector,
    duration_ms,
    parse,
)
from simulator.prometheus.signals import Signals
from simulator.responses import Parameters, Response, json_response, one, text_response

VERSION = "2.42.0"
MOST_POINTS = 11_000
_LABEL_VALUES = re.compile(r"/api/v1/label/([a-zA-Z_][a-zA-Z0-9_]*)/values\Z")
Routes = Mapping[str, Callable[[Parameters], Response]]
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?\Z")


class PrometheusApi:
    """Answers by path; everything it does not serve is None, for others to answer."""

    def __init__(self, signals: Signals, clock: Clock) -> None:
        self._signals = signals
        self._clock = clock
        self._routes: Routes = {
            "/api/v1/query": self._query,
            "/api/v1/query_range": self._query_range,
            "/api/v1/series": self._series,
            "/api/v1/labels": self._labels,
            "/api/v1/metadata": self._metadata,
            "/api/v1/status/buildinfo": self._build_info,
            "/-/ready": lambda _: text_response("Prometheus Server is Ready.\n"),
            "/-/healthy": lambda _: text_response("Prometheus Server is Healthy.\n"),
        }

    def answer(self, path: str, parameters: Parameters) -> Response | None:
        """Return the answer to a GET or POST; None when the path is not Prometheus'."""
        route = self._routes.get(path)
        match = _LABEL_VALUES.match(path)
        if route is None and match is None:
            return None
        try:
            if route is not None:
                return route(parameters)
            return self._label_values(match[1] if match else "", parameters)
        except BadQuery as error:
            return _error(400, "bad_data", str(error))
        except NotEvaluated as error:
            return _error(422, "execution", str(error))

    def _query(self, parameters: Parameters) -> Response:
        expression = _expression(parameters)
        now_ms = self._clock.now_ms()
        at_ms = _time_ms(parameters, "time", now_ms)
        if isinstance(expression, Selector) and expression.range_ms is not None:
            raw = raw_samples(expression, at_ms, self._signals, until_ms=now_ms)
            return _success(
                "matrix",
                [
                    {"metric": dict(row.labels), "values": [_point(t, v) for t, v in row.samples]}
                    for row in raw
                ],
            )
        rows = evaluate(expression, Times(at_ms, 1, 1), self._signals, until_ms=now_ms)
        return _success(
            "vector",
            [{"metric": dict(row.labels), "value": _point(at_ms, row.values[0])} for row in rows],
        )

    def _query_range(self, parameters: Parameters) -> Response:
        expression = _expression(parameters)
        start_ms, end_ms = _required_time(parameters, "start"), _required_time(parameters, "end")
        step_ms = _step_ms(one(parameters, "step"))
        if end_ms < start_ms:
            raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
        count = (end_ms - start_ms) // step_ms + 1
        if count > MOST_POINTS:
            raise BadQuery(
                "exceeded maximum resolution of 11,000 points per timeseries. "
                "Try decreasing the query resolution (?step=XX)"
            )
        if isinstance(expression, Selector) and expression.range_ms is not None:
            raise BadQuery(
                'invalid parameter "query": invalid expression type "range vector" for range '
                "query, must be Scalar or instant Vector"
            )
        times = Times(start_ms, step_ms, count)
        rows = evaluate(expression, times, self._signals, until_ms=self._clock.now_ms())
        stamps = [_seconds(times.at(index)) for index in range(count)]
        return _success(
            "matrix",
            [
                {
                    "metric": dict(row.labels),
                    "values": [[stamps[i], number(v)] for i, v in sorted(row.values.items())],
                }
                for row in rows
            ],
        )

    def _series(self, parameters: Parameters) -> Response:
        if not parameters.get("match[]"):
            raise BadQuery("no match[] parameter provided")
        return _data([dict(labels) for labels in self._known(parameters)])

    def _labels(self, parameters: Parameters) -> Response:
        return _data(sorted({name for labels in self._known(parameters) for name, _ in labels}))

    def _label_values(self, label: str, parameters: Parameters) -> Response:
        if label == "__name__" and not parameters.get("match[]"):
            return _data(sorted(self._signals.metrics))
        found = {value for labels in self._known(parameters) for n, value in labels if n == label}
        return _data(sorted(found))

    def _known(self, parameters: Parameters) -> list[Labels]:
        """Return the label sets that `match[]` selects in start..end, default the last 5 min."""
        now_ms = self._clock.now_ms()
        end_ms = _time_ms(parameters, "end", now_ms)
        start_ms = _time_ms(parameters, "start", end_ms - LOOKBACK_MS)
        found: set[Labels] = set()
        for text in parameters.get("match[]") or ['{__name__=~".+"}']:
            selector = parse(text)
            if not isinstance(selector, Selector):
                raise BadQuery(f"invalid parameter match[]: not a series selector: {text}")
            present = Call("last_over_time", Selector(selector.matchers, max(1, end_ms - start_ms)))
            rows = evaluate(present, Times(end_ms, 1, 1), self._signals, until_ms=now_ms)
            found.update(row.labels for row in rows)
        return sorted(found)

    def _metadata(self, _: Parameters) -> Response:
        return _data(
            {
                name: [{"type": metric.type, "help": metric.help, "unit": ""}]
                for name, metric in sorted(self._signals.metrics.items())
            }
        )

    def _build_info(self, _: Parameters) -> Response:
        return _data(
            {
                "version": VERSION,
                "revision": "lab",
                "branch": "lab",
                "buildUser": "",
                "buildDate": "",
                "goVersion": "",
            }
        )


@lru_cache(maxsize=65_536)
def number(value: float) -> str:
    """Return a sample's value as Prometheus writes it: the shortest text, no exponent."""
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    return text if abs(value) < 1e-6 else format(Decimal(text), "f")


def _seconds(at_ms: int) -> float | int:
    return at_ms // 1000 if at_ms % 1000 == 0 else at_ms / 1000


def _point(at_ms: int, value: float) -> list[object]:
    return [_seconds(at_ms), number(value)]


def _expression(parameters: Parameters) -> Expression:
    text = one(parameters, "query")
    if not text.strip():
        raise BadQuery('invalid parameter "query": unknown position: parse error: no expression')
    try:
        return parse(text)
    except BadQuery as error:
        raise BadQuery(f'invalid parameter "query": {error}') from error


def _required_time(parameters: Parameters, name: str) -> int:
    if not one(parameters, name):
        raise BadQuery(f'invalid parameter "{name}": cannot parse "" to a valid timestamp')
    return _time_ms(parameters, name, 0)


def _time_ms(parameters: Parameters, name: str, default_ms: int) -> int:
    """Return a parameter's time: Unix seconds with decimals, or RFC 3339."""
    text = one(parameters, name)
    if not text:
        return default_ms
    if _NUMBER.match(text):
        return round(float(text) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadQuery(f'invalid parameter "{name}": cannot parse "{text}" to a valid timestamp')
    return round(moment.timestamp() * 1000)


def _step_ms(text: str) -> int:
    try:
        step = round(float(text) * 1000) if _NUMBER.match(text) else duration_ms(text)
    except BadQuery as error:
        raise BadQuery(
            f'invalid parameter "step": cannot parse "{text}" to a valid duration'
        ) from error
    if step <= 0:
        raise BadQuery(
            'invalid parameter "step": zero or negative query resolution step widths are not '
            "accepted. Try a positive integer"
        )
    return step


def _success(kind: str, result: object) -> Response:
    return _data({"resultType": kind, "result": result})


def _data(data: object) -> Response:
    return json_response({"status": "success", "data": data})


def _error(status: int, kind: str, text: str) -> Response:
    return json_response({"status": "error", "errorType": kind, "error": text}, status)
