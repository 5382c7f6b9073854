"""Who is behind a pod: names as tools write them, what is kept of them, and whose account it is."""

from datetime import timedelta
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.utils import timezone
from hypothesis import example, given
from hypothesis import strategies as st

from apps.accounts.domain.identity import AccountNames, account_of
from apps.accounts.models import Team
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.models import Alert, IdleAnswer
from apps.clusters.adapters.kubernetes.shapes import Decoders
from apps.clusters.adapters.prometheus.kube_state.people import shown_as
from apps.clusters.domain.observed.objects import ObservedKind
from apps.clusters.domain.pods.ledger import LastSeen, Owner, PodRecord, PodSource
from apps.clusters.domain.pods.people import (
    KNOWN_TOOLS,
    PersonSource,
    PersonSourceRefused,
    person_behind,
    person_in,
    person_of,
    person_sources,
    profile_owner,
    unescaped,
)
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.models import (
    Cluster,
    FormerPerson,
    ObservedObject,
    ObservedPerson,
    Pod,
    PodPerson,
)
from apps.clusters.ports import ObjectChange
from apps.clusters.selectors import accounts_of, people_of
from apps.clusters.services import TierHistory, forget_people, write_people
from apps.clusters.services.watch.collections import (
    NAMESPACES,
    PODS,
    Item,
    Relisted,
    WatchEvent,
)
from apps.clusters.services.watch.follow import snapshot
from apps.clusters.services.watch.people_watch import PeopleWatch
from apps.usage.services.sources import read_ledger
from gpuportal.people import People
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.fakes.fake_metrics import FakeMetrics
from tests.clusters.kube_factories import T0, at, done_pod, owner, run_pod
from tests.factories import ensure_builtin, make_user
from tests.served_lab import scenario_of, served_lab
from tests.simulator.truths import NOW

HUB = KNOWN_TOOLS["jupyterhub"]
ON = People(person_sources(["jupyterhub", "created-by"]), days=30)
DATABASE = pytest.mark.django_db


@pytest.fixture
def on(settings: Any) -> None:
    settings.PEOPLE = ON


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.objects.create(name="west", kubernetes={"api_server": "http://127.0.0.1:1"})


def escaped(name: str) -> str:
    """Escape a name as JupyterHub did before its version 5: all but lower letters and digits."""
    return "".join(
        sign
        if sign.isascii() and (sign.islower() or sign.isdigit())
        else "".join(f"-{byte:02x}" for byte in sign.encode())
        for sign in name
    )


# ---------------------------------------------------------------- names


@given(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1))
@example("eva@campus.example")
@example("a-b")
def test_what_was_escaped_comes_back(name: str) -> None:
    assert unescaped(escaped(name)) == (name if name.isprintable() else escaped(name))


@given(st.text(max_size=300))
def test_any_value_gives_a_name_that_can_be_kept_or_none(value: str) -> None:
    for source in HUB:
        found = person_in(value, source)
        assert found.isprintable()
        assert len(found) <= 253
        assert found == found.strip().lower()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("eva-40campus-2eexample", "eva@campus.example"),
        ("test-5fuser", "test_user"),
        # Not escaped, or by the newer scheme, which ends in a digest: nothing is made up.
        ("hans-peter", "hans-peter"),
        ("eva---0d1b2c3d", "eva---0d1b2c3d"),
        ("x-ff", "x-ff"),
        ("x-00", "x-00"),
    ],
)
def test_a_label_of_jupyterhub(value: str, name: str) -> None:
    assert unescaped(value) == name


def test_the_first_source_that_names_somebody_counts() -> None:
    metadata = {
        "labels": {"hub.jupyter.org/username": "eva-40campus-2eexample", "created-by": "mira"},
        "annotations": {"hub.jupyter.org/username": "Eva@campus.example"},
    }
    assert person_of(metadata, ON.sources) == "eva@campus.example"
    assert person_of({"labels": metadata["labels"]}, ON.sources) == "eva@campus.example"
    assert (
        person_of({"labels": {"created-by": " Mira "}, "annotations": None}, ON.sources) == "mira"
    )
    assert person_of({"labels": {"created-by": "system:serviceaccount:a:b"}}, ON.sources) == ""
    assert person_of({}, ON.sources) == ""


def test_keys_of_ones_own_stand_beside_known_tools() -> None:
    assert person_sources(["label:example.org/user", "ray", "ray"]) == (
        PersonSource("example.org/user"),
        PersonSource("ray.io/user"),
    )


@pytest.mark.parametrize("word", ["jupyter", "label:", "annotation:a b", "label:/x", "notes:x"])
def test_a_word_that_names_no_source_is_told(word: str) -> None:
    with pytest.raises(PersonSourceRefused, match=r"write one of|is no key"):
        person_sources([word])


@pytest.mark.parametrize(
    ("person", "username"),
    [
        ("ben", "ben"),
        ("BEN", "ben"),
        ("ben@campus.example", "ben"),
        ("eva@campus.example", "e.king"),
        ("eva", "e.king"),
        # Somebody else has this address's part before @ as a user name, but another address.
        ("ben@elsewhere.example", None),
        ("lin@campus.example", "lin"),
        # Two accounts fit: neither sees it.
        ("sam", None),
        # The subject at the sign-in provider, of an account that signed in by two providers.
        ("F3A1-77", "e.king"),
        ("old-9", "e.king"),
        ("shared", None),
        ("nobody", None),
        ("", None),
    ],
)
def test_a_person_is_one_account_or_none(person: str, username: str | None) -> None:
    accounts = [
        AccountNames("ben", "ben@campus.example"),
        AccountNames("e.king", "eva@campus.example", "f3a1-77"),
        AccountNames("e.king", "eva@campus.example", "old-9"),
        AccountNames("lin", ""),
        AccountNames("s.one", "sam@a.example", "shared"),
        AccountNames("s.two", "sam@b.example", "Shared"),
    ]
    assert account_of(person, accounts) == username


# ---------------------------------------------------------------- keeping


def _pods(cluster: Cluster) -> FakeCluster:
    source = FakeCluster()
    for uid, person in (("uid-1", "ben"), ("uid-2", "")):
        item = run_pod(uid) if uid == "uid-1" else done_pod(uid)
        if person:
            item["metadata"]["labels"] = {"created-by": person}
        source.put(PODS, item)
    snapshot(cluster, source, at(100))
    return source


@DATABASE
def test_nothing_of_persons_is_kept_where_that_is_off(cluster: Cluster) -> None:
    assert django_settings.PEOPLE is None
    _pods(cluster)
    assert Pod.objects.count() == 2
    assert not PodPerson.objects.exists()


@DATABASE
@pytest.mark.usefixtures("on")
def test_the_watch_keeps_who_is_behind_a_pod(cluster: Cluster) -> None:
    _pods(cluster)
    (row,) = PodPerson.objects.select_related("pod")
    assert (row.pod.uid, row.person) == ("uid-1", "ben")


@DATABASE
def test_pods_that_are_known_already_get_their_person_when_it_is_turned_on(
    cluster: Cluster, settings: Any
) -> None:
    source = _pods(cluster)
    settings.PEOPLE = ON
    snapshot(cluster, source, at(200))
    assert PodPerson.objects.count() == 1


@DATABASE
@pytest.mark.usefixtures("on")
def test_persons_go_after_their_own_retention_and_all_when_it_is_turned_off(
    cluster: Cluster, settings: Any
) -> None:
    _pods(cluster)
    write_people(cluster.pk, {"uid-2": "eva", "unknown": "mira"})
    assert PodPerson.objects.count() == 2
    ended = Pod.objects.get(uid="uid-2").ended_at
    assert ended is not None
    assert forget_people(now=ended + timedelta(days=30)) == 0
    assert forget_people(now=ended + timedelta(days=30, seconds=1)) == 1
    # Whoever still holds GPUs is known for as long as that lasts.
    assert PodPerson.objects.get().person == "ben"
    settings.PEOPLE = None
    assert forget_people(now=ended) == 1
    assert Pod.objects.count() == 2


@DATABASE
@pytest.mark.usefixtures("on")
def test_a_name_that_is_given_to_another_person_brings_no_work_of_the_former_one(
    cluster: Cluster, settings: Any
) -> None:
    _pods(cluster)
    write_people(cluster.pk, {"uid-1": "ben", "uid-2": "ben"})
    job = ObservedObject.objects.create(
        cluster=cluster, kind="job", uid="uid-job", namespace="a", name="later",
        first_at=from_seconds(T0), changed_at=from_seconds(T0),
    )  # fmt: skip
    ObservedPerson.objects.create(object=job, person="ben")
    ben = make_user("Ben")
    theirs = {"kind": AlertKind.DIGEST.value, "subject": "x", "title": "x", "text": "x"}
    Alert.objects.create(key="1", person=ben, at=from_seconds(T0), **theirs)
    Alert.objects.create(key="2", person=make_user("ada"), at=from_seconds(T0), **theirs)
    IdleAnswer.objects.create(
        subject="workload:a/b/c", choice="silence", at=from_seconds(T0), person="Ben",
        of_person=True, team=Team.objects.create(name="vision"),
    )  # fmt: skip
    assert people_of(ben) == {"ben"}
    call_command("end_names", "BEN")
    assert people_of(ben) == frozenset()
    assert not PodPerson.objects.exists()
    assert not ObservedPerson.objects.exists()
    assert [one.key for one in Alert.objects.all()] == ["2"]
    assert IdleAnswer.objects.get().person == ""
    # Hours that are collected again tell it anew, and it is still nobody's; new work is theirs.
    write_people(cluster.pk, {"uid-1": "ben", "uid-2": "eva"})
    assert [row.person for row in PodPerson.objects.all()] == ["eva"]
    watch = PeopleWatch()
    item = {"metadata": {"uid": "uid-job", "namespace": "a", "labels": {"created-by": "ben"}}}
    watch.apply([Relisted("/apis/batch/v1/jobs", [item], T0)], lambda _: ObservedKind.JOB)
    watch.write(cluster.pk)
    assert not ObservedPerson.objects.exists()
    Pod.objects.filter(uid="uid-1").update(created_at=timezone.now())
    write_people(cluster.pk, {"uid-1": "ben"})
    assert people_of(ben) == {"ben"}
    # Where persons are not kept, neither is this.
    settings.PEOPLE = None
    forget_people(now=timezone.now())
    assert not FormerPerson.objects.exists()


@DATABASE
@pytest.mark.usefixtures("on")
def test_a_name_ends_on_a_day_that_has_come(cluster: Cluster) -> None:
    _pods(cluster)
    write_people(cluster.pk, {"uid-2": "ben"})
    created = Pod.objects.get(uid="uid-2").created_at
    call_command("end_names", "ben", "--before", f"{created.date() - timedelta(days=1)}")
    assert PodPerson.objects.count() == 2
    call_command("end_names", "ben", "--before", f"{created.date() + timedelta(days=2)}")
    assert not PodPerson.objects.exists()
    for day in ("tomorrow", "2099-01-01"):
        with pytest.raises(CommandError, match=r"is not a date|is in the future"):
            call_command("end_names", "ben", "--before", day)


@DATABASE
@pytest.mark.usefixtures("on")
def test_an_account_has_the_persons_that_are_its_own(cluster: Cluster, settings: Any) -> None:
    _pods(cluster)
    ben, other = make_user("ben"), make_user("ada")
    other.email = "ada@campus.example"
    other.save()
    write_people(cluster.pk, {"uid-2": "ada@campus.example"})
    assert people_of(ben) == {"ben"}
    assert people_of(other) == {"ada@campus.example"}
    assert accounts_of(["ben", "ada", "mira"]) == {"ben": "ben", "ada": "ada"}
    settings.PEOPLE = None
    assert people_of(ben) == frozenset()


@DATABASE
@pytest.mark.usefixtures("on")
def test_an_account_has_the_person_that_is_its_subject_at_the_provider(cluster: Cluster) -> None:
    _pods(cluster)
    ben, ada = make_user("ben"), make_user("ada")
    for issuer, subject in (("https://a.example", "F3A1-77"), ("https://b.example", "old-9")):
        SocialAccount.objects.create(user=ada, provider=issuer, uid=subject)
    write_people(cluster.pk, {"uid-2": "f3a1-77"})
    assert people_of(ada) == {"f3a1-77"}
    assert people_of(ben) == {"ben"}
    assert accounts_of(["F3A1-77", "old-9", "ben"]) == {
        "F3A1-77": "ada",
        "old-9": "ada",
        "ben": "ben",
    }
    # Of two providers that name two persons alike neither is to see the other's work.
    SocialAccount.objects.create(user=ben, provider="https://c.example", uid="f3a1-77")
    assert people_of(ada) == frozenset()
    assert people_of(ben) == {"ben"}


def test_annotations_are_decoded_only_where_one_may_name_a_person() -> None:
    pod = b'{"metadata": {"name": "a", "annotations": {"hub.jupyter.org/username": "eva"}}}'
    assert Decoders("pods").item.decode(pod)["metadata"]["annotations"] == {}
    shown = Decoders("pods", annotated=True).item.decode(pod)
    assert person_of(shown["metadata"], HUB) == "eva"


# ---------------------------------------------------------------- as tools write it

JUPYTERHUB = """{"metadata": {"name": "jupyter-eva", "uid": "u1", "namespace": "hub",
 "labels": {"app": "jupyterhub", "component": "singleuser-server",
  "hub.jupyter.org/username": "eva-40campus-2eexample", "hub.jupyter.org/servername": ""},
 "annotations": {"hub.jupyter.org/username": "eva@campus.example"}}}"""
KUBESPAWNER_7 = JUPYTERHUB.replace("eva-40campus-2eexample", "eva-campus-example---0d1b2c3d")
KUBEFLOW = """{"metadata": {"name": "lab-0", "uid": "u1", "namespace": "team-eva",
 "labels": {"notebook-name": "lab", "statefulset": "lab"},
 "annotations": {"notebooks.kubeflow.org/creator": "eva@campus.example"}}}"""
OPEN_DATA_HUB = """{"metadata": {"name": "lab-0", "uid": "u1", "namespace": "rhods-notebooks",
 "labels": {"opendatahub.io/user": "eva-40campus-2eexample"}, "annotations": null}}"""
RAY = """{"metadata": {"name": "raycluster-a-worker-x1", "uid": "u1", "namespace": "vision",
 "labels": {"ray.io/cluster": "raycluster-a",
  "ray.io/node-type": "worker", "ray.io/user": "Eva"}}}"""
SLINKY = """{"metadata": {"name": "pod-a", "uid": "u1", "namespace": "slurm-bridge",
 "annotations": {"slurmjob.slinky.slurm.net/user-id": "eva",
  "slurmjob.slinky.slurm.net/account": "physics"}}}"""
SLINKY_OLD = """{"metadata": {"name": "pod-a", "uid": "u1", "namespace": "slurm-bridge",
 "annotations": {"slinky.slurm.net/user-id": "1001"}}}"""
CREATED_BY = """{"metadata": {"name": "a", "uid": "u1", "namespace": "vision",
 "annotations": {"created-by": "eva"}, "labels": {"created-by": "somebody-else"}}}"""


@pytest.mark.parametrize(
    ("word", "pod", "person"),
    [
        ("jupyterhub", JUPYTERHUB, "eva@campus.example"),
        ("jupyterhub", KUBESPAWNER_7, "eva@campus.example"),
        ("kubeflow", KUBEFLOW, "eva@campus.example"),
        ("kubeflow", OPEN_DATA_HUB, "eva@campus.example"),
        ("ray", RAY, "eva"),
        ("slurm", SLINKY, "eva"),
        # A numeric id of a user is a person like any: of no account, so seen by leads alone.
        ("slurm", SLINKY_OLD, "1001"),
        ("created-by", CREATED_BY, "eva"),
        ("ray", SLINKY, ""),
    ],
)
def test_pods_as_tools_write_them(word: str, pod: str, person: str) -> None:
    shown = Decoders("pods", annotated=True).item.decode(pod)
    assert person_of(shown["metadata"], person_sources([word])) == person


PROFILE = """{"metadata": {"name": "vision", "uid": "ns", "labels":
 {"app.kubernetes.io/part-of": "kubeflow-profile"}, "annotations": {"owner": "Eva@campus.example"},
 "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "Profile", "name": "vision",
  "uid": "p1", "controller": true}]}}"""
SUSPENDED_JOB = """{"metadata": {"name": "train", "uid": "uid-job", "namespace": "vision",
 "creationTimestamp": "2026-03-02T00:00:00Z", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
 "spec": {"suspend": true, "parallelism": 1, "completions": 1, "template": {"metadata":
  {"annotations": {"created-by": "ben"}}, "spec": {"containers":
  [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}, "status": {}}"""
WORKLOAD = """{"metadata": {"name": "rayjob-a", "uid": "uid-wl", "namespace": "vision",
 "creationTimestamp": "2026-03-02T00:00:00Z"}, "spec": {"queueName": "q", "podSets": [{"name":
 "main", "count": 1, "template": {"metadata": {"labels": {"created-by": "ben"}}, "spec":
 {"containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}}}]}}"""
JOBS = "/apis/batch/v1/jobs"


def decoded(plural: str, written: str, *, annotated: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = Decoders(plural, annotated=annotated).item.decode(written)
    return found


def test_controllers_and_workloads_of_kueue_tell_by_their_template() -> None:
    assert person_behind(decoded("jobs", SUSPENDED_JOB), ON.sources) == "ben"
    assert person_behind(decoded("workloads", WORKLOAD), ON.sources) == "ben"
    # Without a source that is an annotation no annotation is decoded.
    assert person_behind(decoded("jobs", SUSPENDED_JOB, annotated=False), ON.sources) == ""
    labelled = SUSPENDED_JOB.replace('"annotations"', '"labels"')
    assert person_behind(decoded("jobs", labelled, annotated=False), ON.sources) == "ben"


def test_only_a_namespace_of_a_profile_has_an_owner_who_counts() -> None:
    sources = person_sources(["kubeflow"])
    assert profile_owner(decoded("namespaces", PROFILE), sources) == "eva@campus.example"
    assert profile_owner(decoded("namespaces", PROFILE), ON.sources) == ""
    other = PROFILE.replace('"Profile"', '"Team"')
    assert profile_owner(decoded("namespaces", other), sources) == ""


@DATABASE
def test_a_pod_that_names_no_person_has_that_of_its_controller_or_profile(
    cluster: Cluster, settings: Any
) -> None:
    settings.PEOPLE = People(person_sources(["created-by", "kubeflow"]))
    source = FakeCluster()
    job = decoded("jobs", SUSPENDED_JOB)
    source.put(JOBS, job)
    source.put(NAMESPACES, decoded("namespaces", PROFILE))
    owned = run_pod("uid-1")
    owned["metadata"]["ownerReferences"] = [owner("Job", "train", "uid-job", "batch/v1")]
    source.put(PODS, owned)
    source.put(PODS, run_pod("uid-2", name="b"))
    snapshot(cluster, source, at(100))
    assert dict(PodPerson.objects.values_list("pod__uid", "person")) == {
        "uid-1": "ben",
        "uid-2": "eva@campus.example",
    }


@pytest.mark.parametrize("way", ["deleted", "made anew", "listed without it", "taken from it"])
def test_pods_of_a_namespace_without_its_profile_are_not_its_owners(
    way: str, settings: Any
) -> None:
    settings.PEOPLE = People(person_sources(["kubeflow"]))
    profile, plain = decoded("namespaces", PROFILE), {"metadata": {"name": "vision", "uid": "n2"}}
    people, pod = PeopleWatch(), run_pod("uid-1")
    people.apply([Relisted(NAMESPACES, [profile], 0.0)], lambda _: None)
    assert people.of_pod(pod) == "eva@campus.example"
    later: dict[str, list[Item]] = {
        "deleted": [WatchEvent(NAMESPACES, ObjectChange("DELETED", profile), 1.0)],
        "made anew": [
            WatchEvent(NAMESPACES, ObjectChange("DELETED", profile), 1.0),
            WatchEvent(NAMESPACES, ObjectChange("ADDED", plain), 2.0),
        ],
        "listed without it": [Relisted(NAMESPACES, [], 1.0)],
        "taken from it": [WatchEvent(NAMESPACES, ObjectChange("MODIFIED", plain), 1.0)],
    }
    people.apply(later[way], lambda _: None)
    assert people.of_pod(pod) == ""


@DATABASE
@pytest.mark.usefixtures("on")
def test_work_without_a_pod_is_of_whom_it_names_and_goes_as_pods_do(
    cluster: Cluster, settings: Any
) -> None:
    source = FakeCluster()
    source.put(JOBS, decoded("jobs", SUSPENDED_JOB))
    snapshot(cluster, source, at(100))
    assert list(ObservedPerson.objects.values_list("object__uid", "person")) == [("uid-job", "ben")]
    assert people_of(make_user("ben")) == {"ben"}
    assert forget_people(now=at(200)) == 0
    settings.PEOPLE = None
    assert forget_people(now=at(200)) == 1
    assert not ObservedPerson.objects.exists()


# ---------------------------------------------------------------- series


@DATABASE
def test_series_are_asked_for_persons_only_where_these_are_kept(
    cluster: Cluster, settings: Any
) -> None:
    ensure_builtin()
    start = T0 - T0 % 3600
    window = Window(from_seconds(start), from_seconds(start + 3600))
    pods = [
        PodRecord(
            uid=uid, namespace="vision", name=uid, owner=Owner("Job", "train"),
            requests={"nvidia.com/gpu": 1.0}, created=start + 60, node="n1", bound=start + 90,
            source=PodSource.METRICS, last_seen=LastSeen(start + 3600, gone=False),
        )
        for uid in ("uid-a", "uid-b")
    ]  # fmt: skip
    source = FakeMetrics(pods=pods, persons={"uid-a": "ben", "of no GPU": "eva"})
    read_ledger(cluster, window, source, TierHistory.load(), now=window.end)
    assert "people" not in source.calls
    assert Pod.objects.count() == 2
    settings.PEOPLE = ON
    read_ledger(cluster, window, source, TierHistory.load(), now=window.end)
    assert source.calls.count("people") == 1
    assert list(PodPerson.objects.values_list("pod__uid", "person")) == [("uid-a", "ben")]


def test_the_series_that_show_a_label_and_an_annotation() -> None:
    assert shown_as(HUB[0]) == ("kube_pod_annotations", "annotation_hub_jupyter_org_username")
    assert shown_as(HUB[1]) == ("kube_pod_labels", "label_hub_jupyter_org_username")


def test_series_of_the_simulator_tell_who_is_behind_pods() -> None:
    from apps.clusters.adapters.prometheus.client import PrometheusApi
    from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
    from apps.clusters.adapters.prometheus.source import PrometheusSource

    with served_lab(scenario_of("campus", NOW), NOW) as url:
        source = PrometheusSource(PrometheusApi(PrometheusConfig(url=url)))
        end = NOW // 3600 * 3600
        window = Window(from_seconds(end - 3600), from_seconds(end))
        found = set(source.people(window, ON.sources).values())
    assert {"ben", "eva@campus.example"} <= found
