"""Can the sources be asked: Prometheus, the Kubernetes API, rights, clocks and the watch."""

from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta

from apps.clusters.domain.credentials import Credential
from apps.clusters.domain.resources import counted
from apps.operations.domain.findings import Finding
from apps.operations.domain.observations import (
    ANYTHING,
    DRA_GROUP,
    LEDGER,
    ApiObservations,
    ClusterObservations,
    Right,
    WriterRights,
)

LARGEST_SKEW_SECONDS = 30.0
WATCH_MAY_LAG = timedelta(minutes=10)
WRITER = "writer"
"""The subject of findings about the account that changes quotas."""

WATCH = "python manage.py watch    # a service of its own, see docs/operations.md; it never ends"


def check_connection(observed: ClusterObservations) -> Iterator[Finding]:
    """Yield what keeps the portal from asking, or from believing the time of an answer."""
    yield from _prometheus(observed)
    if observed.api is not None:
        yield from _api(observed, observed.api)
    api_credentials = observed.api.credentials if observed.api else ()
    yield from _ending(observed, (*observed.metrics.credentials, *api_credentials))


def check_writer(observed: ClusterObservations, writer: WriterRights) -> Iterator[Finding]:
    """Yield what is wrong with the account that changes quotas, as `of_writer` tells it apart."""
    yield from _unusable(observed, writer)
    yield from _unlimited(observed, writer)
    yield from _too_many(observed, WRITER, writer.excess)
    named = [one._replace(what=f"{WRITER}: {one.what}") for one in writer.credentials]
    yield from _ending(observed, named)


def of_writer(code: str, subject: str) -> bool:
    """Say whether a finding is about the account that changes quotas."""
    # Rights and credentials are found of readers too: there the subject tells.
    return code.startswith("writer-") or subject == WRITER or subject.startswith(f"{WRITER}: ")


def _ending(observed: ClusterObservations, credentials: Iterable[Credential]) -> Iterator[Finding]:
    """Yield for each token and certificate that ends soon what to do before it does."""
    for credential in credentials:
        if credential.ends_soon(observed.now):
            over = credential.expires_at <= observed.now
            yield Finding(
                "credentials-ending",
                observed.cluster,
                credential.what,
                f"{_sentence(credential.what)[:-1]} {'ended' if over else 'ends'} "
                f"{credential.expires_at:%Y-%m-%d %H:%M} UTC. Without another one the portal is "
                "refused from then on.",
                "# replace it in the file or variable that the catalog names; no restart is "
                "needed.\n# A lasting token of Kubernetes: docs/operations.md, Rotating tokens\n"
                f"python manage.py doctor --cluster {observed.cluster}",
            )


def _prometheus(observed: ClusterObservations) -> Iterator[Finding]:
    trouble = observed.metrics.trouble
    again = f"python manage.py doctor --cluster {observed.cluster}"
    if trouble is not None and trouble.passing:
        yield observed.finding(
            "prometheus-unavailable",
            "",
            f"{_sentence(trouble.text)} Nothing is measured while that lasts; hours that are "
            "missed are collected later, as far back as Prometheus keeps samples.",
            "# from where the portal runs, with the url of the catalog:\n"
            f"curl --fail --max-time 10 PROMETHEUS_URL/api/v1/status/buildinfo\n{again}",
        )
    elif trouble is not None:
        yield observed.finding(
            "prometheus-rejected",
            "",
            f"{_sentence(trouble.text)} Every hour fails until that is put right.",
            "# in the catalog, then load it:\n"
            f"clusters:\n  - name: {observed.cluster}\n"
            "    prometheus: {url: PROMETHEUS_URL, bearer_token_env: NAME_OF_A_VARIABLE}\n"
            f"python manage.py load_catalog catalog.yaml\n{again}",
        )
    yield from _skew(observed)


def _skew(observed: ClusterObservations) -> Iterator[Finding]:
    answers = observed.metrics.answers
    skew = answers.skew_seconds if answers else None
    if skew is None or abs(skew) <= LARGEST_SKEW_SECONDS:
        return
    ahead = "ahead of" if skew > 0 else "behind"
    yield observed.finding(
        "clock-skew",
        "prometheus",
        f"The clock of Prometheus is {abs(skew):.0f} seconds {ahead} the portal's: hours are "
        "closed at the wrong time, and pods seem to start before or after their samples.",
        "timedatectl set-ntp true    # on the machine whose clock is wrong; `timedatectl` tells",
    )


def _api(observed: ClusterObservations, api: ApiObservations) -> Iterator[Finding]:
    trouble = api.trouble
    if trouble is not None:
        code = "api-unavailable" if trouble.passing else "api-rejected"
        yield observed.finding(
            code,
            "",
            f"{_sentence(trouble.text)} Meanwhile pods and nodes come from kube-state-metrics, "
            "and their GPU-hours are graded “from series”.",
            "kubectl --kubeconfig THE_KUBECONFIG_OF_THE_CATALOG get --raw /version\n"
            "kubectl apply --filename deploy/rbac-reader.yaml    # the account and its rights",
        )
    yield from _rights(observed, api)
    if api.writer is not None:
        yield from check_writer(observed, api.writer)
    yield from _too_many(observed, "reader", api.excess)
    # Where the API itself is away the watch cannot follow, and that is said already.
    if trouble is None:
        yield from _watch(observed, api)


def _watch(observed: ClusterObservations, api: ApiObservations) -> Iterator[Finding]:
    seen = api.watched_until
    if seen is None:
        yield observed.finding(
            "watch-not-running",
            "",
            "The catalog names the Kubernetes API, but `watch` has not followed it yet. Pods "
            "are known from kube-state-metrics only, and short ones may be missing.",
            WATCH,
        )
    elif observed.now - seen > WATCH_MAY_LAG:
        minutes = (observed.now - seen).total_seconds() / 60
        yield observed.finding(
            "watch-behind",
            "",
            f"The Kubernetes API was last followed {counted(round(minutes), 'minute')} ago: what "
            "happened since is taken from kube-state-metrics.",
            f"# is it running, and what does its log say of {observed.cluster}?\n{WATCH}",
            since=seen,
        )


def _rights(observed: ClusterObservations, api: ApiObservations) -> Iterator[Finding]:
    """Yield one finding for what must be read, one for owners, one for DRA where it is used."""
    # One finding for each consequence, as each has a manifest of its own.
    dra = [right for right in api.denied if right.group == DRA_GROUP]
    needed = [r for r in api.denied if (r.group, r.resource) in LEDGER]
    owners = [right for right in api.denied if right not in dra and right not in needed]
    if needed:
        yield observed.finding(
            "rbac-missing",
            "",
            f"The portal's account may not {_words(needed)}: the pod ledger of this cluster cannot "
            "be kept.",
            _grant(needed),
        )
    if owners:
        yield observed.finding(
            "owners-unreadable",
            "",
            f"The portal's account may not {_words(owners)}: pods of these kinds are shown under "
            "the nearest controller that can be read, and a retried Job counts as several.",
            _grant(owners),
        )
    if api.unexplained:
        yield observed.finding(
            "waiting-unreadable",
            "",
            f"The portal's account may not {_words(list(api.unexplained))}. Causes of pending "
            "work are found from the rest, and work blocked at admission is not seen. Ceilings of "
            "autoscalers are shown as far as they can be read.",
            _grant(list(api.unexplained)),
        )
    if dra and any(rule.device_classes for rule in observed.rules):
        tiers = [rule.tier for rule in observed.rules if rule.device_classes]
        yield observed.finding(
            "slices-unreadable",
            "",
            f"The portal's account may not {_words(dra)}: {counted(len(tiers), 'tier')} with "
            "device classes can show neither capacity nor who holds it.",
            _grant(dra, "deploy/rbac-reader-claims.yaml"),
            places=tuple(tiers),
            tiers=tuple(tiers),
        )


def _unusable(observed: ClusterObservations, writer: WriterRights) -> Iterator[Finding]:
    """Yield what keeps approved changes from being carried out."""
    manifest = "deploy/rbac-quota-writer.yaml"
    if writer.trouble is not None:
        yield observed.finding(
            "writer-rejected",
            "",
            f"{_sentence(writer.trouble.text)} Until the account of `kubernetes.writer` can be "
            "used, approved changes of quotas are not carried out.",
            f"kubectl apply --filename {manifest}    # the account and its rights\n"
            "# its kubeconfig or token: `kubernetes.writer` of the cluster in the catalog\n"
            f"python manage.py doctor --cluster {observed.cluster}",
        )
    if writer.denied:
        yield observed.finding(
            "writer-rights-missing",
            "",
            f"The account that changes quotas may not {_words(list(writer.denied))} in all "
            "namespaces: approved changes are carried out only where a RoleBinding of a namespace "
            "lets it, and fail elsewhere.",
            _grant(list(writer.denied), manifest),
        )


def _unlimited(observed: ClusterObservations, writer: WriterRights) -> Iterator[Finding]:
    """Yield that nothing holds the writer to GPU keys; silent where that was not checked."""
    # None was not checked, which says nothing of a policy.
    if writer.limited is not False:
        return
    policy = "deploy/kustomize/components/quota-writer/admission-policy.yaml"
    yield observed.finding(
        "writer-unlimited",
        "",
        "The API server would let the account that changes quotas write an annotation into a "
        "ResourceQuota or ClusterQueue. No ValidatingAdmissionPolicy limits it to amounts of GPU "
        "keys. With stolen credentials, an attacker could change any limit.",
        "# Kubernetes 1.30 or newer; where the account has another name than\n"
        "# gpuportal-quota-writer, write that into matchConditions:\n"
        f"kubectl apply --filename {policy}\n"
        f"python manage.py doctor --cluster {observed.cluster}",
    )


def _too_many(
    observed: ClusterObservations, account: str, excess: Collection[Right]
) -> Iterator[Finding]:
    """Yield what an account may do that the portal never does."""
    if not excess:
        return
    uses = "get and patch limits" if account == WRITER else "read"
    role = "quota-writer" if account == WRITER else "reader"
    # Right by right it would not be seen that it is all of them.
    may = "do everything" if ANYTHING in excess else _words(list(excess))
    yield observed.finding(
        "rights-too-many",
        account,
        f"The portal's {account} account may {may}. The portal does no more than {uses}. "
        "With stolen credentials, an attacker could do the rest.",
        "# which roles give it that, by its name (`kubectl auth whoami`):\n"
        "kubectl get clusterrolebindings,rolebindings --all-namespaces --output wide\n"
        f"kubectl apply --filename deploy/rbac-{role}.yaml"
        "    # an account with no more than is used\n"
        "# then name that account in the catalog",
    )


def _words(rights: list[Right]) -> str:
    return ", ".join(right.words for right in sorted(rights, key=lambda r: (r.resource, r.verb)))


def _grant(rights: list[Right], manifest: str = "deploy/rbac-reader.yaml") -> str:
    """Return the manifest that gives these rights, and the rules as they stand in a ClusterRole."""
    wanted: dict[tuple[str, str, str], set[str]] = {}
    for right in rights:
        wanted.setdefault((right.group, right.resource, right.name), set()).add(right.verb)
    lines = [
        f'  - {{apiGroups: ["{group}"], resources: [{resource}]'
        f"{f', resourceNames: [{name}]' if name else ''}, verbs: [{', '.join(sorted(v))}]}}"
        for (group, resource, name), v in sorted(wanted.items())
    ]
    return "\n".join(
        (
            f"kubectl apply --filename {manifest}",
            "# or, in the ClusterRole of the portal's account:",
            "rules:",
            *lines,
        )
    )


def _sentence(text: str) -> str:
    # Errors of clients come with a full stop and without one.
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
