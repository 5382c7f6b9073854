"""The demo: the accounts of who signs in, and what they did before somebody looks."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser

from apps.accounts.domain.identity import ActingParty
from apps.accounts.permissions import EVERYTHING, NotAllowed
from apps.accounts.selectors import open_teams
from apps.accounts.selectors import people as person_rows
from apps.accounts.services import Manager, give_place
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.selectors import AlertFilters, alert_of, alert_page
from apps.alerts.services import mark_read
from apps.clusters.domain.window import day_of, month_before
from apps.clusters.selectors import report
from apps.costs.selectors import charging
from apps.costs.services import CloseRefused, close_period, keep_closed_files
from apps.operations.domain.proposals import ProposalKind, ProposalRefused, ProposalTarget
from apps.operations.management.demo_directory import DEMO_MAIL, PASSWORD, PEOPLE, DemoPerson
from apps.operations.selectors import open_proposals, proposal_rows
from apps.operations.services import (
    gather_alerts,
    gather_requests,
    proposal_value,
    submit_proposal,
)
from apps.quota_requests import services
from apps.quota_requests.domain.states import OPEN, TransitionDenied
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.permissions import Actor, actor_of
from apps.quota_requests.selectors import request_detail, request_rows
from apps.quotas.selectors import QuotaRow, quota_rows

if TYPE_CHECKING:
    from apps.accounts.models import User


def is_of_demo(user: AbstractBaseUser) -> bool:
    """Say whether the demo made an account."""
    return str(getattr(user, "email", "")).endswith(DEMO_MAIL)


def ensure_people() -> list[DemoPerson]:
    """Make the demo's people, or give them their roles and password back; return these.

    An account of one of these names that the demo did not make stays as it is, and is left out.
    Ada's teams come with the scenario's catalog, which names its leads.
    """
    made = [person for person in PEOPLE if _ensure(person)]
    _give_places(made)
    return made


def _ensure(person: DemoPerson) -> bool:
    user, _created = get_user_model().objects.get_or_create(
        username=person.name, defaults={"email": person.mail}
    )
    if user.email != person.mail:
        return False
    user.role = person.role.value
    user.is_active = True
    # The check is a fast one; hashing anew at each start would sign everybody out.
    if not user.check_password(PASSWORD):
        user.set_password(PASSWORD)
    user.save()
    return True


def _give_places(people: Sequence[DemoPerson]) -> None:
    """Let the demo's administrator put people on their teams, where the scenario has them."""
    now, teams = datetime.now(UTC), set(open_teams())
    admin = get_user_model().objects.filter(email=f"admin{DEMO_MAIL}").first()
    rows = {row.username: row for row in person_rows(now=now)}
    for one in people:
        row = rows[one.name]
        given = {place.team for place in row.places}
        if admin is not None and one.team in teams - given:
            give_place(Manager(admin, "demo", now), row.pk, one.team, lead=False)


logger = logging.getLogger(__name__)

_GPU = "requests.nvidia.com/gpu"
_SHARED = "requests.nvidia.com/gpu.shared"
_MIG = "requests.nvidia.com/mig-3g.40gb"
_LONG_AGO = timedelta(days=20)
_POLL_SECONDS, _MOST_POLLS = 0.5, 60
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


_DEMO_REQUESTS = (
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
    _DemoRequest("speech-dev", _MIG, 4, "Exercises of the winter course, for a week.", "scheduled"),
    _DemoRequest("vision-dev", _SHARED, 8, "Label the images of the new cameras.", "changes_asked"),
    _DemoRequest("vision", _GPU, 4, "The conference deadline is on 5 December.", "submitted"),
)


class _DemoProposal(NamedTuple):
    """A proposal of Ada's: by how much an amount of the catalog is to grow."""

    target: ProposalTarget
    name: str
    more: int
    reason: str


_DEMO_PROPOSALS = (
    _DemoProposal(
        ProposalTarget(ProposalKind.ENTITLEMENT, "vision", "whole-a100"),
        *("gpus", 3, "Vision has held 48 GPUs on average since the release of segment-serve."),
    ),
    _DemoProposal(
        ProposalTarget(ProposalKind.BUDGET, "speech", "month gpu_hours"),
        *("amount", 4000, "Three more voices are trained from December on."),
    ),
)


class NotTheDemo(Exception):
    """The database has no accounts of the demo."""


class Story:
    """Ada requests quota and proposes changes of the catalog, the administrator decides."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._ada, self._admin = _actor("ada"), _actor("admin")

    def tell(self) -> int:
        """Make every request, unless there are any already; return how many were made."""
        if request_rows(self._admin, page_size=1).rows:
            return 0
        limits = self._limits()
        return sum(self._tell(wish, limits) for wish in _DEMO_REQUESTS)

    def propose(self) -> int:
        """Submit the proposals, unless there are any already; return how many were submitted."""
        if proposal_rows(visibility=EVERYTHING, page_size=1).rows:
            return 0
        return sum(map(self._propose, _DEMO_PROPOSALS))

    def _propose(self, wish: _DemoProposal) -> bool:
        now = self._clock()
        try:
            value = proposal_value(wish.target, now=now)
            grown = f"{float(value[wish.name]) + wish.more:g}"
            submit_proposal(
                _user("ada"),
                wish.target,
                {**value, wish.name: grown},
                reason=wish.reason,
                now=now,
                by=ActingParty("ada", "demo"),
            )
        except (ProposalRefused, NotAllowed, KeyError) as refusal:
            logger.info("the proposal for the %s: %s", wish.target, refusal)
            return False
        return True

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
            starts_at=_booked_start(self._clock()) if wish.became == "scheduled" else None,
        )
        return services.create(asked, by=self._ada, now=self._when(wish))

    def _when(self, wish: _DemoRequest) -> datetime:
        """Return when a request is submitted: now, or earlier for one that is to expire."""
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
        """Leave it to a commit that was not made yet."""
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
        """Take it back by a commit that was not made yet."""
        version = self._applied(pk)
        now = self._clock()
        return services.revert(pk, by=self._admin, version=version, now=now, gitops=True)

    def _reverted(self, pk: int) -> int:
        version = self._applied(pk)
        services.revert(pk, by=self._admin, version=version, now=self._clock())
        return self._carried_out(pk)

    def _carried_out(self, pk: int) -> int:
        """Carry an order out, or wait for the worker that does; return the request's version."""
        for _ in range(_MOST_POLLS):
            request = request_detail(pk, self._admin, history=1)
            if request is None:
                raise services.UnknownRequest
            orders = [one.id for one in request.executions if not one.end]
            if not orders:
                return request.row.version
            for order in orders:
                if not services.carry_out(order, clock=self._clock, origin="demo"):
                    time.sleep(_POLL_SECONDS)
        raise TransitionDenied("The order is still being carried out.")


_BECAME: Mapping[str, Callable[[Story, int], int]] = {
    "draft": Story._draft,
    "submitted": Story._submitted,
    "in_review": Story._in_review,
    "changes_asked": Story._changes_asked,
    "approved": Story._approved,
    # An approved booking is scheduled until its start.
    "scheduled": Story._approved,
    "rejected": Story._rejected,
    "withdrawn": Story._withdrawn,
    "expired": Story._expired,
    "applying": Story._applying,
    "failed": Story._failed,
    "applied": Story._applied,
    "reverting": Story._reverting,
    "reverted": Story._reverted,
}


def _booked_start(now: datetime) -> datetime:
    """Return the start of the booking: a whole hour five days ahead."""
    return now.replace(minute=0, second=0, microsecond=0) + timedelta(days=5)


_UNTIL: Mapping[str, Callable[[datetime], datetime]] = {
    "applied": lambda now: now + timedelta(days=21),
    "expired": lambda now: now - timedelta(days=2),
    "scheduled": lambda now: _booked_start(now) + timedelta(days=7),
}
"""When some are to end by themselves."""


def close_last_month(now: datetime) -> date | None:
    """Close the month before this one; return it, None where there is nothing to close.

    The simulated history begins within a month, so that it is closed without its first days.
    """
    today = day_of(now, report().zone)
    last = month_before(today)
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


def read_what_is_over(now: datetime) -> int:
    """Tell of the requests of the demo; return how many are unread, those that still go on.

    Its people made what is over themselves: they have read it.
    """
    gather_alerts(now=now, sources={"requests": gather_requests})
    everybody = get_user_model().objects.order_by("pk")
    people = [user for user in everybody if is_of_demo(user)]
    goes_on = {
        f"request:{row.id}" for row in request_rows(_actor("admin")).rows if row.state in OPEN
    } | {f"proposal:{row.id}" for row in open_proposals(visibility=EVERYTHING)}
    rows, _ = alert_page(
        visibility=EVERYTHING, filters=AlertFilters([AlertKind.REQUEST]), page_size=500
    )
    # The newest last, so that it is the one that stays.
    latest = {row.subject: row.id for row in reversed(rows)}
    over = [latest[subject] for subject in sorted(latest.keys() - goes_on)]
    for alert in filter(None, (alert_of(pk, visibility=EVERYTHING) for pk in over)):
        for user in people:
            mark_read(user, alert)
    return len(latest) - len(over)


def _actor(name: str) -> Actor:
    return actor_of(_user(name), origin="demo")


def _user(name: str) -> "User":
    user = get_user_model().objects.filter(username=name).first()
    if user is None or not is_of_demo(user):
        raise NotTheDemo(f"there is no account {name!r} that the demo made")
    return user
