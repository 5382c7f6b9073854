"""What pages say of an idle workload that somebody keeps."""

from datetime import timedelta
from zoneinfo import ZoneInfo

from apps.costs.selectors import Kept

_MOMENT = timedelta(microseconds=1)


def kept_words(kept: Kept | None, zone: ZoneInfo) -> str:
    """Return until which day it is kept, why and who said so; empty where nobody did.

    The day counts to its end: the answer is over at the midnight after it.
    """
    if kept is None:
        return ""
    last = (kept.until - _MOMENT).astimezone(zone)
    reason = kept.reason.rstrip(".")
    return f"Kept until {last:%a} {last.day} {last:%b %Y} because {reason} ({kept.person})."
