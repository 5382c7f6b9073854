"""The clusters of `exporter_series` in a real Prometheus, asked by name."""

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.ports import DeviceAnswer
from tests.clusters.openmetrics import ORIGIN
from tests.clusters.scripted_prometheus import Answer, Asked, forwarded, scripted

FIRST_HOUR = Window.hour(from_seconds(ORIGIN))


class Clusters:
    """Asks the made clusters by name; answers are kept."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: dict[tuple[str, Window], DeviceAnswer] = {}

    def source(self, name: str, url: str = "") -> PrometheusSource:
        entry = {"url": url or self._url, "matchers": {"cluster": name}}
        return PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))

    def devices(self, name: str, window: Window = FIRST_HOUR) -> DeviceAnswer:
        if (name, window) not in self._known:
            source = self.source(name)
            self._known[name, window] = source.devices(window)
            source.close()
        return self._known[name, window]

    def asked(self, name: str, window: Window = FIRST_HOUR) -> list[Asked]:
        """Return what is asked of the server for a window of devices."""
        with scripted(lambda asked: Answer(forwarded(self._url, asked))) as server:
            source = self.source(name, server.url)
            source.devices(window)
            source.close()
        return server.asked
