"""Record what a real Prometheus answers to each of the portal's queries.

Run `python -m tests.clusters.record_answers`; it writes `prometheus_answers/answers.json`.
"""

import json
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.window import Window, from_seconds
from tests.clusters.device_series import ACTIVITY, Held, device, exporter
from tests.clusters.kube_state_series import TrueNode, TruePod, owners, world
from tests.clusters.openmetrics import HOUR, ORIGIN, SLOT, Series, scrapes, series, write
from tests.clusters.scripted_prometheus import Answer, Asked, forwarded, scripted
from tests.real_prometheus import RealPrometheus

FILE = Path(__file__).parent / "prometheus_answers" / "answers.json"
CLUSTER = "small"
HOUR_WINDOW = Window.hour(from_seconds(ORIGIN))
_LATER = ORIGIN + HOUR + 300


_CHANGE = ORIGIN + 2413  # when the second GPU changes hands


def small() -> Iterator[Series]:
    """Yield a node with two GPUs, of which one changes hands, and its pods and quota."""
    more = chain(_owners(), _quota())
    nodes = [TrueNode("n1", gpus=2.0)]
    return chain(_gpus(), world(CLUSTER, _pods(), nodes, until=_LATER, more=more))


def _gpus() -> Iterator[Series]:
    target = exporter(CLUSTER, "n1")
    kept = [Held(ORIGIN, _LATER, "vision", "train-0", "main")]
    handed_on = [
        Held(ORIGIN, _CHANGE, "speech", "web-7d4b9-x2x2x", "main"),
        Held(_CHANGE, _LATER, "", "", ""),
    ]
    return chain(
        device(target, "GPU-1", kept, values={ACTIVITY: lambda _at: 0.95}),
        device(
            target, "GPU-2", handed_on, values={ACTIVITY: lambda at: 0.25 if at < _CHANGE else 0.75}
        ),
    )


def _pods() -> list[TruePod]:
    return [
        TruePod(
            "train-0",
            created=ORIGIN - 700,
            bound=ORIGIN - 690,
            started=ORIGIN - 650,
            owner=("StatefulSet", "train"),
        ),
        TruePod(
            "web-7d4b9-x2x2x",
            namespace="speech",
            created=ORIGIN - 90,
            bound=ORIGIN - 89,
            started=ORIGIN - 60,
            finished=float(_CHANGE),
            owner=("ReplicaSet", "web-7d4b9"),
        ),
        TruePod("waits", created=ORIGIN + 40, owner=("Job", "nightly-29")),
    ]


def _owners() -> Iterator[Series]:
    replica_sets = [("speech", "web-7d4b9", "Deployment", "web", "true")]
    jobs = [("vision", "nightly-29", "CronJob", "nightly", "true")]
    return chain(
        owners(replica_sets, "kube_replicaset_owner", "replicaset"),
        owners(jobs, "kube_job_owner", "job_name"),
    )


def _quota() -> Iterator[Series]:
    quota = {
        "namespace": "vision",
        "resourcequota": "gpus",
        "resource": "requests.nvidia.com/gpu",
    }
    for kind, value in (("hard", 4.0), ("used", 2.0)):
        times = scrapes(ORIGIN, _LATER)
        yield series("kube_resourcequota", quota | {"type": kind}, value, times)


def ask_everything(source: PrometheusSource) -> None:
    """Send every kind of query; raw samples first, for which the exporters are looked up then."""
    source.activity_samples(["GPU-2"], Window(from_seconds(ORIGIN + SLOT), HOUR_WINDOW.end))
    source.devices(HOUR_WINDOW)
    source.ledger(HOUR_WINDOW)
    source.quotas(HOUR_WINDOW)
    source.health()


def recorded_answers(real: RealPrometheus) -> list[dict[str, object]]:
    """Return every query with its answer, in an order that stays."""
    recorded: dict[str, dict[str, object]] = {}

    def forward(asked: Asked) -> Answer:
        body = forwarded(real.url, asked)
        recorded[key_of(asked)] = {
            "path": asked.path,
            "form": without_timeout(asked),
            "answer": json.loads(body),
        }
        return Answer(body)

    with scripted(forward) as server:
        catalog = {"url": server.url, "matchers": {"cluster": CLUSTER}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(catalog)))
        ask_everything(source)
        source.close()
    return [recorded[key] for key in sorted(recorded)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder) / "small.prom", small())
        with RealPrometheus.loaded(file) as real:
            answers = recorded_answers(real)
    FILE.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def key_of(asked: Asked) -> str:
    """Return what tells one query from another."""
    return json.dumps([asked.path, without_timeout(asked)], sort_keys=True)


def without_timeout(asked: Asked) -> dict[str, str]:
    return {name: value for name, value in asked.form.items() if name != "timeout"}


if __name__ == "__main__":
    main()
