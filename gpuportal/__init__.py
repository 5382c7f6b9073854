"""The project package: settings, URLs and the Celery application."""

from gpuportal.celery import app as celery_app

__all__ = ["celery_app"]
