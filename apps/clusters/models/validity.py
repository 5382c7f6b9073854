"""Conditions on rows that hold from `valid_from` on until before `valid_to`, if that is set."""

from datetime import datetime

from django.db.models import Q

from apps.clusters.domain.window import Window


def holds_after(at: datetime, prefix: str = "") -> Q:
    """Return what rows meet that go on to hold after `at`; they may begin later."""
    return Q(**{f"{prefix}valid_to__isnull": True}) | Q(**{f"{prefix}valid_to__gt": at})


def holds_at(at: datetime, prefix: str = "") -> Q:
    """Return what rows meet that hold at `at`."""
    return Q(**{f"{prefix}valid_from__lte": at}) & holds_after(at, prefix)


def holds_within(window: Window) -> Q:
    """Return what rows meet that hold at any time of a window."""
    return Q(valid_from__lt=window.end) & holds_after(window.start)
