from django.apps import AppConfig


class PendingConfig(AppConfig):
    name = "apps.pending"
