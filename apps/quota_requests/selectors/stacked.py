"""Applied changes of the same quota key: which one lies on top, and what each goes back to."""

from django.db.models import QuerySet

from apps.quota_requests.domain.quantities import Quantity, quantity
from apps.quota_requests.domain.stacked_changes import Layer, beneath
from apps.quota_requests.domain.states import RequestState, TransitionDenied
from apps.quota_requests.models import ChangeRequest, same_key

_STANDING = (RequestState.APPLIED.value, RequestState.REVERTING.value)
_LEFT = (*_STANDING, RequestState.EXPIRED.value)
_MOST = 1000


class Superseded(TransitionDenied):
    """A later change of the same key was applied and stands; `later` is it."""

    def __init__(self, later: ChangeRequest) -> None:
        super().__init__(
            f"Request {later.pk} changed this quota since, to {later.after}: take that back first, "
            "or ask for another amount."
        )
        self.later = later


def goes_back_to(request: ChangeRequest) -> Quantity:
    """Return the amount that an applied change goes back to. One query."""
    before = quantity(request.before)
    if request.applied_at is None:
        return before
    rows = _same_key(request).filter(applied_at__lt=request.applied_at, state__in=_LEFT)
    found = rows.order_by("-applied_at", "-pk").values_list("before", "after", "state")[:_MOST]
    return beneath(
        before, (Layer(quantity(b), quantity(a), stands=s in _STANDING) for b, a, s in found)
    )


def check_on_top(request: ChangeRequest) -> None:
    """Raise Superseded where a later change stands on top of an applied one. One query.

    Raises TransitionDenied where that one is being taken back just now.
    """
    if request.applied_at is None:
        return
    rows = _same_key(request).filter(applied_at__gt=request.applied_at, state__in=_STANDING)
    later = rows.order_by("-applied_at", "-pk").first()
    if later is None:
        return
    if later.state == RequestState.REVERTING.value:
        raise TransitionDenied(f"Request {later.pk} for this quota is just being taken back.")
    raise Superseded(later)


def _same_key(request: ChangeRequest) -> QuerySet[ChangeRequest, ChangeRequest]:
    return ChangeRequest.objects.filter(same_key(request.ref)).exclude(pk=request.pk)
