"""`why NAMESPACE/NAME`: why a pod, or what a controller makes, waits, and what would help."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.permissions import EVERYTHING
from apps.clusters.selectors import report
from apps.operations.management import why_text
from apps.pending import selectors as pending
from apps.pending.selectors import EpisodeRow
from apps.usage.selectors import PodKnown, pods_called

_MOST = 10


class Command(BaseCommand):
    help = "Say why a pod (or the pods of a Job, a Deployment, a gang) waits, and what would help."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAMESPACE/NAME", help="of the pod or its controller")
        parser.add_argument("--cluster", default="", help="where several clusters have one")

    def handle(self, *_: Any, **options: Any) -> None:
        now = datetime.now(UTC)
        namespace, slash, name = options["name"].partition("/")
        if not (namespace and slash and name):
            raise CommandError(f"{options['name']!r} is not NAMESPACE/NAME: say vision/train-0")
        found = pending.find_waiting(
            namespace, name, at=now, visibility=EVERYTHING, cluster=options["cluster"]
        )
        if not found:
            self.stdout.write(self._never_waited(namespace, name, options["cluster"], now))
            return
        waiting = [one for one in found if one.row.until is None] or found[:1]
        answers = [self._answer(one, now) for one in waiting[:_MOST]]
        if len(waiting) > _MOST:
            answers.append(f"{len(waiting) - _MOST} more wait; the portal's page lists them.")
        self.stdout.write("\n\n".join(answers))

    def _answer(self, found: EpisodeRow, now: datetime) -> str:
        row, zone = found.row, report().zone
        if row.until is not None:
            return why_text.answer(found, now=now, zone=zone)
        typical = None
        if row.kind == "Pod" and row.resource:
            # Other things have no start of which a typical wait could be known.
            typical = pending.typical_wait(
                row.tier, row.resource, row.units, now, cluster=row.cluster
            )
        return why_text.answer(
            found,
            now=now,
            zone=zone,
            in_front=pending.blocking_teams(row, now, visibility=EVERYTHING),
            typical=typical,
        )

    def _never_waited(self, namespace: str, name: str, cluster: str, now: datetime) -> str:
        """Say what is known of something without an episode. Raises CommandError for nothing."""
        known = pods_called(namespace, name, at=now, cluster=cluster, visibility=EVERYTHING)
        if not known:
            where = f" on {cluster}" if cluster else ""
            raise CommandError(
                f"the portal knows no pod or controller {namespace}/{name}{where} that asked for "
                "GPU. Check the name; one made just now is there within half a minute, if "
                "`manage.py watch` runs (`manage.py doctor` says)."
            )
        return "\n".join(_state(pod) for pod in known)


def _state(pod: PodKnown) -> str:
    what = f"Pod {pod.cluster}/{pod.namespace}/{pod.name}"
    if pod.ended_at is not None:
        return f"{what} does not wait: it ended at {pod.ended_at:%Y-%m-%d %H:%M} UTC."
    if pod.started_at is not None:
        return f"{what} does not wait: it runs since {pod.started_at:%Y-%m-%d %H:%M} UTC."
    return f"{what} is known since {pod.created_at:%Y-%m-%d %H:%M} UTC and not looked at yet."
