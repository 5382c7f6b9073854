"""Executing an approved change so that it can be cut off anywhere and taken up again.

What was done is a record of stages, each written before the next step starts. What to do next
follows from the record and from what the cluster shows now; nothing else is remembered.

    (none) ─read─► prepared ─dry run─► rehearsed ─mark─► sending ─patch─► patched ─read back─► done

`sending` is written before the patch leaves. From then on only the cluster can say whether it
arrived, so nothing ends there without a look. Sending again is safe: the patch tests the reviewed
value, and whichever of two copies comes second is refused whole.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from apps.quota_requests.domain.execution.kube_requests import AfterAnswer, AnswerMeaning
from apps.quota_requests.domain.execution.patches import FIELD_MANAGER, Object
from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.snapshots import FieldOwner
from apps.quota_requests.domain.targets import QuotaKeyTarget, Target, VolcanoCell

ANY_ITEM: Final = "*"
_GROUPS: Final = 2
"""The steps `f:spec` and `f:resourceGroups`, which lead to a list without keys: one field.

The amounts of a ResourceQuota or Volcano Queue are a granular map: each key has its own owners, and
an empty set owns only the map itself. The API server leaves an empty set behind where another
manager wrote the only key (seen on 1.36.2)."""


class GitopsTool(StrEnum):
    """What is behind a field manager, as far as its name tells."""

    KUBECTL = "kubectl"
    ARGO_CD = "Argo CD"
    FLUX = "Flux"
    HELM = "Helm"
    TERRAFORM = "Terraform"
    OTHER = "other"


# The first match counts: helm-controller is Flux, and has to come before the prefix helm.
_BY_START: Final = (
    ("kubectl", GitopsTool.KUBECTL),
    ("argocd", GitopsTool.ARGO_CD),
    ("kustomize-controller", GitopsTool.FLUX),
    ("helm-controller", GitopsTool.FLUX),
    ("flux", GitopsTool.FLUX),
    ("helm", GitopsTool.HELM),
    ("terraform", GitopsTool.TERRAFORM),
    ("hashicorp", GitopsTool.TERRAFORM),
)
_RECONCILING: Final = frozenset({GitopsTool.ARGO_CD, GitopsTool.FLUX})


class OtherOwner(Struct, frozen=True):
    """A field manager that set the field; `applies`: by server-side apply, which claims it.

    `reverts`: it writes its own value again by itself, so that a change here would not last.
    """

    manager: str
    tool: GitopsTool
    applies: bool
    reverts: bool

    @property
    def advice(self) -> str:
        """One sentence on what will become of a change made here."""
        name = self.manager if self.tool is GitopsTool.OTHER else f"{self.tool} ({self.manager})"
        if self.reverts:
            return f"{name} owns this limit and will put its own value back: use GitOps mode."
        if self.applies or self.tool in (GitopsTool.HELM, GitopsTool.TERRAFORM):
            return f"{name} owns this limit; its next run puts its value back unless it is told."
        return f"{name} set this limit last; confirm that the portal may take it over."


def other_owners(target: Target, live: Object) -> tuple[OtherOwner, ...]:
    """Return who else owns exactly the target's field, in the order of the object.

    To the API server all resource groups of a ClusterQueue are one field: the owner of the list
    owns the cell. Status writers and owners of neighbouring keys are not named.
    """
    path = _path(target)
    entries = (live.get("metadata") or {}).get("managedFields")
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or entry.get("subresource"):
            continue
        manager = str(entry.get("manager") or "unnamed field manager")
        fields = entry.get("fieldsV1")
        if manager == FIELD_MANAGER or not fields or not _owns(fields, path, _atomic_from(target)):
            continue
        tool = _tool(manager)
        applies = entry.get("operation") == "Apply"
        found.append(OtherOwner(manager, tool, applies, tool in _RECONCILING))
    return tuple(dict.fromkeys(found))


def _tool(manager: str) -> GitopsTool:
    name = manager.lower()
    return next((tool for start, tool in _BY_START if name.startswith(start)), GitopsTool.OTHER)


def _path(target: Target) -> tuple[str, ...]:
    """Return the steps to the field as `fieldsV1` writes them; `*` stands for any list item."""
    if isinstance(target, QuotaKeyTarget):
        return ("f:spec", "f:hard", f"f:{target.key}")
    if isinstance(target, VolcanoCell):
        return ("f:spec", f"f:{target.part}", f"f:{target.resource}")
    flavor, resource = _item(target.flavor), _item(target.resource)
    groups = ("f:spec", "f:resourceGroups", ANY_ITEM)
    return (*groups, "f:flavors", flavor, "f:resources", resource, "f:nominalQuota")


def _atomic_from(target: Target) -> int:
    """Return after how many steps of the path an empty set means all that is in it."""
    return len(_path(target)) if isinstance(target, QuotaKeyTarget | VolcanoCell) else _GROUPS


def _item(name: str) -> str:
    return "k:" + json.dumps({"name": name}, separators=(",", ":"))


def _owns(fields: object, path: Sequence[str], atomic_from: int) -> bool:
    """Walk the owned fields; an empty set `atomic_from` steps in owns all, before that nothing."""
    if not isinstance(fields, Mapping):
        return False
    if not path:
        return True
    if not fields:
        return atomic_from <= 0
    return any(
        _owns(child, path[1:], atomic_from - 1)
        for name, child in fields.items()
        # fieldsV1 names an item of a list by its keys (`k:`) or by its index (`i:`).
        if name == path[0] or (path[0] == ANY_ITEM and name.startswith(("k:", "i:")))
    )


def preview_owners(owners: Sequence[OtherOwner]) -> tuple[FieldOwner, ...]:
    """Return owners as a preview has them."""
    return tuple(
        FieldOwner(one.manager, one.advice, one.tool.value, one.applies, one.reverts)
        for one in owners
    )


class ApplyStage(StrEnum):
    """How far the record says that a change has come, in this order."""

    NONE = "none"
    PREPARED = "prepared"
    REHEARSED = "rehearsed"
    SENDING = "sending"
    PATCHED = "patched"
    DONE = "done"


class NextStep(StrEnum):
    """The next thing to do; the three ends are what the record says for good.

    APPLIED: the cluster has the wanted value, or had it after our write. BACK_TO_REVIEW and
    FAILED: it does not have it by this change.
    """

    PREPARE = "prepare"
    REHEARSE = "dry run"
    SEND = "send"
    READ_BACK = "look"
    WAIT = "wait"
    APPLIED = "applied"
    BACK_TO_REVIEW = "back to review"
    FAILED = "failed"


ENDS: Final = frozenset({NextStep.APPLIED, NextStep.BACK_TO_REVIEW, NextStep.FAILED})


class ExecutionOrder(Struct, frozen=True):
    """What is to be done: `wanted` instead of `reviewed`. A revert is the same, turned round."""

    reviewed: Quantity
    wanted: Quantity


class ObservedTarget(Struct, frozen=True):
    """What the cluster showed: `amount`, or None where object or key are gone (`why` says which).

    `seen_wanted`: the watch has seen the wanted amount there since the first patch was sent.
    """

    amount: Quantity | None
    why: str = ""
    seen_wanted: bool = False


class Decision(Struct, frozen=True):
    """What to do, and one sentence for the record.

    `written`: our own write caused the end, not another writer of the same value. `drifted`:
    applied, and changed since by another writer. `refusal` is to be kept with the record: the
    server has rejected the patch for good, so that it is not sent again. `owners`: it ends because
    these own the limit, and no admin agreed to take it over from one of them.
    """

    do: NextStep
    sentence: str = ""
    written: bool = False
    drifted: bool = False
    refusal: str = ""
    owners: tuple[OtherOwner, ...] = ()


def decide(
    mark: ApplyStage,
    order: ExecutionOrder,
    look: ObservedTarget | None,
    *,
    refusal: str = "",
    tries_left: int = 1,
) -> Decision:
    """Return the next step; `look` is what the cluster shows now, None before it was asked.

    To be called at every start and after every step, each time with a fresh look. `refusal` is
    what the record kept of a plain no; `tries_left` counts patches that may still be sent.
    """
    if mark is ApplyStage.DONE:
        return Decision(NextStep.APPLIED, "It was applied.", written=True)
    if look is None:
        return Decision(NextStep.READ_BACK)
    # First: our write succeeded, so a different amount now is drift and not a failure.
    if mark is ApplyStage.PATCHED or (mark is ApplyStage.SENDING and look.seen_wanted):
        return _after_write(order, look)
    if look.amount == order.wanted:
        return _already(mark, order)
    # Never overwrite what another writer set after the review.
    if look.amount != order.reviewed:
        return _moved_on(mark, order, look)
    # Only after the look: a refused patch may still have been preceded by one that arrived.
    if mark is ApplyStage.SENDING and (refusal or tries_left <= 0):
        why = (
            refusal or "The patch was sent several times and took no effect: apply it again later."
        )
        return Decision(NextStep.FAILED, f"The cluster still shows {order.reviewed}. {why}")
    return Decision(_ONWARD[mark])


_ONWARD: Final = {
    ApplyStage.NONE: NextStep.PREPARE,
    ApplyStage.PREPARED: NextStep.REHEARSE,
    ApplyStage.REHEARSED: NextStep.SEND,
    # The same patch again is safe: its test fails if an earlier one arrived after all.
    ApplyStage.SENDING: NextStep.SEND,
}


def _already(mark: ApplyStage, order: ExecutionOrder) -> Decision:
    if mark is ApplyStage.SENDING:
        return Decision(
            NextStep.APPLIED, f"The cluster shows {order.wanted}: the write arrived.", written=True
        )
    return Decision(
        NextStep.APPLIED,
        f"The cluster showed {order.wanted} already, set by somebody else; nothing was written.",
    )


def _moved_on(mark: ApplyStage, order: ExecutionOrder, look: ObservedTarget) -> Decision:
    """Somebody else has changed or removed the limit; ours is not there and was never seen."""
    ours = "Nothing was written"
    if mark is ApplyStage.SENDING:
        ours = f"{order.wanted} was sent and never seen in the cluster"
    if look.amount is None:
        return Decision(NextStep.FAILED, f"{ours}: {look.why or 'the limit is gone'}.")
    return Decision(
        NextStep.BACK_TO_REVIEW,
        f"{ours}: the cluster shows {look.amount} where {order.reviewed} was reviewed.",
    )


def _after_write(order: ExecutionOrder, look: ObservedTarget) -> Decision:
    """The change was made: whatever is there now, it is never made again."""
    if look.amount == order.wanted:
        return Decision(NextStep.APPLIED, f"The cluster shows {order.wanted}.", written=True)
    shown = "no longer has the limit" if look.amount is None else f"shows {look.amount}"
    return Decision(
        NextStep.APPLIED,
        f"{order.wanted} was written; somebody has changed it since: the cluster {shown}.",
        written=True,
        drifted=True,
    )


def after_answer(mark: ApplyStage, answered: AnswerMeaning, *, tries_left: int) -> Decision:
    """Return what follows from an answer that was not a plain yes.

    While a patch may be under way there is no end without a look at the cluster, however long
    that takes: giving up would leave the record and the cluster apart. What was accepted counts
    as applied even where it can never be read back. Everything before fails after its last try.
    """
    if mark is ApplyStage.PATCHED:
        if tries_left > 0:
            return Decision(NextStep.WAIT, answered.sentence)
        text = f"The write was accepted but could not be read back. {answered.sentence}"
        return Decision(NextStep.APPLIED, text, written=True)
    if mark is ApplyStage.SENDING:
        # No count of tries here: only the cluster can tell whether the patch arrived.
        if answered.then is AfterAnswer.RETRY:
            return Decision(NextStep.WAIT, answered.sentence)
        refusal = answered.sentence if answered.then is AfterAnswer.FAILED else ""
        return Decision(NextStep.READ_BACK, answered.sentence, refusal=refusal)
    if answered.then is AfterAnswer.FAILED:
        return Decision(NextStep.FAILED, f"Nothing was written. {answered.sentence}")
    if tries_left <= 0:
        return Decision(NextStep.FAILED, f"Nothing was written, given up. {answered.sentence}")
    return Decision(
        NextStep.READ_BACK if answered.then is AfterAnswer.READ_FIRST else NextStep.WAIT,
        answered.sentence,
    )
