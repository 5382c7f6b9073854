"""WSGI entry point: `gunicorn gpuportal.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

from gpuportal.metrics_server import serve

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")

application = get_wsgi_application()
serve(web=True)
