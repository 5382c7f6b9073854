"""All URLs: pages at the root, the API under /api/."""

from django.urls import include, path

urlpatterns = [
    path("", include("apps.web.urls")),
    path("api/", include("apps.api.urls")),
]
