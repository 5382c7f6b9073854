"""The workloads of a team: which controller a pod of the trace belongs to."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from simulator import identity
from simulator.fleet import LINGER_SECONDS, Controller, Node, Pod
from simulator.scenarios.distributions import Signal
from simulator.scenarios.packing import Draft

_HOUR = 3600
_MODELS = (
    "resnet", "vit", "bert", "llama", "whisper", "yolo", "unet", "clip", "dlrm", "pointnet",
    "swin", "conformer",
)  # fmt: skip
_TRAINING = ("pretrain", "finetune", "sweep", "distill", "eval")
_SERVING = ("serve", "embed", "rerank")


class Counts(NamedTuple):
    """How many controllers of each kind there are."""

    jobs: int
    deployments: int
    cron_jobs: int


_USUAL = Counts(jobs=18, deployments=6, cron_jobs=4)


class Workloads(Struct, frozen=True):
    """A team's lasting controllers; Jobs of a CronJob come and go."""

    namespace: str
    jobs: tuple[Controller, ...]
    replica_sets: tuple[Controller, ...]
    cron_jobs: tuple[Controller, ...]
    lasting: tuple[Controller, ...] = field(default=())

    def pod(self, draft: Draft, seed: str, **template: Any) -> Pod:
        """Return the pod of a draft as its controller makes it: not bound to a node yet.

        `template` are fields of it that its controller says.
        """
        owner = self.owner(f"{seed}/{draft.family}", units=draft.units, created=draft.created)
        uid = identity.uid(seed, "pod", draft.number)
        return Pod(
            uid=uid,
            name=f"{owner.name}-{identity.suffix(5, uid)}",
            namespace=owner.namespace,
            owner=owner,
            units=draft.units,
            created=draft.created,
            deleted=draft.ended,
            **template,
        )

    def owner(self, seed: str, *, units: int, created: int) -> Controller:
        """Return the controller of a pod: large pods train, small ones often serve.

        `seed` is the pod's own. A Job of a CronJob is named for its hour, as the API does.
        """
        chance = identity.fraction(seed, "kind")
        if chance < (0.05 if units == 8 else 0.35):
            return self._one_of(self.replica_sets, seed)
        if chance < (0.15 if units == 8 else 0.45):
            return _hourly_job(self._one_of(self.cron_jobs, seed), created)
        return self._one_of(self.jobs, seed)

    def _one_of(self, controllers: tuple[Controller, ...], seed: str) -> Controller:
        # The square makes some workloads large and others small.
        place = int(identity.fraction(seed, "workload") ** 2 * len(controllers))
        return controllers[place]


def bound_pod(pod: Pod, draft: Draft, node: Node, signal: Signal, **others: Any) -> Pod:
    """Return the pod of a draft on its node: it starts soon after, and lingers after its end.

    `others` are further fields. To make a pod twice would be a fifth of the time of a scenario.
    """
    there: dict[str, Any] = {
        "bound": draft.bound,
        "started": draft.bound + 2 + identity.below(24, pod.uid, "start"),
        "finished": draft.ended,
        "deleted": draft.ended + LINGER_SECONDS,
        "node": node.name,
        "host_ip": node.ip,
        "devices": draft.devices,
        "activity": signal.activity,
        "memory_mib": signal.memory_mib,
        "power_watts": signal.power_watts,
    }
    return replace(pod, **there | others)


def team_workloads(
    seed: str, namespace: str, created: int, *, tag: str = "", counts: Counts = _USUAL
) -> Workloads:
    """Return the workloads of a namespace; the same seed gives the same names.

    `tag` ends every name, so that workloads of several kinds fit in one namespace.
    """

    def controller(kind: str, name: str, parent: Controller | None = None) -> Controller:
        uid = identity.uid(seed, kind, namespace, name)
        return Controller(kind, name, namespace, uid, created, parent=parent)

    def names(purposes: tuple[str, ...], count: int) -> list[str]:
        found = _names(seed, namespace, purposes, count)
        return [f"{name}-{tag}" if tag else name for name in found]

    jobs = [controller("Job", name) for name in names(_TRAINING, counts.jobs)]
    deployments = [controller("Deployment", name) for name in names(_SERVING, counts.deployments)]
    replica_sets = [
        controller("ReplicaSet", f"{d.name}-{identity.suffix(10, seed, d.uid)}", d)
        for d in deployments
    ]
    cron_jobs = [
        controller("CronJob", f"nightly-{name}") for name in names(_TRAINING[-1:], counts.cron_jobs)
    ]
    return Workloads(
        namespace=namespace,
        jobs=tuple(jobs),
        replica_sets=tuple(replica_sets),
        cron_jobs=tuple(cron_jobs),
        lasting=(*jobs, *deployments, *replica_sets, *cron_jobs),
    )


def _names(seed: str, namespace: str, purposes: tuple[str, ...], count: int) -> list[str]:
    """Return `count` different names of a model and a purpose, shuffled by the seed."""
    pairs = [f"{model}-{purpose}" for model in _MODELS for purpose in purposes]
    return sorted(pairs, key=lambda name: identity.fraction(seed, namespace, name))[:count]


def _hourly_job(cron_job: Controller, created: int) -> Controller:
    hour = created // _HOUR * _HOUR
    name = f"{cron_job.name}-{hour // 60}"
    uid = identity.uid(cron_job.uid, datetime.fromtimestamp(hour, UTC).isoformat())
    return Controller("Job", name, cron_job.namespace, uid, hour, parent=cron_job)
