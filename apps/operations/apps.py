from collections.abc import Iterator

from django.apps import AppConfig
from prometheus_client.metrics_core import Metric

from gpuportal.telemetry.metrics_server import add_source


class OperationsConfig(AppConfig):
    name = "apps.operations"

    def ready(self) -> None:
        add_source(_portal_series)


def _portal_series() -> Iterator[Metric]:
    # The services of all rooms stand behind it: they are loaded at the first scrape.
    from apps.operations.services import portal_series

    yield from portal_series()
