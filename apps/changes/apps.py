from django.apps import AppConfig


class ChangesConfig(AppConfig):
    name = "apps.changes"
