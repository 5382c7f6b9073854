"""Applying over HTTP against recorded and scripted answers: the right end and a clear sentence."""

from typing import Any

import pytest

from apps.changes.domain.carrying_out import (
    ENDS,
    Decision,
    Do,
    Look,
    Mark,
    Order,
    after_answer,
    decide,
)
from apps.changes.domain.kube_requests import object_path, patch_request, read_request
from apps.changes.domain.outcomes import Step, Then, meaning
from apps.changes.domain.patches import live_amount, patch_for
from apps.changes.domain.quantities import quantity
from apps.changes.domain.targets import QueueCell, QuotaKey, Target, VolcanoCell, VolcanoField
from tests.changes import recorded
from tests.changes.quota_api import QuotaApi, Trouble, send, serving

QUOTA = QuotaKey("team-vision", "gpu", "requests.nvidia.com/gpu")
CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
VOLCANO = VolcanoCell("bronze", VolcanoField.CAPABILITY, "nvidia.com/gpu")
KEY = "requests.nvidia.com/gpu"
TRIES = 3


class Applying:
    """A worker's life: everything between two looks at the cluster."""

    def __init__(self, api: QuotaApi, target: Target, order: Order) -> None:
        self.api, self.target, self.order = api, target, order
        self.mark, self.refusal, self.failures = Mark.NONE, "", 0

    def run(self) -> Decision:
        for _ in range(30):
            decision = self._turn()
            if decision.do in ENDS:
                return decision
        raise AssertionError("it never ends")

    def _turn(self) -> Decision:
        step = Step.READ_BACK if self.mark is Mark.PATCHED else Step.READ
        answer, live = send(self.api.port, read_request(self.target))
        answered = meaning(answer, step)
        gone = answer.status == 404
        if answered.then is not Then.GO_ON and not gone:
            return self._trouble(answered)
        shown = None if gone else live_amount(self.target, live)
        decision = decide(
            self.mark,
            self.order,
            Look(shown, answered.sentence.rstrip(".")),
            refusal=self.refusal,
            tries_left=TRIES - self.failures,
        )
        if decision.do is Do.PREPARE:
            self.mark = Mark.PREPARED
        elif decision.do in (Do.REHEARSE, Do.SEND):
            return self._patch(live, dry_run=decision.do is Do.REHEARSE)
        return decision

    def _patch(self, live: dict[str, Any], *, dry_run: bool) -> Decision:
        patch = patch_for(self.target, live, reviewed=self.order.reviewed, wanted=self.order.wanted)
        if not dry_run:
            self.mark = Mark.SENDING
        answer, _ = send(self.api.port, patch_request(self.target, patch, dry_run=dry_run))
        answered = meaning(answer, Step.DRY_RUN if dry_run else Step.PATCH)
        if answered.then is not Then.GO_ON:
            return self._trouble(answered)
        self.mark = Mark.REHEARSED if dry_run else Mark.PATCHED
        return Decision(Do.LOOK)

    def _trouble(self, answered: Any) -> Decision:
        self.failures += 1
        after = after_answer(self.mark, answered, tries_left=TRIES - self.failures)
        self.refusal = after.refusal
        return after


SIX_TO_EIGHT = Order(quantity("6"), quantity("8"))


@pytest.mark.parametrize(
    ("target", "live", "order"),
    [
        pytest.param(QUOTA, recorded.quota("gpu"), SIX_TO_EIGHT, id="ResourceQuota"),
        pytest.param(
            CELL,
            recorded.cluster_queue("cq-a"),
            Order(quantity("2"), quantity("4")),
            id="ClusterQueue",
        ),
        pytest.param(
            VOLCANO,
            recorded.volcano_queue("bronze"),
            Order(quantity("4"), quantity("2")),
            id="Volcano queue",
        ),
    ],
)
def test_a_change_is_rehearsed_written_once_and_read_back(
    target: Target, live: dict[str, Any], order: Order
) -> None:
    with serving(object_path(target), live) as api:
        end = Applying(api, target, order).run()
    assert (end.do, end.written) == (Do.APPLIED, True)
    assert live_amount(target, api.live) == order.wanted
    assert api.asked == ["GET", "GET", "PATCH dry", "GET", "PATCH", "GET"]


def recorded_error(name: str) -> Trouble:
    return Trouble(int(name[:3]), recorded.body(recorded.KUBE, f"errors/{name}.json"))


BROKEN = {"kind": "Status", "message": "etcdserver: request timed out", "code": 500}


@pytest.mark.parametrize(
    ("troubles", "do", "shown", "words"),
    [
        pytest.param(
            [recorded_error("409-conflict-stale-resourceversion")],
            Do.APPLIED,
            "8",
            "shows 8",
            id="409, tried again",
        ),
        pytest.param(
            [recorded_error("403-sa-quotas")],
            Do.FAILED,
            "6",
            "lacks the right to patch.",
            id="403",
        ),
        pytest.param(
            [recorded_error("422-quota-negative")],
            Do.FAILED,
            "6",
            "holds the new value for invalid.",
            id="422",
        ),
        pytest.param([Trouble(writes=True)], Do.APPLIED, "8", "arrived", id="lost after the write"),
        pytest.param([Trouble()], Do.APPLIED, "8", "shows 8", id="lost before the write"),
        pytest.param(
            [Trouble(500, BROKEN, writes=True)], Do.APPLIED, "8", "arrived", id="500 after it"
        ),
        pytest.param(
            [Trouble(429, {}), Trouble(500, BROKEN)], Do.APPLIED, "8", "shows 8", id="429, then 500"
        ),
        pytest.param(
            [Trouble()] * TRIES, Do.FAILED, "6", "still shows 6", id="lost again and again"
        ),
        pytest.param(
            [Trouble(writes=True), recorded_error("403-sa-quotas")],
            Do.APPLIED,
            "8",
            "arrived",
            id="lost after the write, then no right any more",
        ),
    ],
)
def test_every_answer_ends_in_a_right_state_and_a_clear_sentence(
    troubles: list[Trouble], do: Do, shown: str, words: str
) -> None:
    with serving(object_path(QUOTA), recorded.quota("gpu"), *troubles) as api:
        end = Applying(api, QUOTA, SIX_TO_EIGHT).run()
    assert (end.do, live_amount(QUOTA, api.live)) == (do, quantity(shown))
    assert words in end.sentence
    assert api.writes <= 1


@pytest.mark.parametrize("mark", [Mark.NONE, Mark.PREPARED, Mark.REHEARSED, Mark.SENDING])
@pytest.mark.parametrize(
    ("change", "do", "words"),
    [
        pytest.param({KEY: "7"}, Do.BACK_TO_REVIEW, "shows 7 where 6 was reviewed", id="changed"),
        pytest.param({"pods": "7"}, Do.FAILED, "the limit is gone", id="key removed"),
        pytest.param(None, Do.FAILED, "no longer in the cluster", id="quota deleted"),
    ],
)
def test_what_changed_in_between_is_left_as_it_is(
    mark: Mark, change: dict[str, str] | None, do: Do, words: str
) -> None:
    live = None if change is None else recorded.quota("gpu") | {"spec": {"hard": change}}
    with serving(object_path(QUOTA), live) as api:
        worker = Applying(api, QUOTA, SIX_TO_EIGHT)
        worker.mark = mark
        end = worker.run()
    assert (end.do, api.writes, api.live) == (do, 0, live)
    assert words in end.sentence


def test_a_server_that_is_not_there_changes_nothing() -> None:
    with serving(object_path(QUOTA), recorded.quota("gpu")) as api:
        pass
    end = Applying(api, QUOTA, SIX_TO_EIGHT).run()
    assert end.do is Do.FAILED
    assert "Nothing was written, given up. The API server could not be reached" in end.sentence
