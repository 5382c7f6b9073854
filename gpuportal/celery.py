"""The Celery application: `celery -A gpuportal worker` and `celery -A gpuportal beat`."""

import os
import sys
import tempfile

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")
# `migrate` and `manage.py check` make Django's checks. They load every page and answer of the API:
# 30 MB, in each worker, for nothing.
os.environ.setdefault("CELERY_SKIP_CHECKS", "yes")
if "worker" in sys.argv[1:] and os.environ.get("GPUPORTAL_METRICS_PORT"):
    # Before the first metric is made: a worker forks, and its parent answers for its children.
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="gpuportal-metrics-")

app = Celery("gpuportal")
app.config_from_object("django.conf:settings", namespace="CELERY")
if "beat" not in sys.argv[1:]:
    # Beat sends tasks by their names, and needs none of the code behind them.
    app.autodiscover_tasks()

from gpuportal.telemetry import tasks  # noqa: E402, F401 - makes metrics, and connects itself
