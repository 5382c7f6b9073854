"""`lab`: a stand-in cluster that serves the APIs of Prometheus and Kubernetes on loopback."""

import gc
import os
import signal
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from simulator.catalog import catalog_yaml
from simulator.clock import Clock, PinnedClock
from simulator.prometheus import openmetrics
from simulator.prometheus.signals import Signals
from simulator.scenarios.base import Scenario
from simulator.scenarios.registry import UnknownScenario, load, titles
from simulator.scenarios.trace import TraceError
from simulator.server import HOST, LabServer

PORT = 9095
ORIGIN = "GPUPORTAL_LAB_ORIGIN"
_MINUTE = 60


class Command(BaseCommand):
    help = "Serve, export or describe a stand-in cluster made from a scenario."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        serve = actions.add_parser(
            "serve",
            help="serve both APIs until stopped",
            description=(
                "Serve both APIs until stopped. The fault scenarios of `campus` can be "
                "changed through the Kubernetes API (PATCH, POST, PUT, DELETE): quotas, queues, "
                "nodes, pods, claims. Changes are kept in memory: after a restart they are gone. "
                "Metrics show them as they would be without changes."
            ),
        )
        _scenario_arguments(serve)
        _port_argument(serve)
        serve.add_argument("--now", type=_time, help="pin the clock to this time (RFC 3339)")
        export = actions.add_parser("export", help="write samples as OpenMetrics")
        _scenario_arguments(export)
        export.add_argument("--start", type=_time, required=True, help="first time (RFC 3339)")
        export.add_argument("--end", type=_time, required=True, help="end, not included")
        export.add_argument("--output", type=Path, required=True, help="file to write")
        export.add_argument(
            "--metrics", nargs="*", default=[], metavar="NAME", help="only these metrics"
        )
        export.add_argument("--now", type=_time, help="lay the trace as if it were this time")
        catalog = actions.add_parser("catalog", help="print the catalog that fits")
        _scenario_arguments(catalog)
        _port_argument(catalog)
        actions.add_parser("list", help="list the scenarios")

    def handle(self, *args: object, **options: Any) -> None:
        action = options["action"]
        if action == "list":
            for name, title in titles().items():
                self.stdout.write(f"{name}\t{title}")
        elif action == "catalog":
            url = f"http://{HOST}:{options['port']}"
            self.stdout.write(catalog_yaml(_scenario(options), url=url), ending="")
        elif action == "export":
            self._export(options)
        else:
            self._serve(options)

    def _serve(self, options: Mapping[str, Any]) -> None:
        scenario = _scenario(options)
        now = options["now"]
        clock = Clock() if now is None else PinnedClock(now * 1000)
        # Made before anybody asks, so that the first answer does not take seconds.
        scenario.epoch_at(clock.now_ms() // 1000)
        # Tens of thousands of pods that stay: the collector need not look at them at every query.
        gc.freeze()
        try:
            server = LabServer(scenario, clock, port=options["port"])
        except OSError as error:
            raise CommandError(
                f"cannot listen on {HOST}:{options['port']}: {error.strerror}. "
                "Choose another with --port."
            ) from error

        def stop(*_: object) -> None:
            # From another thread: shutdown() blocks until the loop that this signal interrupts
            # ends.
            Thread(target=server.stop).start()

        with server:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, stop)
            self.stdout.write(f"lab {scenario.name} on {server.url}")
            self.stdout.flush()
            server.serve_forever(poll_interval=0.2)

    def _export(self, options: Mapping[str, Any]) -> None:
        start, end = options["start"], options["end"]
        if end <= start:
            raise CommandError("--end must be after --start")
        signals = Signals(_scenario(options))
        unknown = sorted(set(options["metrics"]) - signals.metrics.keys())
        if unknown:
            raise CommandError(f"no such metric: {', '.join(unknown)}")
        written = openmetrics.sample_rows(
            signals, start * 1000, end * 1000, metrics=options["metrics"]
        )
        with options["output"].open("w", encoding="utf-8") as file:
            file.writelines(written)
        self.stderr.write(f"wrote {options['output']}")


def _scenario(options: Mapping[str, Any]) -> Scenario:
    now = options.get("now")
    try:
        return load(
            options["scenario"],
            now=int(time.time()) if now is None else now,
            seed=options["seed"],
            origin=_origin(),
            data=options["data"],
        )
    except (UnknownScenario, TraceError) as error:
        raise CommandError(str(error)) from error


def _origin() -> int | None:
    """Return the start of the trace that the environment sets."""
    text = os.environ.get(ORIGIN, "")
    if not text:
        return None
    try:
        origin = _time(text)
    except ArgumentTypeError as error:
        raise CommandError(f"{ORIGIN}: {error}") from error
    if origin % _MINUTE:
        raise CommandError(f"{ORIGIN}={text}: a whole minute is needed")
    return origin


def _time(text: str) -> int:
    """Return the Unix time of an RFC 3339 text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a time such as 2026-11-20T00:00:00Z") from error
    if moment.tzinfo is None:
        raise ArgumentTypeError(f"{text!r} has no time zone: end it with Z or an offset")
    return int(moment.astimezone(UTC).timestamp())


def _scenario_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--scenario", default="campus", help="see `lab list` (default campus)")
    parser.add_argument("--seed", type=int, default=1, help="other names and chances")
    parser.add_argument("--data", type=Path, help="another trace in the scenario's form")


def _port_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"default {PORT}; 0 takes a free one"
    )
