"""What the cluster itself says of a change: its value, a dry run, other owners, patch files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster
from apps.clusters.ports import ClusterSource, QuotaWriter, SourceRejected, SourceUnavailable
from apps.quota_requests.domain.execution.gitops import PatchFile, patch_file
from apps.quota_requests.domain.execution.kube_requests import object_path, read_request
from apps.quota_requests.domain.execution.outcomes import (
    Meaning,
    ServerStep,
    Then,
    meaning,
    said_once,
)
from apps.quota_requests.domain.execution.owners import OtherOwner, other_owners
from apps.quota_requests.domain.execution.patches import (
    Object,
    PatchRefused,
    ValueChanged,
    live_amount,
    locate,
    patch_for,
    uid_of,
)
from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.targets import QueueCell, Target
from apps.quota_requests.services.execution.api_calls import (
    BY_COMMIT_ONLY,
    KUEUE_GROUP,
    NoWriter,
    VersionUnknown,
    ask_for,
    is_gone,
    rehearse,
    served_version,
    version_in,
    writer_of,
)


@dataclass(frozen=True, slots=True)
class Checked:
    """What the cluster itself says: the live amount, a dry run, other owners, the patch files.

    `live` is None where it could not be read; `dry_run` is the sentence then, and
    `dry_run_passed` None. `dry_run_detail` has the words of servers and connections, which are
    for administrators. `api_version` is that under which the object was read, `uid` which of all
    of its name it was.
    """

    live: Quantity | None = None
    dry_run_passed: bool | None = None
    dry_run: str = ""
    owners: tuple[OtherOwner, ...] = ()
    patch_file: PatchFile | None = None
    revert_file: PatchFile | None = None
    dry_run_detail: str = ""
    api_version: str = ""
    uid: str = ""


def check(
    cluster: Cluster,
    target: Target,
    *,
    before: Quantity,
    after: Quantity,
    clients: ClusterClients | None = None,
) -> Checked:
    """Read the object and try the change without making it. Raises nothing."""
    why = NoWriter(BY_COMMIT_ONLY)
    if not settings.CHANGES_GITOPS_ONLY:
        try:
            with writer_of(cluster, clients) as writer:
                return _tried(writer, target, before, after)
        except VersionUnknown as unknown:
            return Checked(dry_run=f"No dry run: {unknown}")
        except NoWriter as missing:
            why = missing
    return _read_only(lambda: read_by_watcher(cluster, target, clients), why, target, before, after)


def _tried(writer: QuotaWriter, target: Target, before: Quantity, after: Quantity) -> Checked:
    version = served_version(writer, target)
    answer, live = ask_for(writer, read_request(target, version), target)
    read = meaning(answer, ServerStep.READ)
    if is_gone(answer) or read.then is not Then.GO_ON:
        return Checked(dry_run=f"No dry run: {said_once(read)}", dry_run_detail=read.detail)
    found = _examined(target, live, before, after)
    if found.dry_run_passed is False:
        return found
    patch = patch_for(target, live, reviewed=before, wanted=after)
    return _after_dry_run(found, rehearse(writer, target, patch, wanted=after, version=version))


def _after_dry_run(found: Checked, tried: Meaning) -> Checked:
    passed = {Then.GO_ON: True, Then.FAILED: False}.get(tried.then)
    words = said_once(tried)
    if passed:
        warned = ", with a warning" if tried.detail else ""
        words = f"The cluster would take the change{warned}."
    return replace(found, dry_run_passed=passed, dry_run=words, dry_run_detail=tried.detail)


def _examined(target: Target, live: Object, before: Quantity, after: Quantity) -> Checked:
    seen = Checked(
        live=live_amount(target, live),
        owners=other_owners(target, live),
        api_version=str(live.get("apiVersion") or ""),
        uid=uid_of(live),
    )
    try:
        file = patch_file(target, live, reviewed=before, wanted=after)
    except ValueChanged as changed:
        return replace(seen, live=changed.live, dry_run_passed=False, dry_run=str(changed))
    except PatchRefused as refused:
        return replace(seen, dry_run_passed=False, dry_run=str(refused))
    back = patch_file(target, _with(target, live, after), reviewed=after, wanted=before)
    return replace(seen, patch_file=file, revert_file=back)


def _with(target: Target, live: Object, after: Quantity) -> Object:
    """Return the object as it will be, for the file that takes the change back."""
    steps = locate(target, live).pointer.split("/")[1:]
    replaced: Object = _replaced(live, steps, after.text)
    return replaced


def _replaced(item: Any, steps: Sequence[str], value: str) -> Any:
    if not steps:
        return value
    name = steps[0].replace("~1", "/").replace("~0", "~")
    if isinstance(item, list):
        place = int(name)
        return [_replaced(one, steps[1:], value) if n == place else one
                for n, one in enumerate(item)]  # fmt: skip
    return {**item, name: _replaced(item[name], steps[1:], value)}


def _read_only(
    read: Callable[[], Object | None],
    why: NoWriter,
    target: Target,
    before: Quantity,
    after: Quantity,
) -> Checked:
    """Read with the account that watches, where nothing may be written."""
    words, detail = f"No dry run: {why}", why.detail
    try:
        live = read()
    except VersionUnknown as unknown:
        return Checked(dry_run=f"{words} {unknown}", dry_run_detail=detail)
    except (SourceUnavailable, SourceRejected) as error:
        said = f"{detail} {error}".strip()
        return Checked(dry_run=f"{words} It could not be read either.", dry_run_detail=said)
    if live is None:
        return Checked(dry_run=f"{words} The object is not there.", dry_run_detail=detail)
    found = _examined(target, live, before, after)
    return replace(found, dry_run=f"{words} {found.dry_run}".strip(), dry_run_detail=detail)


def read_by_watcher(
    cluster: Cluster, target: Target, clients: ClusterClients | None = None
) -> Object | None:
    """Return the object as the watching account reads it; None where it is not there.

    Raises SourceUnavailable, SourceRejected and VersionUnknown.
    """
    source = (clients or ClusterClients()).kubernetes(cluster)
    if source is None:
        raise SourceRejected("the catalog gives no account that reads this cluster")
    try:
        return _read(source, target)
    finally:
        source.close()


def _read(source: ClusterSource, target: Target) -> Object | None:
    """Return the object with no more than the account needs to read."""
    kind = {"kind": target.source.value}
    if not isinstance(target, QueueCell):
        live = source.get(object_path(target))
        return None if live is None else {**live, **kind}
    group = source.get(KUEUE_GROUP)
    if group is None:
        raise VersionUnknown("The cluster does not have Kueue.", lasting=True)
    version = version_in(group)
    live = source.get(object_path(target, version))
    named = {"apiVersion": f"{KUEUE_GROUP.removeprefix('/apis/')}/{version}"}
    return None if live is None else {**live, **kind, **named}
