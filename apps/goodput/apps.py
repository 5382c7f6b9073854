from django.apps import AppConfig


class GoodputConfig(AppConfig):
    name = "apps.goodput"
