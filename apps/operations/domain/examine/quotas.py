"""Do ResourceQuotas limit GPUs: keys that count nothing, and namespaces without any."""

from collections.abc import Iterator

from apps.clusters.domain.quantities import counted
from apps.clusters.domain.resources import is_gpu
from apps.operations.domain.findings import Finding, some
from apps.operations.domain.observations import ClusterLook, QuotaRow

_DRA_KEY = ".deviceclass.resource.k8s.io/devices"
_DRA_RESOURCE = "requests.deviceclass.resource.kubernetes.io/"


def check(look: ClusterLook) -> Iterator[Finding]:
    """Yield quota findings; silent where no quotas could be read."""
    if look.quotas is None:
        return
    inert = [row for row in look.quotas if counts_nothing(row.key)]
    for row in sorted(inert):
        yield _inert(look, row)
    yield from _without(look)


def counts_nothing(key: str) -> bool:
    """Say whether a GPU key of a quota is accepted and never counted (facts on ResourceQuota).

    No evaluator of Kubernetes matches an extended resource without `requests.`: neither its bare
    name nor `limits.`.
    """
    return is_gpu(key) or (key.startswith("limits.") and is_gpu(key.removeprefix("limits.")))


def limits_gpus(key: str) -> bool:
    """Say whether a key of a quota limits GPUs."""
    return (
        (key.startswith("requests.") and is_gpu(key.removeprefix("requests.")))
        or key.startswith(_DRA_RESOURCE)
        or key.endswith(_DRA_KEY)
    )


def _inert(look: ClusterLook, row: QuotaRow) -> Finding:
    held = [t for t in look.past.tenants if t.namespace == row.namespace]
    units = sum(tenant.units for tenant in held)
    right = f"requests.{row.key.removeprefix('limits.')}"
    hard = "?" if row.hard is None else f"{row.hard:g}"
    return Finding(
        "quota-counts-nothing",
        look.cluster,
        f"{row.namespace}/{row.quota} {row.key}",
        f"ResourceQuota {row.quota} in {row.namespace} sets {row.key} to {hard}. Kubernetes "
        f"accepts that key and never counts it: {counted(units, 'unit')} are held there now, and "
        "nothing would stop more.",
        f"# kubectl edit resourcequota {row.quota} --namespace {row.namespace}\n"
        f'spec: {{hard: {{{right}: "{hard}"}}}}    # in place of {row.key}',
        pods=len(held),
        places=(row.namespace,),
    )


def _without(look: ClusterLook) -> Iterator[Finding]:
    quotas = look.quotas or ()
    # Where no namespace has a GPU quota the cluster limits them elsewhere (Kueue), or not at all:
    # that is a choice, of which one line is enough.
    limited = {row.namespace for row in quotas if limits_gpus(row.key)}
    held = [group for group in look.past.groups if group.namespace not in limited]
    names = {group.namespace for group in held}
    if not names:
        return
    pods = sum(group.pods for group in held)
    resource = max(held, key=lambda group: group.pods).resource
    yield Finding(
        "namespaces-without-quota",
        look.cluster,
        "",
        f"{counted(len(names), 'namespace')} had {counted(pods, 'GPU pod')} in the last 30 days "
        "and no quota that limits GPUs: one of them can take all that is free.",
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpu, namespace: NAMESPACE}\n"
        f'spec: {{hard: {{requests.{resource}: "NUMBER"}}}}',
        pods=pods,
        places=some(names),
    )
