"""The preview of a change: the figures, what the cluster says of it, and the file for GitOps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from apps.accounts.permissions import Visibility
from apps.changes.domain import preview as figures
from apps.changes.domain.gitops import PatchFile, patch_file
from apps.changes.domain.kube_requests import object_path, patch_request, read_request
from apps.changes.domain.outcomes import Step, Then, meaning
from apps.changes.domain.owners import OtherOwner, other_owners
from apps.changes.domain.patches import (
    Object,
    PatchRefused,
    ValueChanged,
    live_amount,
    locate,
    patch_for,
)
from apps.changes.domain.preview import Promise, Share, TierFigures
from apps.changes.domain.quantities import Quantity
from apps.changes.domain.targets import QueueCell, Source, Target, reachable_tiers
from apps.changes.models import ChangeRequest
from apps.changes.services.asking import (
    NO_WRITER,
    NoWriter,
    ask,
    is_gone,
    served_version,
    writer_of,
)
from apps.changes.services.held_back import held_back
from apps.changes.services.known_quotas import (
    amount_of,
    reviewed,
    target_of_request,
    wanted,
)
from apps.clusters.domain.sightings import Kind, SeenFlavor, SeenNode
from apps.clusters.domain.tiers import (
    TierRule,
    capacity_type,
    gpu_model,
    tier_of,
    unit_weight,
)
from apps.clusters.gateways import Doorway
from apps.clusters.models import Cluster
from apps.clusters.ports import SourceRejected, SourceUnavailable
from apps.clusters.services.sighting_reader import sightings
from apps.clusters.services.tier_history import TierHistory
from apps.costs.selectors import PriceList, price_list
from apps.quotas.selectors import QuotaFilters, QuotaRow, quota_rows

_EVERYTHING = Visibility(everything=True)
_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Checked:
    """What the cluster itself says: the live amount, a dry run, other owners, the patch files.

    `live` is None where it could not be read; `dry_run` is the sentence then, and `passed` None.
    """

    live: Quantity | None = None
    passed: bool | None = None
    dry_run: str = ""
    owners: tuple[OtherOwner, ...] = ()
    file: PatchFile | None = None
    revert_file: PatchFile | None = None


@dataclass(frozen=True, slots=True)
class Previewed:
    """A preview as it is frozen, and what of it rules are held against.

    `gpus` is the change in GPU-equivalents of the tier that weighs most, `gpus_after` the whole
    quota's; None where no tier is reached. `cost` is the ceiling per month.
    """

    frozen: dict[str, Any]
    tiers: tuple[str, ...]
    live: Quantity | None
    gpus: float | None
    gpus_after: float | None
    cost: Decimal | None
    used_above: bool
    owners: tuple[OtherOwner, ...] = ()


def preview_of(
    request: ChangeRequest, *, now: datetime, doorway: Doorway | None = None
) -> Previewed:
    """Work out what a change would do, with a dry run against the cluster where that is possible.

    A cluster that cannot be asked does not stop it: the preview says so. About twenty queries.
    """
    target = target_of_request(request)
    before, after = reviewed(request), wanted(request)
    known = _Known.read(request.cluster, target, now)
    tiers = known.tier_figures()
    own = known.own
    used = amount_of((own.used if own else None) or 0.0)
    worked = figures.preview(
        tiers,
        before=before,
        after=after,
        used=used,
        held=held_back(request, target, known.rows, now=now),
        shares=known.shares(),
        ours=target.name,
    )
    checked = check(request.cluster, target, before=before, after=after, doorway=doorway)
    weight = max((tier.weight for tier in tiers), default=None)
    names = tuple(tier.tier for tier in tiers)
    frozen = {**figures.frozen(worked), **_told(checked), "tiers": list(names)}
    frozen |= {"used": used.text, "taken_at": now.isoformat(), "currency": known.currency}
    return Previewed(
        frozen=frozen,
        tiers=names,
        live=checked.live,
        gpus=None if weight is None else float((after - before).units) * weight,
        gpus_after=None if weight is None else float(after.units) * weight,
        cost=worked.ceiling.most,
        used_above=used > after,
        owners=checked.owners,
    )


def _told(checked: Checked) -> dict[str, Any]:
    return {
        "live": None if checked.live is None else checked.live.text,
        "dry_run_passed": checked.passed,
        "dry_run": checked.dry_run,
        "owners": [
            {
                "manager": one.manager,
                "tool": one.tool.value,
                "applies": one.applies,
                "reverts": one.reverts,
                "advice": one.advice,
            }
            for one in checked.owners
        ],
        "patch_file": _file(checked.file),
        "revert_file": _file(checked.revert_file),
    }


def _file(made: PatchFile | None) -> dict[str, str] | None:
    return None if made is None else {"name": made.name, "text": made.text, "how": made.how}


# ---------------------------------------------------------------- asking the cluster


def check(
    cluster: Cluster,
    target: Target,
    *,
    before: Quantity,
    after: Quantity,
    doorway: Doorway | None = None,
) -> Checked:
    """Read the object and try the change without making it. Raises nothing."""
    try:
        with writer_of(cluster, doorway) as writer:
            version = served_version(writer, target)
            answer, live = ask(writer, read_request(target, version))
            read = meaning(answer, Step.READ)
            if is_gone(answer) or read.then is not Then.GO_ON:
                return Checked(passed=None, dry_run=f"No dry run: {read.sentence}")
            found = _examined(target, live, before, after)
            if found.passed is False:
                return found
            patch = patch_for(target, live, reviewed=before, wanted=after)
            request = patch_request(target, patch, dry_run=True, version=version)
            tried = meaning(ask(writer, request)[0], Step.DRY_RUN)
            return _after_dry_run(found, tried.then, tried.sentence)
    except NoWriter as missing:
        return _read_only(cluster, target, before, after, str(missing), doorway)


def _after_dry_run(found: Checked, then: Then, sentence: str) -> Checked:
    passed = {Then.GO_ON: True, Then.FAILED: False}.get(then)
    words = "The cluster would take the change." if passed else sentence
    return Checked(found.live, passed, words, found.owners, found.file, found.revert_file)


def _examined(target: Target, live: Object, before: Quantity, after: Quantity) -> Checked:
    amount = live_amount(target, live)
    owners = other_owners(target, live)
    try:
        file = patch_file(target, live, reviewed=before, wanted=after)
    except ValueChanged as changed:
        return Checked(changed.live, passed=False, dry_run=str(changed), owners=owners)
    except PatchRefused as refused:
        return Checked(amount, passed=False, dry_run=str(refused), owners=owners)
    back = patch_file(target, _with(target, live, after), reviewed=after, wanted=before)
    return Checked(amount, None, "", owners, file, back)


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
    cluster: Cluster,
    target: Target,
    before: Quantity,
    after: Quantity,
    why: str,
    doorway: Doorway | None,
) -> Checked:
    """Read with the account that watches, where nothing may be written."""
    words = f"No dry run: {why or NO_WRITER}"
    try:
        source = (doorway or Doorway()).kubernetes(cluster)
        if source is None:
            return Checked(dry_run=words)
        try:
            live = source.get(object_path(target))
        finally:
            source.close()
    except (SourceUnavailable, SourceRejected) as error:
        return Checked(dry_run=f"{words} It could not be read either: {error}")
    if live is None:
        return Checked(dry_run=f"{words} The object is not there.")
    # The watching account reads no more of an object than it needs.
    kind = {"kind": target.source.value, "apiVersion": live.get("apiVersion", "")}
    found = _examined(target, {**live, **kind}, before, after)
    return Checked(
        found.live,
        found.passed,
        f"{words} {found.dry_run}".strip(),
        found.owners,
        found.file,
        found.revert_file,
    )


# ---------------------------------------------------------------- what the portal knows


@dataclass(slots=True)
class _Known:
    """What is known of a target's cluster at a moment."""

    cluster: Cluster
    target: Target
    rows: Sequence[QuotaRow]
    nodes: Sequence[SeenNode]
    rules: Sequence[TierRule]
    flavor: Mapping[str, str]
    prices: PriceList
    currency: str = ""
    own: QuotaRow | None = field(init=False)

    def __post_init__(self) -> None:
        self.own = next((row for row in self.rows if self._is_own(row)), None)

    @classmethod
    def read(cls, cluster: Cluster, target: Target, now: datetime) -> "_Known":
        filters = QuotaFilters(cluster=(cluster.name,))
        page = quota_rows(now, filters=filters, visibility=_EVERYTHING, page_size=_MOST)
        seen = sightings(cluster.pk, (Kind.NODE, Kind.RESOURCE_FLAVOR))
        flavors = {one.name: one.body for one in seen if isinstance(one.body, SeenFlavor)}
        flavor = flavors.get(target.flavor) if isinstance(target, QueueCell) else None
        return cls(
            cluster=cluster,
            target=target,
            rows=page.rows,
            nodes=[one.body for one in seen if isinstance(one.body, SeenNode)],
            rules=TierHistory.load().at(now.timestamp()),
            flavor=flavor.node_labels if flavor else {},
            prices=price_list(now, visibility=_EVERYTHING),
        )

    def _is_own(self, row: QuotaRow) -> bool:
        of = (row.source, row.namespace, row.name, row.key)
        target = self.target
        return of == (target.source.value, target.namespace, target.name, target.key)

    def tier_figures(self) -> list[TierFigures]:
        """Return what there is of each tier that the key can reach, in catalog order."""
        offers = [({*node.allocatable, *node.devices}, node.labels) for node in self.nodes]
        tiers = reachable_tiers(self.target, self.rules, offers or None, flavor_labels=self.flavor)
        return [self._figures(tier) for tier in tiers]

    def _figures(self, tier: str) -> TierFigures:
        resource = self.target.resource
        nodes = [node for node in self.nodes if self._serves(node, tier)]
        prices = [self._price(node, tier) for node in nodes]
        known = [price for price in prices if price is not None]
        return TierFigures(
            tier=tier,
            capacity_units=sum(_offered(n, resource) for n in nodes) if nodes else None,
            free_units=sum(_free(n, resource) for n in nodes) if nodes else None,
            weight=max((unit_weight(resource, n.labels) for n in nodes), default=1.0),
            price_per_gpu_hour=max(known) if known and len(known) == len(prices) else None,
            promises=tuple(self._promises(tier)),
        )

    def _serves(self, node: SeenNode, tier: str) -> bool:
        resource = self.target.resource
        return (
            _offered(node, resource) > 0
            and all(node.labels.get(k) == v for k, v in self.flavor.items())
            and tier_of(resource, node.labels, self.rules) == tier
        )

    def _price(self, node: SeenNode, tier: str) -> Decimal | None:
        found = self.prices.of(
            self.cluster.name,
            gpu_model(node.labels),
            capacity_type(node.labels).value,
            tier=tier,
        )
        if found is None:
            return None
        self.currency = found.currency
        return found.per_gpu_hour

    def _promises(self, tier: str) -> Iterable[Promise]:
        """Yield what quotas of the same kind promise: of a namespace with several, the least."""
        least: dict[tuple[str, str], QuotaRow] = {}
        for row in self._alike(tier):
            place = _place(row)
            if self.own is not None and place == _place(self.own):
                continue
            if place not in least or row.hard < least[place].hard:
                least[place] = row
        for place, row in sorted(least.items()):
            yield Promise(place[0], row.hard)
        if self.own is not None:
            yield Promise(_place(self.own)[0], self.own.hard, ours=True)

    def _alike(self, tier: str) -> Iterable[QuotaRow]:
        """Yield the quotas of the same kind that limit the resource; Volcano's by their field."""
        part = self.target.key.partition("/")[0]
        for row in self.rows:
            same = row.source == self.target.source and row.resource == self.target.resource
            if self.target.source is Source.VOLCANO_QUEUE:
                same = same and row.key.partition("/")[0] == part
            if same and row.effective and not row.scopes and tier in row.tiers:
                yield row

    def shares(self) -> list[Share]:
        """Return the queues of the cohort for a cell of Kueue; else none."""
        own = self.own
        if own is None or not own.cohort:
            return []
        return [
            Share(row.name, row.hard, row.held or 0.0, row.borrowing_limit, row.lending_limit)
            for row in self.rows
            if (row.source, row.cohort, row.key) == (own.source, own.cohort, own.key)
        ]


def _place(row: QuotaRow) -> tuple[str, str]:
    """Return whose promise a quota is: of a namespace one in all, of a queue each flavor's."""
    return (row.namespace, "") if row.namespace else (row.name, row.key)


def _offered(node: SeenNode, resource: str) -> float:
    return float(node.allocatable.get(resource) or node.devices.get(resource, 0))


def _free(node: SeenNode, resource: str) -> float:
    if not node.ready or node.unschedulable:
        return 0.0
    if resource in node.devices:
        return float(node.free_devices.get(resource, 0))
    return max(0.0, node.allocatable.get(resource, 0.0) - node.used.get(resource, 0.0))
