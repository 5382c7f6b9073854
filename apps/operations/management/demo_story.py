"""What people of the demo did before somebody looks: quota requests, and a closed month."""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import NamedTuple

from django.contrib.auth import get_user_model

from apps.accounts.permissions import EVERYTHING, NotAllowed
from apps.clusters.domain.calendar import day_of
from apps.clusters.selectors import report
from apps.costs.selectors import charging
from apps.costs.services import CloseRefused, close_period, keep_closed_files
from apps.operations.management.people import is_of_demo
from apps.quota_requests import services
from apps.quota_requests.domain.states import TransitionDenied
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.permissions import Actor, actor_of
from apps.quota_requests.selectors import request_detail, request_rows
from apps.quotas.selectors import QuotaRow, quota_rows

logger = logging.getLogger(__name__)

_GPU = "requests.nvidia.com/gpu"
_SHARED = "requests.nvidia.com/gpu.shared"
_MIG = "requests.nvidia.com/mig-3g.40gb"
_LONG_AGO = timedelta(days=20)
_LOOK_SECONDS, _MOST_LOOKS = 0.5, 60
"""So often is looked whether the worker, which may have an order first, is done with it."""
_REFUSED = (
    *(services.RequestRefused, services.Conflict, services.KeyTaken),
    *(TargetRefused, NotAllowed, TransitionDenied),
)


class _DemoRequest(NamedTuple):
    """A request of Ada's, and what became of it: the name of a method of `Story`."""

    namespace: str
    key: str
    more: int
    reason: str
    became: str


_WISHES = (
    # Of one limit only one request is open at a time: those that are over come first.
    _DemoRequest("vision-dev", _SHARED, 4, "Demonstrate the cameras at the open day.", "expired"),
    _DemoRequest("speech-dev", _MIG, 6, "Try a larger model on the weekend.", "rejected"),
    _DemoRequest("speech-dev", _GPU, 1, "One more notebook.", "withdrawn"),
    _DemoRequest("speech", _GPU, 8, "Pretraining of the next speech model.", "draft"),
    _DemoRequest("speech-lab", _GPU, 2, "Compare two decoders, for one day.", "reverted"),
    _DemoRequest("speech", _GPU, 2, "Decode the recordings of the archive.", "reverting"),
    _DemoRequest(
        "vision-apps", _GPU, 2, "Two more replicas of segment-serve for the release.", "applied"
    ),
    _DemoRequest(
        "speech-dev", _MIG, 2, "Students of the winter course begin in January.", "applying"
    ),
    _DemoRequest("speech-dev", _GPU, 2, "Two more notebooks for guests.", "failed"),
    _DemoRequest(
        "vision-dev", _MIG, 2, "Students of the autumn course begin on Monday.", "approved"
    ),
    _DemoRequest(
        "speech-apps", _GPU, 4, "Fine-tune the voices of three more languages.", "in_review"
    ),
    _DemoRequest("vision-dev", _SHARED, 8, "Label the images of the new cameras.", "changes_asked"),
    _DemoRequest("vision", _GPU, 4, "The conference deadline is on 5 December.", "submitted"),
)


class NotTheDemo(Exception):
    """The database has no accounts of the demo."""


class Story:
    """Ada asks for quota, the administrator decides."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._ada, self._admin = _actor("ada"), _actor("admin")

    def tell(self) -> int:
        """Make every request, unless there are any already; return how many were made."""
        if request_rows(self._admin, page_size=1).rows:
            return 0
        limits = self._limits()
        return sum(self._tell(wish, limits) for wish in _WISHES)

    def _limits(self) -> Mapping[tuple[str, str], QuotaRow]:
        rows = quota_rows(self._clock(), visibility=EVERYTHING, page_size=500).rows
        return {(row.namespace, row.key): row for row in rows if row.source == "ResourceQuota"}

    def _tell(self, wish: _DemoRequest, limits: Mapping[tuple[str, str], QuotaRow]) -> bool:
        row = limits.get((wish.namespace, wish.key))
        if row is None:
            return False
        try:
            pk = self._ask(wish, row)
            _BECAME[wish.became](self, pk)
        except _REFUSED as refusal:
            logger.info("the request for %s of %s: %s", wish.key, wish.namespace, refusal)
            return False
        return True

    def _ask(self, wish: _DemoRequest, row: QuotaRow) -> int:
        asked = services.RequestInput(
            ref=row.ref,
            before=f"{row.hard:g}",
            after=f"{row.hard + wish.more:g}",
            reason=wish.reason,
            until=_UNTIL[wish.became](self._clock()) if wish.became in _UNTIL else None,
        )
        return services.create(asked, by=self._ada, now=self._when(wish))

    def _when(self, wish: _DemoRequest) -> datetime:
        """Return when something is asked for: now, but for what nobody decided on in time."""
        return self._clock() - _LONG_AGO if wish.became == "expired" else self._clock()

    def _draft(self, pk: int) -> int:
        return 1

    def _submitted(self, pk: int) -> int:
        return services.submit(pk, by=self._ada, version=1, now=self._clock())

    def _in_review(self, pk: int) -> int:
        version = self._submitted(pk)
        return services.take(pk, by=self._admin, version=version, now=self._clock())

    def _withdrawn(self, pk: int) -> int:
        self._submitted(pk)
        return services.withdraw(pk, by=self._ada, now=self._clock())

    def _rejected(self, pk: int) -> int:
        self._in_review(pk)
        text = "Half of your devices of this profile stand idle: use these first."
        return services.reject(pk, text, by=self._admin, now=self._clock())

    def _changes_asked(self, pk: int) -> int:
        version = self._in_review(pk)
        text = "Four are left until January. Would these do?"
        return services.ask_changes(pk, text, by=self._admin, now=self._clock(), version=version)

    def _approved(self, pk: int) -> int:
        version = self._in_review(pk)
        return services.approve(pk, by=self._admin, version=version, now=self._clock())

    def _expired(self, pk: int) -> int:
        services.submit(pk, by=self._ada, version=1, now=self._clock() - _LONG_AGO)
        return services.expire(now=self._clock())

    def _applying(self, pk: int) -> int:
        """Leave it to a commit that nobody has made yet."""
        version = self._approved(pk)
        return services.start(pk, by=self._admin, version=version, now=self._clock(), gitops=True)

    def _failed(self, pk: int) -> int:
        version = self._applying(pk)
        services.give_up(pk, by=self._admin, now=self._clock())
        return version

    def _applied(self, pk: int) -> int:
        version = self._approved(pk)
        services.start(pk, by=self._admin, version=version, now=self._clock())
        return self._carried_out(pk)

    def _reverting(self, pk: int) -> int:
        """Take it back by a commit that nobody has made yet."""
        version = self._applied(pk)
        now = self._clock()
        return services.revert(pk, by=self._admin, version=version, now=now, gitops=True)

    def _reverted(self, pk: int) -> int:
        version = self._applied(pk)
        services.revert(pk, by=self._admin, version=version, now=self._clock())
        return self._carried_out(pk)

    def _carried_out(self, pk: int) -> int:
        """Carry an order out, or wait for the worker that does; return the request's version."""
        for _ in range(_MOST_LOOKS):
            request = request_detail(pk, self._admin, history=1)
            if request is None:
                raise services.UnknownRequest
            orders = [one.id for one in request.executions if not one.end]
            if not orders:
                return request.row.version
            for order in orders:
                if not services.carry_out(order, clock=self._clock, origin="demo"):
                    time.sleep(_LOOK_SECONDS)
        raise TransitionDenied("The order is still being carried out.")


_BECAME: Mapping[str, Callable[[Story, int], int]] = {
    "draft": Story._draft,
    "submitted": Story._submitted,
    "in_review": Story._in_review,
    "changes_asked": Story._changes_asked,
    "approved": Story._approved,
    "rejected": Story._rejected,
    "withdrawn": Story._withdrawn,
    "expired": Story._expired,
    "applying": Story._applying,
    "failed": Story._failed,
    "applied": Story._applied,
    "reverting": Story._reverting,
    "reverted": Story._reverted,
}
_UNTIL: Mapping[str, Callable[[datetime], datetime]] = {
    "applied": lambda now: now + timedelta(days=21),
    "expired": lambda now: now - timedelta(days=2),
}
"""When some are to end by themselves."""


def close_last_month(now: datetime) -> date | None:
    """Close the month before this one; return it, None where there is nothing to close.

    The simulated history begins within a month, so that it is closed without its first days.
    """
    today = day_of(now, report().zone)
    last = (today.replace(day=1) - timedelta(days=1)).replace(day=1)
    basis, policy = charging()
    try:
        close_period(
            last,
            by="admin",
            basis=basis,
            policy=policy,
            forced="The simulated history begins within this month.",
            now=now,
        )
        keep_closed_files(now=now)
    except CloseRefused as refusal:
        logger.info("%s", refusal)
        return None
    return last


def _actor(name: str) -> Actor:
    user = get_user_model().objects.filter(username=name).first()
    if user is None or not is_of_demo(user):
        raise NotTheDemo(f"there is no account {name!r} that the demo made")
    return actor_of(user, origin="demo")
