"""A portal in which every list has rows, and there is a quota request in every state."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.utils import timezone
from msgspec import Struct

from apps.accounts.domain.identity import Role, TokenScope
from apps.accounts.services import issue_token
from apps.clusters.domain.window import Window, day_of, day_window
from apps.costs.services import price_hours
from apps.fairness.services import compute_hours
from apps.quota_requests.domain.execution.kube_requests import object_path
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.models import Author, ChangeRequest, Comment, Execution
from apps.quotas.models import Budget, Entitlement
from apps.usage.models import CollectionWindow, PodHour, ServingHour
from tests.costs.portal import PRICES, make_price
from tests.costs.recommendation_rows import make as make_recommendation
from tests.factories import (
    BEGINNING,
    Portal,
    make_portal,
    make_team,
    make_user,
    make_workload,
    token_of,
)
from tests.pending.rows import make_episode, make_looked
from tests.quota_requests import portal as changing
from tests.quota_requests import recorded
from tests.quota_requests.quota_api import serving
from tests.quotas.quota_rows import see_quota

DAY = timedelta(days=1)
DAYS = 2


class Stocked(Struct, frozen=True):
    """The small portal with rows of every kind; `window` are its days of facts."""

    portal: Portal
    changing: changing.Portal
    window: Window
    requests: tuple[int, ...]
    tokens: dict[str, str]


def make_stocked() -> Stocked:
    """Make the portal; the quota that its requests change is served by `served_quota` alone."""
    portal = make_portal()
    with serving(object_path(changing.TARGET), recorded.quota("gpu")) as api:
        window = _facts(portal)
        _waiting_and_limits(portal)
        make_recommendation(0)
        make_recommendation(1, team=None, saving_per_month=None, currency="")
        quota = _changing(portal, f"http://127.0.0.1:{api.port}")
        quota.api = api
        requests = tuple(_requests(quota))
        del quota.api
        return Stocked(portal, quota, window, requests, _tokens(portal))


@contextmanager
def served_quota(stocked: Stocked) -> Iterator[None]:
    """Serve the one quota that requests may change, and let all have been seen just now.

    A portal that was made some minutes ago may be one whose cluster nobody watches any more.
    """
    quota = stocked.changing
    quota.now = timezone.now().replace(microsecond=0)
    quota.watched()
    for cluster in stocked.portal.clusters:
        make_looked(cluster, quota.now)
    with serving(object_path(changing.TARGET), recorded.quota("gpu")) as api:
        address = f"http://127.0.0.1:{api.port}"
        quota.cluster.kubernetes = {"api_server": address, "writer": {"api_server": address}}
        quota.cluster.save()
        yield


def _facts(portal: Portal) -> Window:
    """Collect, price and judge the last whole days."""
    for model, kind, amount in PRICES:
        make_price(model, kind, amount)
    gold, silver = portal.tiers
    for team, tier in ((portal.vision, gold), (portal.speech, gold), (portal.speech, silver)):
        Entitlement.objects.create(team=team, tier=tier, gpus=3.0, weight=3.0, valid_from=BEGINNING)
    now = timezone.now()
    today = day_of(now, portal.zone)
    window = Window(
        day_window(today - DAYS * DAY, portal.zone).start, day_window(today, portal.zone).start
    )
    portal.collect(window)
    CollectionWindow.objects.update(collected_at=window.end, serving="read")
    _serve(portal)
    price_hours(now=now)
    compute_hours(now=now)
    return window


def _serve(portal: Portal) -> None:
    """Let the pods of vision answer a request a second in every hour that they have."""
    names = ("hour", "cluster_id", "tier_id", "gpu_model_id", "capacity_type", "team_id")
    ServingHour.objects.bulk_create(
        ServingHour(
            **{name: getattr(fact, name) for name in (*names, "namespace_id", "workload_id")},
            pod_id=fact.pod_id,
            model="llama",
            engine="vLLM",
            measured=fact.allocated,
            measured_seconds=3600,
            requests=3600,
            tokens_in=360_000,
            tokens_out=90_000,
        )
        for fact in PodHour.objects.filter(team=portal.vision).order_by("pk")
    )


def _waiting_and_limits(portal: Portal) -> None:
    now = timezone.now()
    west, _ = portal.clusters
    for cluster in portal.clusters:
        make_looked(cluster, now)
    for space, cause, counts in (
        ("vision", "capacity", "pending"),
        ("speech", "quota", "suppressed"),
    ):
        make_episode(
            make_workload(west, space, "train"),
            f"{space}-waits",
            since=now - DAY,
            cause=cause,
            counts=counts,
            tier=portal.tiers[0],
            message="0/7 nodes are available: 5 Insufficient nvidia.com/gpu.",
            findings={"node_reasons": {"Insufficient nvidia.com/gpu": 5}},
        )
        see_quota(west, space, 8.0, used=6.0, since=now - 3 * DAY)
    given: dict[str, Any] = {"team": portal.vision, "valid_from": BEGINNING}
    Budget.objects.create(period="month", gpu_hours=1000.0, **given)
    Budget.objects.create(period="quarter", money="20000", currency="USD", **given)


def _changing(portal: Portal, url: str) -> changing.Portal:
    west, _ = portal.clusters
    west.kubernetes = {"api_server": url, "writer": {"api_server": url}}
    west.save()
    make_team("vision", "team-vision")
    people = {name: getattr(portal, name) for name in ("ada", "ben", "cleo", "dan", "finn")}
    people["carl"] = make_user("carl", Role.ADMIN)
    quota = changing.Portal(
        *(west, portal.vision, portal.speech, portal.tiers[0], people),
        now=timezone.now().replace(microsecond=0),
    )
    quota.see(6, used=6.0)
    return quota


def _requests(quota: changing.Portal) -> Iterator[int]:
    """Make requests in every state: some as people make them, the others as copies of one.

    One quota key has one open request, so each copy is of a quota of its own.
    """
    yield quota.draft()
    first = quota.approved()
    yield first
    for state in RequestState:
        copy = quota.of(first)
        copy.pk, copy.name, copy.state = None, f"gpu-{state.name.lower().replace('_', '-')}", state
        copy.reviewer = "cleo" if state is RequestState.IN_REVIEW else ""
        copy.save(force_insert=True)
        Author.objects.create(request=copy, username="ada")
        Comment.objects.create(request=copy, at=quota.now, author="cleo", text="Seven?", offer="7")
        if state in {
            RequestState.APPLYING,
            RequestState.REVERTING,
            RequestState.APPLIED,
            RequestState.FAILED,
        }:
            _execution(copy, quota)
        yield copy.pk


def _execution(request: ChangeRequest, quota: changing.Portal) -> None:
    ended = request.state in {RequestState.APPLIED, RequestState.FAILED}
    Execution.objects.create(
        request=request,
        order=Execution.REVERT if request.state == RequestState.REVERTING else Execution.APPLY,
        mode=Execution.GITOPS,
        reviewed="6",
        wanted="8",
        patch_file={"name": "gpu.yaml", "text": "kind: ResourceQuota\n", "how": "Commit it."},
        started_by="cleo",
        started_at=quota.now,
        next_at=quota.now,
        before_raw="6",
        end=request.state if ended else "",
        ended_at=quota.now if ended else None,
    )


def _tokens(portal: Portal) -> dict[str, str]:
    """Return tokens with all scopes of their people, one that only reads, and one of nobody."""
    tokens = {
        "lead": token_of(portal.ada),
        "admin": token_of(portal.cleo),
        "finance": token_of(portal.finn),
        "viewer": token_of(portal.ben),
        "outsider": token_of(portal.dan),
        "nobody": "0" * 40,
    }
    key = issue_token(portal.cleo, name="r", scopes=[TokenScope.READ], now=timezone.now()).key
    return tokens | {"reader": key}
