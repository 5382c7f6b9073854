"""The trend of what quota keys use, summed by the database."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, ExpressionWrapper, F, FloatField, Sum, Value

from apps.clusters.models.sql import HourNumber
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.domain.trend import DAYS_BACK, TrendSums
from apps.quotas.models import QuotaKey, QuotaKeyHour

_FLOAT = FloatField()
_REF = ("source", "namespace", "name", "key", "cluster__name")


def trends(at: datetime, keys: Iterable[QuotaRef]) -> dict[QuotaRef, TrendSums]:
    """Return what the last seven days of these keys sum to.

    Two queries; keys that no hour has are left out.
    """
    wanted = set(keys)
    rows = QuotaKey.objects.filter(
        cluster__name__in={key.cluster for key in wanted},
        name__in={key.name for key in wanted},
        namespace__in={key.namespace for key in wanted},
    )
    found = rows.order_by("pk").values_list("pk", *_REF)
    ids = {pk: ref for pk, *names in found if (ref := QuotaRef(*names)) in wanted}
    sums = (
        _hours(at, list(ids))
        .order_by()
        .values_list("key_id")
        .annotate(
            n=Count("pk"),
            sum_x=Sum("x"),
            sum_y=Sum("y"),
            sum_xy=Sum(F("x") * F("y"), output_field=_FLOAT),
            sum_xx=Sum(F("x") * F("x"), output_field=_FLOAT),
        )
    )
    return {ids[pk]: TrendSums(*rest) for pk, *rest in sums}


def trend_hours(at: datetime, key: QuotaRef) -> list[tuple[datetime, float, float]]:
    """Return the hours that the trend of a key rests on: (hour, hours from `at`, units used).

    By time. One query.
    """
    ids = QuotaKey.objects.filter(**dict(zip(_REF, key, strict=True))).values("pk")
    return list(_hours(at, ids).order_by("hour", "pk").values_list("hour", "x", "y"))


def _hours(at: datetime, ids: Any) -> Any:
    """Return the hours of the last seven days of keys with what is known of their use."""
    since = at - timedelta(days=DAYS_BACK)
    x = ExpressionWrapper(HourNumber("hour") - Value(at.timestamp() / 3600.0, _FLOAT), _FLOAT)
    y = ExpressionWrapper(F("used") * Value(3600.0, _FLOAT) / F("seconds"), _FLOAT)
    hours = QuotaKeyHour.objects.filter(
        key_id__in=ids, hour__gte=since, hour__lt=at, used__isnull=False, seconds__gt=0
    )
    return hours.annotate(x=x, y=y)
