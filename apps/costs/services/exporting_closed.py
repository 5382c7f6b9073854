"""Files of closed months: kept as they were, and made anew where the bytes are lost.

They lie under the hash of the closing, so one that was changed on disk is taken for missing.
"""

import logging
from datetime import date, datetime
from functools import partial
from typing import BinaryIO, NamedTuple

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.costs.adapters import opened, removed, stored, write
from apps.costs.domain.files import FileFormat
from apps.costs.models import ClosedFile, ClosedPeriod
from apps.costs.selectors.files.cost_files import period_file
from apps.costs.selectors.files.exports import closed_folder, closed_path
from apps.costs.selectors.periods import closed_period

logger = logging.getLogger(__name__)


class ClosedCopy(NamedTuple):
    """A file of a closed month, open at its start; `as_closed`: it has the closing's hash."""

    binary: BinaryIO
    as_closed: bool


def closed_copy(period: ClosedPeriod, format_: FileFormat, *, now: datetime) -> ClosedCopy:
    """Return the file of a closed month as it was kept, or made anew.

    What was made anew is kept where its hash is that of the closing; whether it is, is noted. The
    caller closes it. Raises KeyError for a format that the month was not closed with, OSError.
    """
    sha = period.files[format_.value]
    kept = opened(closed_path(sha, format_), sha)
    if kept is not None:
        return ClosedCopy(kept, as_closed=True)
    return _made_anew(period, format_, sha, now)


def copy_of_month(
    month: date, format_: FileFormat, *, visibility: Visibility, now: datetime
) -> ClosedCopy | None:
    """Return the file of a month as it was closed; None where there is none for who asks.

    That is so of a month that is open, of a format that it was not closed with, and for who does
    not see everything: they get their own rows, made for them. The caller closes it. Raises
    OSError.
    """
    closed = closed_period(month) if visibility.everything else None
    if closed is None or format_.value not in closed.files:
        return None
    return closed_copy(closed, format_, now=now)


def keep_closed_files(*, now: datetime) -> int:
    """Keep the files of all closed months that are not kept yet; return how many are now.

    One that came out otherwise when it was made anew is not tried again. Raises OSError.
    """
    count = 0
    for period in ClosedPeriod.objects.filter(reopened_at__isnull=True).order_by("month"):
        differing = _differing(period)
        for name, sha in sorted(period.files.items()):
            format_ = FileFormat(name)
            if name in differing or closed_path(sha, format_).is_file():
                continue
            copy = _made_anew(period, format_, sha, now)
            copy.binary.close()
            count += copy.as_closed
    return count


def _differing(period: ClosedPeriod) -> set[str]:
    rows = ClosedFile.objects.filter(period=period, remade_at__isnull=False)
    found = rows.order_by("pk").values_list("format", "sha256", "remade_sha256")
    return {name for name, closed, remade in found if closed != remade}


def _made_anew(period: ClosedPeriod, format_: FileFormat, sha: str, now: datetime) -> ClosedCopy:
    file = period_file(period.month, format_, visibility=EVERYTHING)
    made = stored(
        closed_folder(),
        lambda found: closed_path(found, format_).name,
        partial(write, file, format_),
    )
    as_closed = made.sha256 == sha
    binary = made.path.open("rb")
    if not as_closed:
        # Open still, and gone with whoever reads it: it is not what was closed.
        removed(made.path)
        logger.warning("%s of %s was made anew and is not as closed", format_.value, period)
    first = as_closed and not ClosedFile.objects.filter(period=period, format=format_.value)
    noted = {} if first else {"remade_at": now, "remade_sha256": made.sha256}
    kept = {"size": made.size, "kept_at": now} if as_closed else {}
    ClosedFile.objects.update_or_create(
        period=period, format=format_.value, defaults={"sha256": sha, **noted, **kept}
    )
    return ClosedCopy(binary, as_closed)
