"""Whether the pods of a manifest would start on a cluster; nothing is sent to it."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property

from apps.accounts.permissions import Visibility
from apps.clusters.domain.kube_json import text
from apps.clusters.selectors import ActiveCluster, active_clusters
from apps.clusters.services import TierHistory
from apps.pending import selectors as pending
from apps.pending import services as pending_services
from apps.pending.domain.submission import PlannedStart, PlannedWork
from apps.planning.domain.manifests.claim_choices import claim_choices
from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.manifests.submissions import Manifest, Submission
from apps.planning.domain.measured_use import FamilyHistory
from apps.planning.domain.planned import ManifestPods, SubmissionReader
from apps.planning.domain.verdicts import Verdict, quotas_touched, verdict_of
from apps.planning.selectors import adds_nodes, family_history, priority_values
from apps.planning.services.preflight_alternatives import AlternativeRequests
from apps.planning.services.preflight_rows import (
    AlternativeRow,
    PreflightReport,
    PreflightResult,
)
from apps.planning.services.preflight_sizes import PodSize, SubmissionSizes, cost_of
from apps.planning.services.preflight_unchecked import unchecked_of, unchecked_of_start
from gpuportal.garbage import gc_paused

MOST_TEMPLATES = 100


class PreflightRefused(ValueError):
    """What cannot be answered, and why, in one sentence."""


# The objects of a large cluster, and indexes over them, are no part of a cycle.
@gc_paused()
def preflight_manifest(
    cluster: str, namespace: str, manifest: str, *, now: datetime, visibility: Visibility
) -> PreflightReport:
    """Return whether the pods of a manifest would start, by what was last seen of the cluster.

    Raises ManifestError for a manifest that cannot be read, LookupError for a namespace that is
    not there or not the reader's to see, and PreflightRefused where nothing is known.
    """
    read = read_manifest(manifest)
    team = pending.seen_namespaces(now, visibility).get((cluster, namespace))
    if team is None:
        raise LookupError(f"There is no namespace {namespace} on {cluster}, or it is not yours.")
    others = {one.namespace for one in read.submissions} - {"", namespace}
    if others:
        named = ", ".join(sorted(others)[:3])[:200]
        raise PreflightRefused(f"The manifest is for the namespace {named}, not {namespace}.")
    if sum(len(one.templates) for one in read.submissions) > MOST_TEMPLATES:
        raise PreflightRefused(f"The manifest has more than {MOST_TEMPLATES} kinds of pods.")
    # There is one: the namespace was found among those of active clusters.
    found = next(one for one in active_clusters() if one.name == cluster)
    # Metrics alone tell neither quotas nor queues nor what is free on a node.
    if found.kubernetes is None or found.watched_until is None:
        raise PreflightRefused(f"No watch follows {cluster}: its nodes and quotas are not known.")
    catalog = TierHistory.load()
    state = pending_services.current_state(found.pk, now=now, catalog=catalog)
    priorities = priority_values(found.pk, _priority_classes(read))
    choices = []
    for choice in claim_choices(read):
        asked = SubmissionReader(choice, state, namespace, catalog.resources, priorities).pods()
        sizes = SubmissionSizes(found, asked.state, catalog, now)
        choices.append((_ClusterAnswers(found, sizes, team, now, visibility), asked))
    return PreflightReport(
        results=tuple(
            result for at in range(len(read.submissions)) for result in _best_results(choices, at)
        ),
        as_of=min(now, found.watched_until),
        other_kinds=read.other_kinds,
    )


def _best_results(
    choices: Sequence[tuple["_ClusterAnswers", ManifestPods]], at: int
) -> list[PreflightResult]:
    """Return the answers for a submission with the first alternatives of claims that let it start.

    Where none does, those with the best verdict.
    """
    best: list[PreflightResult] = []
    for answers, asked in choices:
        found = list(answers.results(*asked.works[at], asked))
        if not best or _badness(found) < _badness(best):
            best = found
        if _badness(best) == 0:
            break
    return best


def _badness(results: Sequence[PreflightResult]) -> int:
    order = [Verdict.STARTS.value, Verdict.WAITS.value, Verdict.NEVER.value]
    return max(order.index(one.verdict) for one in results)


class _ClusterAnswers:
    """Answers about one namespace of a cluster."""

    def __init__(
        self,
        cluster: ActiveCluster,
        sizes: SubmissionSizes,
        team: str,
        now: datetime,
        visibility: Visibility,
    ) -> None:
        self._cluster = cluster
        self._sizes = sizes
        self._others = AlternativeRequests(sizes, team)
        self._families: dict[tuple[str, str], FamilyHistory | None] = {}
        self._now = now
        self._visibility = visibility

    @cached_property
    def _nodes_are_added(self) -> bool:
        return adds_nodes(self._cluster.pk)

    def results(
        self, one: Submission, work: PlannedWork, asked: ManifestPods
    ) -> Iterator[PreflightResult]:
        """Yield the answer for each kind of pods with GPUs; without any, for the first."""
        starts = self._sizes.diagnoser.starts(work)
        with_gpus = [
            at for at, part in enumerate(work.pods) if self._sizes.gpus(part) or part.pod.claims
        ]
        # A manifest without GPUs is answered too, by its first pods.
        for at in with_gpus or [0]:
            unchecked = [*unchecked_of(one, at, work.pods[at], asked)]
            if not self._sizes.is_namespace_checked(work):
                unchecked.append(
                    "Labels of the namespace are not checked; its queue selects by them."
                )
            unchecked += unchecked_of_start(starts[at], nodes_are_added=self._nodes_are_added)
            yield self._result(one, work, at, starts[at], tuple(unchecked))

    def _result(
        self,
        one: Submission,
        work: PlannedWork,
        at: int,
        start: PlannedStart,
        unchecked: tuple[str, ...],
    ) -> PreflightResult:
        part, why = work.pods[at], start.why
        quotas = quotas_touched(self._sizes.state, work)
        size = self._sizes.size(part)
        verdict = verdict_of(why, part, work, self._sizes.flavor_nodes, quotas)
        rows = pending.suggestion_rows(
            () if why is None else why.suggestions,
            self._cluster.name,
            at=self._now,
            visibility=self._visibility,
        )
        price, currency = self._sizes.price(size, part)
        total = size.each * start.count
        family = self._family(work.namespace, one)
        hours = None if family is None or family.run_seconds is None else family.run_seconds / 3600
        # Without a GPU, or without a start ever, a queue time means nothing.
        is_none = why is None and start.count == 0
        waits = size.tier and not is_none and verdict is not Verdict.NEVER
        return PreflightResult(
            kind=one.kind,
            name=one.name,
            role=one.templates[at].role,
            namespace=work.namespace,
            tier=size.tier,
            resource=size.resource,
            units=size.units,
            gpu_equivalents=total,
            pods=start.count,
            could_start=start.could,
            verdict=verdict.value,
            cause="" if why is None else why.cause.value,
            detail="" if why is None else why.detail,
            explanation=_explanation(start),
            expected_wait=self._sizes.wait(work, size, start.count, verdict) if waits else None,
            position=start.position if verdict is Verdict.WAITS else None,
            quotas=tuple(quotas),
            cost_per_hour=cost_of(price, total),
            cost_per_run=None if hours is None else cost_of(price, total * hours),
            currency=currency,
            family=family,
            change=rows[0] if rows else None,
            suggestions=tuple(rows),
            alternatives=()
            if is_none
            else self._alternatives(work, at, size, family, is_held=why is not None),
            unchecked=unchecked,
        )

    def _family(self, namespace: str, one: Submission) -> FamilyHistory | None:
        key = (one.kind, one.name)
        if key not in self._families:
            self._families[key] = family_history(self._cluster.pk, namespace, *key, now=self._now)
        return self._families[key]

    def _alternatives(
        self,
        work: PlannedWork,
        at: int,
        size: PodSize,
        family: FamilyHistory | None,
        *,
        is_held: bool,
    ) -> tuple[AlternativeRow, ...]:
        """Return cheaper requests that hold its use, and where it is held others that start."""
        use = None if family is None else family.use
        cheaper = self._others.holding(work, at, size, use)
        found = list(self._others.starting(work, at, size)) if is_held else []
        named = {(one.tier, one.resource, one.units) for one in cheaper}
        # What starts now and holds what was measured is said once, with the stronger reason.
        return (*cheaper, *(o for o in found if (o.tier, o.resource, o.units) not in named))


def _explanation(start: PlannedStart) -> str:
    if start.why is not None:
        return start.why.explanation
    return "It makes no pods, so it requests nothing." if start.count == 0 else ""


def _priority_classes(manifest: Manifest) -> set[str]:
    named = {
        text(template.spec.get("priorityClassName"))
        for one in manifest.submissions
        for template in one.templates
    }
    return named - {""}
