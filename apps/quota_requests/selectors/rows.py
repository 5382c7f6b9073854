"""What the read side of quota changes hands to pages, API and commands: frozen rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from apps.quota_requests.domain.approval_policy import Ruling
from apps.quota_requests.domain.execution.gitops import PatchFile
from apps.quota_requests.domain.snapshots import Evidence, Preview
from apps.quotas.domain.keys import QuotaRef


class Which(StrEnum):
    """Which requests: what a person wrote, what waits for a decision of theirs, or all."""

    MINE = "mine"
    QUEUE = "queue"
    ALL = "all"


class Also(StrEnum):
    """What may be done with a request beside the actions of its state."""

    COMMENT = "comment"
    ACCEPT_OFFER = "accept_offer"
    GIVE_UP = "give_up"
    ACCEPT_DRIFT = "accept_drift"


@dataclass(frozen=True, slots=True)
class RequestFilters:
    """Narrow a list to these names; empty means all."""

    state: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request in a list; `before` and `after` are texts of quantities, in units of the key.

    `changed_at` is of the last write, `state_since` and `state_by` of the last change of its state.
    """

    id: int
    cluster: str
    team: str
    source: str
    namespace: str
    name: str
    key: str
    tiers: tuple[str, ...]
    before: str
    after: str
    reason: str
    needed_by: datetime | None
    until: datetime | None
    state: str
    version: int
    authors: tuple[str, ...]
    approvals: tuple[str, ...]
    approvals_needed: int
    by_rule: bool
    reviewer: str
    created_at: datetime
    changed_at: datetime
    changed_by: str
    submitted_at: datetime | None
    decided_at: datetime | None
    applied_at: datetime | None
    reverts_at: datetime | None
    outcome: str
    drift: str
    state_since: datetime
    state_by: str

    @property
    def ref(self) -> QuotaRef:
        return QuotaRef(self.source, self.namespace, self.name, self.key, self.cluster)


@dataclass(frozen=True, slots=True)
class CommentRow:
    """What somebody said; `offer` is the amount of a counter-offer, else empty."""

    at: datetime
    author: str
    text: str
    offer: str


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """An order that is or was carried out; `end` empty while it lasts, `sentence` how it stands.

    `detail` are the server's own words to it, empty for all but administrators.
    `cluster_before` and `cluster_after` are the values that the cluster had. `patch_file` has
    name, text and how it is put to use, in GitOps mode.
    """

    id: int
    order: str
    mode: str
    reviewed: str
    wanted: str
    started_by: str
    started_at: datetime
    mark: str
    sentence: str
    detail: str
    end: str
    ended_at: datetime | None
    written: bool
    cluster_before: str | None
    cluster_after: str | None
    confirmed: tuple[str, ...]
    patch_file: PatchFile | None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line of the audit; `before` and `after` hold what changed, None for nothing."""

    number: int
    at: datetime
    actor: str
    origin: str
    action: str
    subject: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    note: str
    digest: str


@dataclass(frozen=True, slots=True)
class DriftRow:
    """A span in which the cluster showed something else than was approved."""

    request_id: int
    cluster: str
    team: str
    source: str
    namespace: str
    name: str
    key: str
    kind: str
    sentence: str
    found_at: datetime
    ended_at: datetime | None
    accepted_by: str


@dataclass(frozen=True, slots=True)
class RequestDetail:
    """A request with all that one screen shows of it.

    `evidence`, `preview` and `ruling` are as frozen at submission (None before). `actions` are
    all that the reader may do now, by the names of `domain.states.Action` and `Also`.
    `can_write`: the portal may change quotas of this cluster; else a change is applied, and taken
    back, by commit. `offer` is the counter-offer that waits for an answer, empty for none.
    `goes_back_to` is the amount of an applied change when it is taken back, None where it is not
    applied or lies under a later one.
    """

    row: RequestRow
    evidence: Evidence | None
    preview: Preview | None
    ruling: Ruling | None
    comments: tuple[CommentRow, ...]
    executions: tuple[ExecutionRow, ...]
    history: tuple[AuditRow, ...]
    drifts: tuple[DriftRow, ...]
    actions: tuple[str, ...]
    may_comment: bool
    can_write: bool
    offer: str = ""
    goes_back_to: str | None = None


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """A request in the review queue with what it is decided by, and what the reader may do."""

    row: RequestRow
    evidence: Evidence | None
    preview: Preview | None
    ruling: Ruling | None
    comments: tuple[CommentRow, ...]
    actions: tuple[str, ...]
    can_write: bool
