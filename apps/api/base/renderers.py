"""Answers as JSON."""

from collections.abc import Mapping
from typing import Any

import orjson
from rest_framework.renderers import BaseRenderer


class ProblemOrJSONRenderer(BaseRenderer):
    """Render JSON with orjson; a problem document sets its own media type."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return `data` as UTF-8 bytes; an answer without data is empty."""
        return b"" if data is None else orjson.dumps(data, default=str)
