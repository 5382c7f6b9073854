from django.apps import AppConfig

from gpuportal.telemetry.metrics_server import add_source


class OperationsConfig(AppConfig):
    name = "apps.operations"

    def ready(self) -> None:
        from apps.operations.services import portal_series

        add_source(portal_series)
