"""WSGI entry point: `gunicorn gpuportal.wsgi`."""

import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application

from gpuportal.env import EnvironmentValueError
from gpuportal.telemetry.metrics_server import serve
from gpuportal.telemetry.tracing import start_traces

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")

# With this code gunicorn ends, where it would begin a worker again and again.
_CANNOT_BE_LOADED = 4

# Before the application is made, which takes its middleware from the settings as they are then.
try:
    start_traces(settings.OTLP_ENDPOINT, "web")
except (EnvironmentValueError, ImproperlyConfigured) as error:
    sys.stderr.write(f"{error}\n")
    sys.exit(_CANNOT_BE_LOADED)
application = get_wsgi_application()
serve(web=True)
