"""WSGI entry point: `gunicorn gpuportal.wsgi`."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from gpuportal.telemetry.metrics_server import serve
from gpuportal.telemetry.tracing import start_traces

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")

# Before the application is made, which takes its middleware from the settings as they are then.
start_traces(settings.OTLP_ENDPOINT, "web")
application = get_wsgi_application()
serve(web=True)
