"""All URLs: pages at the root, the API under /api/."""

from django.urls import include, path

handler400 = "apps.api.problems.bad_request"
handler500 = "apps.web.failures.server_error"
urlpatterns = [
    path("", include("apps.web.urls")),
    path("api/", include("apps.api.urls")),
]
