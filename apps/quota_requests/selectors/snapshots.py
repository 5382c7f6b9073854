"""What was frozen with a request, read from its columns; None before it is submitted."""

from typing import Any, TypeVar

import msgspec

from apps.quota_requests.domain.approval_policy import Ruling
from apps.quota_requests.domain.snapshots import Evidence, Preview
from apps.quota_requests.models import ChangeRequest

Snapshot = TypeVar("Snapshot", Evidence, Preview, Ruling)


def evidence_in(request: ChangeRequest) -> Evidence | None:
    return read(request.evidence, Evidence)


def preview_in(request: ChangeRequest) -> Preview | None:
    return read(request.preview, Preview)


def ruling_in(request: ChangeRequest) -> Ruling | None:
    return read(request.ruling, Ruling)


def read(kept: Any, kind: type[Snapshot]) -> Snapshot | None:
    """Return what `domain.frozen.stored` wrote, its texts as amounts again; None of nothing."""
    return msgspec.convert(kept, kind, strict=False) if kept else None
