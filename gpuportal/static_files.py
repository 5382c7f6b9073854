"""Which static files `collectstatic` leaves where they are."""

from django.contrib.staticfiles.apps import StaticFilesConfig


class PortalStaticFiles(StaticFilesConfig):
    """Django's app, without what npm packages bring and no page uses.

    Some of their style sheets name files that the packages do not have, which naming files by
    content takes for an error.
    """

    ignore_patterns = [
        *StaticFilesConfig.ignore_patterns,
        "tabler.css*",
        "tabler-*",
        "*.rtl.*",
        "ext",
        "htmx.js",
        "htmx.[ace]*.*",
    ]
