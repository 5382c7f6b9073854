"""Sentry and OpenTelemetry, where variables ask for them; their packages are optional."""

from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

_SENTRY = "sentry-sdk"
_TRACES = (
    "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http "
    "opentelemetry-instrumentation-django opentelemetry-instrumentation-celery"
)


def _loaded(module: str, variable: str, packages: str) -> Any:
    """Return a module. Raises ImproperlyConfigured with what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"{variable} is set, and {error.name} is not installed: pip install {packages}, "
            "or take the variable out"
        ) from error


def start_sentry(dsn: str, environment: str) -> None:
    """Send errors to Sentry; no names, addresses or bodies of requests, no values of variables."""
    if dsn:
        sentry = _loaded("sentry_sdk", "GPUPORTAL_SENTRY_DSN", _SENTRY)
        sentry.init(
            dsn=dsn,
            environment=environment,
            send_default_pii=False,
            # Both are sent otherwise: passwords of new accounts, addresses of webhooks, tokens.
            max_request_body_size="never",
            include_local_variables=False,
        )


def start_traces(endpoint: str, service: str) -> None:
    """Send a trace of each request and task by OTLP over HTTP; once in each process.

    Its thread does not survive a fork: this is called in the process that does the work.
    """
    if not endpoint:
        return

    def load(module: str) -> Any:
        return _loaded(f"opentelemetry.{module}", "GPUPORTAL_OTLP_ENDPOINT", _TRACES)

    sdk, export = load("sdk.trace"), load("sdk.trace.export")
    exporter = load("exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/traces"
    )
    resource = load("sdk.resources").Resource.create({"service.name": f"gpuportal-{service}"})
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    load("trace").set_tracer_provider(provider)
    # Behind our own, which answer probes of any host: it checks the host.
    own = sum(name.startswith("gpuportal.") for name in settings.MIDDLEWARE)
    load("instrumentation.django").DjangoInstrumentor().instrument(middleware_position=own)
    load("instrumentation.celery").CeleryInstrumentor().instrument()
