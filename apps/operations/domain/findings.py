"""What the doctor can find: a closed catalogue of kinds, and one finding of such a kind."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct


class Severity(StrEnum):
    """`error`: numbers are missing or wrong until somebody acts; `warning`: some are, or GPUs are
    lost; `note`: worth knowing, the numbers are right."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


SEVERITIES = tuple(Severity)


class FindingKind(NamedTuple):
    """A kind of finding.

    `public` ones speak of tiers, models and settings alone, so that everybody may read them; the
    others name namespaces, pods, servers or accounts.
    """

    title: str
    severity: Severity
    public: bool = False
    practice: bool = False

    @property
    def group(self) -> str:
        """Whether it is about the data, or about how the GPUs are set up and used."""
        return "practice" if self.practice else "data"


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

KINDS: dict[str, FindingKind] = {
    # The portal itself and its connections.
    "catalog-empty": FindingKind("No cluster is loaded", _E),
    "audit-broken": FindingKind("Audit was altered", _E),
    "beat-stopped": FindingKind("Beat does not run", _E),
    "tasks-overdue": FindingKind("Scheduled tasks are not carried out", _E),
    "work-overdue": FindingKind("Work is overdue", _E),
    "worker-silent": FindingKind("No worker takes from a queue", _E),
    "replica-unavailable": FindingKind("The database replica does not answer", _W),
    "replica-behind": FindingKind("The database replica is behind", _W),
    "prometheus-unavailable": FindingKind("Prometheus does not answer", _E),
    "prometheus-rejected": FindingKind("Prometheus refuses the portal", _E),
    "job-log-unavailable": FindingKind("The job log tells nothing", _E),
    "job-log-unreadable": FindingKind("The job log is incomplete", _W),
    "job-log-nodes": FindingKind("Jobs run on nodes that the catalog does not name", _E),
    "api-unavailable": FindingKind("The Kubernetes API does not answer", _E),
    "api-rejected": FindingKind("The Kubernetes API refuses the portal", _E),
    "credentials-ending": FindingKind("Credentials end soon", _W),
    "clock-skew": FindingKind("Clocks differ", _W),
    "rbac-missing": FindingKind("A right to read is missing", _E),
    "owners-unreadable": FindingKind("Controllers of pods cannot be read", _N),
    "waiting-unreadable": FindingKind("Causes of pending work cannot be read", _W),
    "slices-unreadable": FindingKind("DRA objects cannot be read", _E),
    "writer-rejected": FindingKind("The account that changes quotas cannot be used", _W),
    "writer-rights-missing": FindingKind("A right to change quotas is missing", _W),
    "writer-unlimited": FindingKind("No policy limits the account that changes quotas", _W),
    "rights-too-many": FindingKind("An account of the portal may do too much", _W),
    "watch-not-running": FindingKind("The Kubernetes API is not watched", _E),
    "watch-behind": FindingKind("The watch is behind", _E),
    # Hours and coverage.
    "collection-behind": FindingKind("Hours are not collected", _E, public=True),
    "hours-failed": FindingKind("Hours failed", _E),
    "hours-partial": FindingKind("Hours are partial", _W),
    "coverage-low": FindingKind("Running pods have no metrics", _W, public=True),
    "interval-differs": FindingKind(
        "Another scrape interval than the catalog says", _N, public=True
    ),
    # Exporters.
    "no-device-metrics": FindingKind("No GPU metrics", _E, public=True),
    "no-activity-metric": FindingKind("No activity metric of a GPU model", _E, public=True),
    "no-profiling-metric": FindingKind("Only the coarse utilization is exported", _N, public=True),
    "no-memory-metric": FindingKind("GPU memory is not exported", _N, public=True),
    "no-energy-metric": FindingKind("GPU energy is not exported", _N, public=True),
    "no-pod-labels": FindingKind("GPU metrics name no pods", _W, public=True),
    "label-forms-mixed": FindingKind("Workloads are named in two ways", _N, public=True),
    "host-labels-mixed": FindingKind("Nodes are named in two ways", _N, public=True),
    "scraped-twice": FindingKind("GPUs are scraped more than once", _N, public=True),
    "units-rescaled": FindingKind("Utilization has another unit", _N, public=True),
    "stuck-counter": FindingKind("A profiling counter stands at zero", _W, public=True),
    "shared-unmapped": FindingKind("The renamed resource is not mapped to pods", _W, public=True),
    "virtual-gpus-off": FindingKind("Pods on one GPU are not told apart", _W, public=True),
    "process-values-zero": FindingKind("Processes are not matched to pods", _W, public=True),
    "dra-labels-missing": FindingKind("GPUs of claims name no pods", _W, public=True),
    "activity-unattributed": FindingKind("GPUs are active without a pod", _W, public=True),
    "exporter-changed": FindingKind("The exporter shows itself otherwise", _N, public=True),
    "vendor-limits": FindingKind("What an exporter cannot show", _N, public=True),
    # kube-state-metrics.
    "kube-state-missing": FindingKind("kube-state-metrics is missing", _W, public=True),
    "node-labels-missing": FindingKind("kube-state-metrics shows no node labels", _W, public=True),
    "kube-state-duplicated": FindingKind(
        "kube-state-metrics is scraped more than once", _N, public=True
    ),
    "series-of-several-clusters": FindingKind("Series are of several clusters", _E, public=True),
    # The catalog against the cluster.
    "tier-matches-nothing": FindingKind("A tier matches nothing", _W, public=True),
    "gpus-unmatched": FindingKind("GPUs belong to no tier", _W, public=True),
    "sharing-differs": FindingKind("A tier says another sharing than its nodes", _W, public=True),
    "namespaces-unassigned": FindingKind("Namespaces belong to no team", _N),
    # Practices.
    "quota-counts-nothing": FindingKind("A quota key limits nothing", _W, practice=True),
    "namespaces-without-quota": FindingKind("GPU namespaces have no GPU quota", _N, practice=True),
    "shared-not-renamed": FindingKind(
        "Shared GPUs look like whole ones", _W, public=True, practice=True
    ),
    "shared-units-above-one": FindingKind(
        "Pods request several units of a shared GPU", _W, practice=True
    ),
    "nodes-without-taint": FindingKind("GPU nodes take any pod", _N, public=True, practice=True),
    "gangs-on-shared": FindingKind("Multi-GPU work runs on shared GPUs", _W, practice=True),
    "replicas-under-pressure": FindingKind(
        "Many pods share a GPU whose memory is full", _W, public=True, practice=True
    ),
    "mig-outside-catalog": FindingKind(
        "MIG sizes belong to no tier", _W, public=True, practice=True
    ),
    "slices-stranded": FindingKind("MIG slices are stranded", _N, public=True, practice=True),
    "mig-reconfiguring": FindingKind(
        "A MIG configuration is under way", _N, public=True, practice=True
    ),
    "mig-failed": FindingKind("A MIG configuration failed", _W, public=True, practice=True),
    "interconnect-mixed": FindingKind("A tier mixes interconnects", _W, public=True, practice=True),
    "topology-manager-off": FindingKind(
        "Multi-GPU nodes do not align devices", _N, public=True, practice=True
    ),
    "gangs-without-scheduler": FindingKind("Gangs start pod by pod", _W, practice=True),
    "node-unreliable": FindingKind("Work fails too often on a node", _W, practice=True),
    "gpu-unreliable": FindingKind("Work fails too often on a GPU", _W, practice=True),
    "gpu-broken": FindingKind("A GPU is to be reset or replaced", _W, practice=True),
    "team-not-allowed": FindingKind("A team uses a tier that is not for it", _W, practice=True),
    "free-unreachable": FindingKind(
        "Free GPUs cannot be reached for want of CPU or memory", _W, public=True, practice=True
    ),
}

MOST_PLACES = 20


class Finding(Struct, frozen=True):
    """Something that is wrong, or better done otherwise, with what to do.

    `cluster` is empty for the portal itself. `subject` tells findings of one kind apart and stays
    the same for as long as the cause does. `what` is a sentence with the numbers of here; of
    public kinds it names no node, namespace, pod or server: those are `places`. `fix` is what to
    type or to write, line by line. `pods` and `gpu_hours` say what it costs or risks here, None
    where that cannot be said. `since` is when it began, as far as the sources tell. `tiers` are
    those that it is about, beside those of nodes among its places.
    """

    code: str
    cluster: str
    subject: str
    what: str
    fix: str
    pods: int | None = None
    gpu_hours: float | None = None
    places: tuple[str, ...] = ()
    since: datetime | None = None
    tiers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.code not in KINDS:
            raise ValueError(f"{self.code!r} is no kind of finding")

    @property
    def kind(self) -> FindingKind:
        return KINDS[self.code]

    @property
    def severity(self) -> Severity:
        return self.kind.severity

    @property
    def title(self) -> str:
        return self.kind.title

    @property
    def more(self) -> str:
        """The anchor of its section in docs/how-to/doctor.md."""
        return self.code

    def document(self) -> dict[str, Any]:
        """Return it as JSON shows it; the keys are a contract with scripts."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "group": self.kind.group,
            "title": self.title,
            "cluster": self.cluster or None,
            "subject": self.subject or None,
            "what": self.what,
            "cost": {"pods": self.pods, "gpu_hours": _rounded(self.gpu_hours)},
            "fix": self.fix,
            "places": list(self.places),
            "tiers": list(self.tiers),
            "since": self.since.isoformat() if self.since else None,
            "more": f"docs/how-to/doctor.md#{self.more}",
        }


def _rounded(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 3)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with errors first, what concerns the data before practices, then the
    dearest; the same findings always in the same order."""
    return sorted(
        findings,
        key=lambda f: (
            SEVERITIES.index(f.severity),
            f.kind.practice,
            -(f.gpu_hours or 0.0),
            -(f.pods or 0),
            f.cluster,
            f.code,
            f.subject,
        ),
    )


def some(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in order, each once, and of many the first and how many there are more."""
    each = sorted(set(names))
    more = len(each) - MOST_PLACES
    return (*each[:MOST_PLACES], f"and {more} more") if more > 0 else tuple(each)
