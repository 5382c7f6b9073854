"""Applying over HTTP against recorded and scripted answers: the right end and a clear sentence."""

from typing import Any

import pytest

from apps.quota_requests.domain.execution.executor import (
    ENDS,
    ApplyStage,
    Decision,
    ExecutionOrder,
    NextStep,
    ObservedTarget,
    after_answer,
    decide,
)
from apps.quota_requests.domain.execution.kube_requests import (
    AfterAnswer,
    ServerStep,
    meaning,
    object_path,
    patch_request,
    read_request,
)
from apps.quota_requests.domain.execution.patches import live_amount, patch_for
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.targets import (
    QueueCell,
    QuotaKeyTarget,
    Target,
    VolcanoCell,
    VolcanoField,
)
from tests.quota_requests import recorded
from tests.quota_requests.quota_api import QuotaApi, Trouble, send, serving

QUOTA = QuotaKeyTarget("team-vision", "gpu", "requests.nvidia.com/gpu")
CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
VOLCANO = VolcanoCell("bronze", VolcanoField.CAPABILITY, "nvidia.com/gpu")
KEY = "requests.nvidia.com/gpu"
TRIES = 3


class Applying:
    """A worker's life: everything between two looks at the cluster."""

    def __init__(self, api: QuotaApi, target: Target, order: ExecutionOrder) -> None:
        self.api, self.target, self.order = api, target, order
        self.mark, self.refusal, self.failures = ApplyStage.NONE, "", 0

    def run(self) -> Decision:
        for _ in range(30):
            decision = self._turn()
            if decision.do in ENDS:
                return decision
        raise AssertionError("it never ends")

    def _turn(self) -> Decision:
        step = ServerStep.READ_BACK if self.mark is ApplyStage.PATCHED else ServerStep.READ
        answer, live = send(self.api.port, read_request(self.target))
        answered = meaning(answer, step)
        gone = answer.status == 404
        if answered.then is not AfterAnswer.GO_ON and not gone:
            return self._trouble(answered)
        shown = None if gone else live_amount(self.target, live)
        decision = decide(
            self.mark,
            self.order,
            ObservedTarget(shown, answered.sentence.rstrip(".")),
            refusal=self.refusal,
            tries_left=TRIES - self.failures,
        )
        if decision.do is NextStep.PREPARE:
            self.mark = ApplyStage.PREPARED
        elif decision.do in (NextStep.REHEARSE, NextStep.SEND):
            return self._patch(live, dry_run=decision.do is NextStep.REHEARSE)
        return decision

    def _patch(self, live: dict[str, Any], *, dry_run: bool) -> Decision:
        patch = patch_for(self.target, live, reviewed=self.order.reviewed, wanted=self.order.wanted)
        if not dry_run:
            self.mark = ApplyStage.SENDING
        answer, _ = send(self.api.port, patch_request(self.target, patch, dry_run=dry_run))
        answered = meaning(answer, ServerStep.DRY_RUN if dry_run else ServerStep.PATCH)
        if answered.then is not AfterAnswer.GO_ON:
            return self._trouble(answered)
        self.mark = ApplyStage.REHEARSED if dry_run else ApplyStage.PATCHED
        return Decision(NextStep.READ_BACK)

    def _trouble(self, answered: Any) -> Decision:
        self.failures += 1
        after = after_answer(self.mark, answered, tries_left=TRIES - self.failures)
        self.refusal = after.refusal
        return after


SIX_TO_EIGHT = ExecutionOrder(quantity("6"), quantity("8"))


@pytest.mark.parametrize(
    ("target", "live", "order"),
    [
        pytest.param(QUOTA, recorded.quota("gpu"), SIX_TO_EIGHT, id="ResourceQuota"),
        pytest.param(
            CELL,
            recorded.cluster_queue("cq-a"),
            ExecutionOrder(quantity("2"), quantity("4")),
            id="ClusterQueue",
        ),
        pytest.param(
            VOLCANO,
            recorded.volcano_queue("bronze"),
            ExecutionOrder(quantity("4"), quantity("2")),
            id="Volcano queue",
        ),
    ],
)
def test_a_change_is_rehearsed_written_once_and_read_back(
    target: Target, live: dict[str, Any], order: ExecutionOrder
) -> None:
    with serving(object_path(target), live) as api:
        end = Applying(api, target, order).run()
    assert (end.do, end.written) == (NextStep.APPLIED, True)
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
            NextStep.APPLIED,
            "8",
            "shows 8",
            id="409, tried again",
        ),
        pytest.param(
            [recorded_error("403-sa-quotas")],
            NextStep.FAILED,
            "6",
            "lacks the right to patch.",
            id="403",
        ),
        pytest.param(
            [recorded_error("422-quota-negative")],
            NextStep.FAILED,
            "6",
            "holds the new value for invalid.",
            id="422",
        ),
        pytest.param(
            [Trouble(writes=True)], NextStep.APPLIED, "8", "arrived", id="lost after the write"
        ),
        pytest.param([Trouble()], NextStep.APPLIED, "8", "shows 8", id="lost before the write"),
        pytest.param(
            [Trouble(500, BROKEN, writes=True)], NextStep.APPLIED, "8", "arrived", id="500 after it"
        ),
        pytest.param(
            [Trouble(429, {}), Trouble(500, BROKEN)],
            NextStep.APPLIED,
            "8",
            "shows 8",
            id="429, then 500",
        ),
        pytest.param(
            [Trouble()] * TRIES, NextStep.FAILED, "6", "still shows 6", id="lost again and again"
        ),
        pytest.param(
            [Trouble(writes=True), recorded_error("403-sa-quotas")],
            NextStep.APPLIED,
            "8",
            "arrived",
            id="lost after the write, then no right any more",
        ),
    ],
)
def test_every_answer_ends_in_a_right_state_and_a_clear_sentence(
    troubles: list[Trouble], do: NextStep, shown: str, words: str
) -> None:
    with serving(object_path(QUOTA), recorded.quota("gpu"), *troubles) as api:
        end = Applying(api, QUOTA, SIX_TO_EIGHT).run()
    assert (end.do, live_amount(QUOTA, api.live)) == (do, quantity(shown))
    assert words in end.sentence
    assert api.writes <= 1


@pytest.mark.parametrize(
    "mark", [ApplyStage.NONE, ApplyStage.PREPARED, ApplyStage.REHEARSED, ApplyStage.SENDING]
)
@pytest.mark.parametrize(
    ("change", "do", "words"),
    [
        pytest.param(
            {KEY: "7"}, NextStep.BACK_TO_REVIEW, "shows 7 where 6 was reviewed", id="changed"
        ),
        pytest.param({"pods": "7"}, NextStep.FAILED, "the limit is gone", id="key removed"),
        pytest.param(None, NextStep.FAILED, "no longer in the cluster", id="quota deleted"),
    ],
)
def test_what_changed_in_between_is_left_as_it_is(
    mark: ApplyStage, change: dict[str, str] | None, do: NextStep, words: str
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
    assert end.do is NextStep.FAILED
    assert "Nothing was written, given up. The API server could not be reached" in end.sentence
