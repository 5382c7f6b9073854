from django.apps import AppConfig


class QuotaRequestsConfig(AppConfig):
    name = "apps.quota_requests"
