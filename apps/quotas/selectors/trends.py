"""The trend of what quota keys use, summed by the database."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, ExpressionWrapper, F, FloatField, Func, Sum, Value

from apps.quotas.domain.saturation import KeyId
from apps.quotas.domain.trend import DAYS_BACK, TrendSums
from apps.quotas.models import QuotaKey, QuotaKeyHour

_FLOAT = FloatField()
_EPOCH_DAY = 2440587.5
KeyOf = tuple[int, KeyId]


class _HourNumber(Func):
    """Hours since 1970 as a float; one function for each row, for it is summed in four sums."""

    output_field = _FLOAT
    template = "(EXTRACT(EPOCH FROM %(expressions)s) / 3600.0)"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = f"((julianday(%(expressions)s) - {_EPOCH_DAY}) * 24.0)"
        return self.as_sql(compiler, connection, template=template, **extra)


def trends(at: datetime, keys: Iterable[KeyOf]) -> dict[KeyOf, TrendSums]:
    """Return what the last seven days of these keys (with their cluster's id) sum to.

    Two queries; keys that no hour has are left out.
    """
    wanted = set(keys)
    rows = QuotaKey.objects.filter(
        cluster_id__in={cluster for cluster, _ in wanted},
        name__in={key.name for _, key in wanted},
        namespace__in={key.namespace for _, key in wanted},
    )
    columns = ("pk", "cluster_id", "source", "namespace", "name", "key")
    ids = {
        pk: (cluster, KeyId(*rest))
        for pk, cluster, *rest in rows.order_by("pk").values_list(*columns)
        if (cluster, KeyId(*rest)) in wanted
    }
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


def trend_hours(at: datetime, cluster: str, key: KeyId) -> list[tuple[datetime, float, float]]:
    """Return the hours that the trend of a key rests on: (hour, hours from `at`, units used).

    By time. One query.
    """
    ids = QuotaKey.objects.filter(cluster__name=cluster, **key._asdict()).values("pk")
    return list(_hours(at, ids).order_by("hour", "pk").values_list("hour", "x", "y"))


def _hours(at: datetime, ids: Any) -> Any:
    """Return the hours of the last seven days of keys with what is known of their use."""
    since = at - timedelta(days=DAYS_BACK)
    x = ExpressionWrapper(_HourNumber("hour") - Value(at.timestamp() / 3600.0, _FLOAT), _FLOAT)
    y = ExpressionWrapper(F("used") * Value(3600.0, _FLOAT) / F("seconds"), _FLOAT)
    hours = QuotaKeyHour.objects.filter(
        key_id__in=ids, hour__gte=since, hour__lt=at, used__isnull=False, seconds__gt=0
    )
    return hours.annotate(x=x, y=y)
