"""What priority classes stand for, as pods of a cluster show it."""

from collections.abc import Collection

from apps.clusters.models import Pod


def priority_values(cluster_id: int, classes: Collection[str]) -> dict[str, int]:
    """Return the value by name of those classes that a pod which is not over has. One query.

    The newest pod tells: the value of a class does not change, but a class can be made anew.
    """
    if not classes:
        return {}
    pods = Pod.objects.filter(
        cluster_id=cluster_id,
        ended_at__isnull=True,
        priority_class__in=sorted(classes),
        priority__isnull=False,
    )
    found = pods.order_by("created_at", "pk").values_list("priority_class", "priority")
    # Oldest first, so that the newest pod has the last word.
    return {name: value for name, value in found if value is not None}
