"""What the read side of quota changes hands to pages, API and commands: frozen rows."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import Struct

from apps.clusters.domain.columns import Column
from apps.quota_requests.domain.approval_policy import PolicyDecision
from apps.quota_requests.domain.execution.patches import PatchFile
from apps.quota_requests.domain.quantities import stored
from apps.quota_requests.domain.snapshots import Evidence, ImpactPreview
from apps.quota_requests.domain.states import RequestState
from apps.quotas.domain.keys import QuotaRef, QuotaSource

_StoredPatch = Annotated[
    Mapping[str, str] | None,
    Column(help="name, text and how; or null.", key="patch_file", after="confirmed"),
]
_ActionPaths = Annotated[
    tuple[str, ...],
    Column(help="What you may do now, as the actions below.", key="actions", after="history"),
]


class RequestList(StrEnum):
    """Which requests: written by a person, pending that person's decision, or all."""

    MINE = "mine"
    QUEUE = "queue"
    ALL = "all"


class RequestExtra(StrEnum):
    """What may be done with a request beside the actions of its state."""

    COMMENT = "comment"
    ACCEPT_OFFER = "accept_offer"
    GIVE_UP = "give_up"
    ACCEPT_DRIFT = "accept_drift"


class RequestFilters(Struct, frozen=True):
    """Narrow a list to these names; empty means all."""

    state: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


class RequestRow(Struct, frozen=True):
    """A request to change one quota key.

    `before` and `after` are texts of quantities, in units of the key. `changed_at` is of the last
    write, `state_since` and `state_by` of the last change of its state.
    """

    id: Annotated[int, Column("Request")]
    version: Annotated[int, Column(help="Counts up with each change; also the ETag.")]
    state: Annotated[str, Column("State", help=f"One of {', '.join(RequestState)}.")]
    team: Annotated[str, Column("Team")]
    tiers: Annotated[tuple[str, ...], Column("Tiers", help="Every tier that the key can reach.")]
    cluster: Annotated[str, Column("Cluster", off_page=True)]
    namespace: Annotated[
        str, Column("Namespace", help="Empty for queues of a whole cluster.", off_page=True)
    ]
    source: Annotated[str, Column("Source", values=QuotaSource, off_page=True)]
    name: Annotated[str, Column("Name", off_page=True)]
    key: Annotated[str, Column("Quota key")]
    before: Annotated[
        str,
        Column("From", help="An amount in units of the key.", api_note="As a text: 8.", key="from"),
    ]
    after: Annotated[
        str, Column("To", help="An amount in units of the key.", api_note="As a text: 8.", key="to")
    ]
    reason: Annotated[str, Column("Reason", wraps=True)]
    needed_by: Annotated[datetime | None, Column("Needed by", shown_as="day")]
    until: Annotated[datetime | None, Column("Expires", absent="never")]
    starts_at: Annotated[
        datetime | None,
        Column(
            "Starts",
            help="Of a booking: it is applied then and reverts at its end.",
            absent="when applied",
            off_page=True,
        ),
    ]
    authors: Annotated[
        tuple[str, ...],
        Column("Authors", help="All who wrote or edited it: none of them decides."),
    ]
    approvals: Annotated[tuple[str, ...], Column("Approvals", off_page=True)]
    approvals_needed: Annotated[int, Column("Approvals needed", off_page=True)]
    by_rule: Annotated[bool, Column(help="Approved by a rule of the site.")]
    reviewer: Annotated[
        str, Column("Reviewer", help="Empty while it is not assigned.", off_page=True)
    ]
    created_at: Annotated[datetime, Column("Created", off_page=True)]
    changed_at: Annotated[datetime, Column("Changed")]
    changed_by: Annotated[str, Column("Changed by", off_page=True)]
    state_since: Annotated[datetime, Column(help="Of the state; edits leave it.")]
    state_by: Annotated[str, Column()]
    submitted_at: Annotated[datetime | None, Column("Submitted", off_page=True)]
    decided_at: Annotated[datetime | None, Column("Decided", off_page=True)]
    applied_at: Annotated[datetime | None, Column("Applied", off_page=True)]
    reverts_at: Annotated[datetime | None, Column()]
    outcome: Annotated[
        str,
        Column("Outcome", help="How it ended, in a sentence; empty before.", off_page=True),
    ]
    drift: Annotated[
        str,
        Column(
            "Drift",
            help="What the cluster shows instead of what was approved; empty for nothing else.",
            off_page=True,
        ),
    ]

    @property
    def ref(self) -> QuotaRef:
        return QuotaRef(self.source, self.namespace, self.name, self.key, self.cluster)


class CommentRow(Struct, frozen=True):
    """A comment on a request."""

    at: Annotated[datetime, Column()]
    author: Annotated[str, Column()]
    text: Annotated[str, Column()]
    offer: Annotated[str, Column(help="A counter-offer, an amount; else empty.")]


class ExecutionRow(Struct, frozen=True):
    """An order that is or was carried out.

    `end` is empty while it lasts, `sentence` tells how it stands.
    `detail` are the server's own words to it, empty for all but administrators.
    `cluster_before` and `cluster_after` are the values that the cluster had. `patch_file` has
    name, text and how it is put to use, in GitOps mode.
    """

    id: Annotated[int, Column()]
    order: Annotated[str, Column(help="apply or revert.")]
    mode: Annotated[str, Column(help="direct or gitops.")]
    reviewed: Annotated[str, Column()]
    wanted: Annotated[str, Column()]
    started_by: Annotated[str, Column()]
    started_at: Annotated[datetime, Column()]
    # Without a Column: for pages alone, never in the API.
    mark: str
    sentence: Annotated[str, Column()]
    detail: Annotated[str, Column(help="The cluster's words, for administrators.")]
    end: Annotated[str, Column(help="Empty while it lasts.")]
    ended_at: Annotated[datetime | None, Column()]
    written: bool
    cluster_before: Annotated[str | None, Column()]
    cluster_after: Annotated[str | None, Column()]
    confirmed: Annotated[tuple[str, ...], Column()]
    patch_file: PatchFile | None

    @property
    def stored_patch(self) -> _StoredPatch:
        return None if self.patch_file is None else stored(self.patch_file)


class AuditRow(Struct, frozen=True):
    """A line of the audit.

    `before` and `after` hold what changed, None for nothing.
    """

    schema: ClassVar[str] = "Line"

    number: Annotated[int, Column("Line")]
    at: Annotated[datetime, Column("Time")]
    actor: Annotated[str, Column("User")]
    action: Annotated[str, Column("Action")]
    subject: Annotated[str, Column("Subject", api=False, off_page=True)]
    before: Annotated[Mapping[str, Any] | None, Column()]
    after: Annotated[Mapping[str, Any] | None, Column()]
    note: Annotated[str, Column("Note", off_page=True)]
    origin: Annotated[str, Column("Origin")]
    digest: Annotated[str, Column("Digest", api=False, off_page=True)]


class DriftRow(Struct, frozen=True):
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


class RequestDetail(Struct, frozen=True):
    """A request with all that one screen shows of it.

    `evidence`, `preview` and `ruling` are as frozen at submission (None before). `actions` are all
    that the reader may do now, by the names of `RequestAction` and `RequestExtra`.
    `can_write`: the portal may change quotas of this cluster; else a change is applied, and
    reverted, by commit. `offer` is the open counter-offer, empty for none. `goes_back_to` is the
    amount of an applied change after its revert, None where it is not applied or lies under a later
    one.
    """

    row: RequestRow
    evidence: Evidence | None
    preview: ImpactPreview | None
    ruling: PolicyDecision | None
    comments: Annotated[tuple[CommentRow, ...], Column()]
    executions: Annotated[tuple[ExecutionRow, ...], Column()]
    history: Annotated[tuple[AuditRow, ...], Column(help="Of the audit, the newest first.")]
    drifts: tuple[DriftRow, ...]
    actions: tuple[str, ...]
    may_comment: bool
    offer: Annotated[str, Column(help="A counter-offer that needs an answer.")]
    can_write: Annotated[bool, Column(help="False: it is applied by commit.")]
    goes_back_to: Annotated[str | None, Column()]

    @property
    def action_paths(self) -> _ActionPaths:
        return tuple(name.replace("_", "-") for name in self.actions)


class ReviewRow(Struct, frozen=True):
    """A request in the review queue with what it is decided by, and what the reader may do."""

    row: RequestRow
    evidence: Evidence | None
    preview: ImpactPreview | None
    ruling: PolicyDecision | None
    comments: tuple[CommentRow, ...]
    actions: tuple[str, ...]
    can_write: bool
