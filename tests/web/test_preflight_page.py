"""The page on which a manifest is checked: answers, forms, limits, and what stays secret."""

import html
import random
import re
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.clusters.models import TierRule
from tests.factories import Portal
from tests.pending.pending_portal import at_most
from tests.planning.preflight_portal import GPU, add_slices, job, make_runs, watched_portal
from tests.web.appearances import is_exhaustive
from tests.web.test_access import SignIn

pytestmark = pytest.mark.django_db
URL, CHECK = "/preflight/", "/preflight/check"
WHERE = "west/vision"
SECRET = "hunter2-hunter2"


@pytest.fixture
def watched() -> Portal:
    return watched_portal()


@pytest.fixture
def ada(watched: Portal, signed_in: SignIn) -> Client:
    return signed_in(watched.ada)


def posted(client: Client, manifest: str, where: str = WHERE, **more: Any) -> tuple[int, str]:
    response = client.post(CHECK, {"where": where, "manifest": manifest, **more})
    return response.status_code, response.content.decode()


def words_of(page: str) -> str:
    """Return the text of the main part, its blanks collapsed."""
    main = page.partition("<main")[2].partition("</main>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", main)).split())


def test_what_starts_is_said_first_with_size_queue_time_and_cost(ada: Client) -> None:
    status, page = posted(ada, job(2))
    words = words_of(page)
    assert status == 200
    assert re.search(r"Starts now Job train Starting now 1 of 1 pod Size 2 GPUs", words)
    assert "Usual queue time p10–p90 1m 0s – 9m 0s p50 5m 0s" in words
    assert "Cost per hour $5.00" in words
    assert "Cost per run no data" in words
    assert "gpus ResourceQuota requests.nvidia.com/gpu 2 16 20 fits" in words
    assert "How to fix" not in words


def test_pending_work_has_its_cause_position_fix_and_alternatives(ada: Client) -> None:
    words = words_of(posted(ada, job(4))[1])
    assert "Pending Job train Starting now 0 of 1 pod" in words
    assert "Position 1 of 1 by priority, then age" in words
    assert "most free on one is 3" in words
    assert "capacity none free its allowed nodes have too little free" in words
    assert "How to fix" in words
    assert f"2 × {GPU}" in words.partition("Alternatives")[2]


def test_what_no_node_holds_cannot_start_and_has_no_queue_time(ada: Client) -> None:
    words = words_of(posted(ada, job(9))[1])
    assert "Cannot start Job train" in words
    assert "queue time" not in words.partition("How to fix")[0]


def test_work_without_pods_is_said_to_request_nothing(ada: Client) -> None:
    item = yaml.safe_load(job(2))
    item["kind"], item["spec"]["replicas"] = "Deployment", 0
    words = words_of(posted(ada, yaml.safe_dump(item))[1])
    assert "Nothing requested Deployment train It makes no pods, so it requests nothing." in words
    assert "of 0 pods" not in words


def test_a_daemon_set_that_no_node_takes_has_a_cause_and_no_amounts(ada: Client) -> None:
    item = yaml.safe_load(job(1, nodeSelector={"pool": "none"})) | {"kind": "DaemonSet"}
    words = words_of(posted(ada, yaml.safe_dump(item))[1])
    assert "Cannot start DaemonSet train Requests 1 nvidia.com/gpu. No node matches" in words
    assert "0 pods" not in words


def test_no_command_names_work_that_is_not_submitted(ada: Client) -> None:
    item = yaml.safe_load(job(1))
    item["spec"]["suspend"] = True
    words = words_of(posted(ada, yaml.safe_dump(item))[1]).partition("Quotas and queues")[0]
    assert "Submit the Job with suspend: false. For the workload owner. suspend: false" in words
    assert "kubectl" not in words


def test_what_requests_nothing_is_not_counted_among_what_starts(ada: Client) -> None:
    nothing = yaml.safe_load(job(2))
    nothing["kind"], nothing["spec"]["replicas"] = "Deployment", 0
    none = yaml.safe_dump(nothing)
    assert "1 of 2 start now" in words_of(posted(ada, "---\n".join([job(2), job(9), none]))[1])
    assert "Nothing is requested" in words_of(posted(ada, "---\n".join([none, none]))[1])


def test_a_quota_in_the_way_is_requested_with_limit_and_reason(
    ada: Client, watched: Portal, signed_in: SignIn
) -> None:
    page = posted(ada, job(1, 17))[1]
    (link,) = re.findall(r'href="(/quotas/requests/new/[^"]+)"', page)
    address = html.unescape(link)
    assert "train" not in address
    form = ada.get(address).content.decode()
    assert 'name="after" value="21"' in form or 'value="21"' in form
    assert f"Planned: 17 pods with 1 × {GPU}; requests.{GPU} leaves 16." in html.unescape(form)
    assert "Request change" not in posted(signed_in(watched.ben), job(1, 17))[1]


def test_the_run_of_a_family_and_a_cheaper_tier_are_told(ada: Client, watched: Portal) -> None:
    make_runs(watched)
    add_slices(watched)
    page = posted(ada, job(1))[1]
    assert "p10–p90, by replay or history" in page
    words = words_of(page)
    assert "Cost per run $10.00 median of 3 runs" in words
    assert "Run length: 4h 0m, the median of 3 runs of train-* in the last 30 days." in words
    assert "4,000 MiB" in words or "3.9 GiB" in words
    assert "1 × nvidia.com/mig-1g.10gb pool=slices slices" in words
    assert "fits measured use" in words


def test_several_workloads_are_counted_and_kinds_without_pods_named(ada: Client) -> None:
    config = yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": "x"}})
    words = words_of(posted(ada, "---\n".join([job(2), job(9), config]))[1])
    assert "1 of 2 start now" in words
    assert "Not checked, since the manifest has no pods of them: ConfigMap." in words


# ---------------------------------------------------------------- the small form


def test_a_request_is_checked_by_an_address_that_can_be_shared(ada: Client) -> None:
    address = f"{URL}?where={WHERE}&on=gold&gpus=4&pods=2"
    response = ada.get(address)
    words = words_of(response.content.decode())
    assert "Pending Job my-job Starting now 0 of 2 pods" in words
    assert f"http://testserver{address}" in words
    shown = re.search(r"<textarea[^>]*>(.*?)</textarea>", response.content.decode(), re.S)
    assert shown is not None
    made = yaml.safe_load(html.unescape(shown[1]))
    assert made["spec"]["parallelism"] == 2
    assert made["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "gold"}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (f"where={WHERE}&gpus=1", "Choose a tier or a resource."),
        (f"where={WHERE}&gpus=0&on=gold", "The number of GPUs is a whole number from 1 to 1,024."),
        (f"where={WHERE}&gpus=1&pods=x&on=gold", "The number of pods is a whole number from 1"),
        (f"where={WHERE}&gpus=1&on=none", "There is no tier “none”."),
        ("where=vision&gpus=1&on=gold", "Choose a namespace, written as cluster/namespace."),
        ("where=east/stray&gpus=1&on=gold", "There is no namespace stray on east"),
    ],
)
def test_a_request_that_makes_no_sense_is_told_in_one_sentence(
    query: str, sentence: str, ada: Client
) -> None:
    assert sentence in words_of(ada.get(f"{URL}?{query}").content.decode())


def test_a_class_of_devices_a_priority_and_a_queue_are_part_of_the_manifest(
    ada: Client, watched: Portal
) -> None:
    query = f"where={WHERE}&on=silver&gpus=2&priority=high&queue=main"
    TierRule.objects.filter(tier=watched.tiers[1]).update(
        resources=[], device_classes=["gpu.example.com"]
    )
    page = ada.get(f"{URL}?{query}").content.decode()
    shown = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.S)
    assert shown is not None
    template, made = yaml.safe_load_all(html.unescape(shown[1]))
    assert template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "main"}
    assert made["spec"]["template"]["spec"]["priorityClassName"] == "high"


# ---------------------------------------------------------------- what is refused


def test_an_uploaded_file_is_checked_in_place_of_the_text(ada: Client) -> None:
    file = SimpleUploadedFile("job.yaml", job(2).encode(), "application/yaml")
    status, page = posted(ada, "kind: [", file=file)
    assert (status, "Starts now" in page) == (200, True)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(b"\x89PNG\r\n\x1a\n\x00", "The file is not text in UTF-8.", id="binary"),
        pytest.param(b"kind: Pod\x00", "a character that YAML does not allow", id="NUL"),
        pytest.param(b"x" * 1_000_000, "Line 1: is longer than 512 KiB.", id="1 MB"),
        pytest.param(b"", "Paste a manifest or choose a file.", id="empty"),
        pytest.param(b"\xef\xbb\xbfkind: Pod\nspec: [", "Line 3, spec[0]: ", id="cut off"),
        pytest.param(
            b"a: &a [x,x,x,x,x,x,x,x,x]\n"
            + b"".join(
                f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n".encode()
                for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "has more than 20000 values",
            id="bomb",
        ),
        pytest.param(b"- " * 100, "nested deeper than 64 levels", id="deep"),
        pytest.param(b"a: !!python/object/apply:os.system x", "is not allowed", id="tag"),
    ],
)
def test_a_bad_file_is_told_in_one_sentence(content: bytes, sentence: str, ada: Client) -> None:
    file = SimpleUploadedFile("job.yaml", content)
    status, page = posted(ada, "", file=file)
    problem = re.search(r'id="preflight-problem">([^<]*)<', page)
    assert problem is not None
    assert (status, sentence in html.unescape(problem[1])) == (400, True), problem[1]


def test_a_form_that_is_too_large_is_refused_before_it_is_read(ada: Client) -> None:
    status, said = posted(ada, "x" * 2_300_000)
    assert (status, said) == (413, "The manifest has 2.2 MiB; 512 KiB is the limit.")


def test_no_fuzzed_manifest_breaks_the_page(ada: Client) -> None:
    chance = random.Random(21)  # noqa: S311
    text = job(2, 3)
    signs = "{}[]:,&*!|>'\"%@`#-?\n\t \x00é"
    for _ in range(500 if is_exhaustive() else 120):
        parts = list(text)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(parts))
            parts[at : at + chance.randint(0, 3)] = chance.choice(signs)
        status, page = posted(ada, "".join(parts))
        assert status in {200, 400, 422}
        assert (status == 200) is ('class="card answer' in page)
        if status == 400:
            assert re.search(r'id="preflight-problem">(Line \d+|Paste)', page), "".join(parts)


# ---------------------------------------------------------------- who, and what stays secret


def test_a_manifest_is_in_no_address_and_nothing_of_it_is_kept(
    ada: Client, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = job(9).replace("name: train", f"name: {SECRET}")
    response = ada.post(CHECK, {"where": WHERE, "manifest": manifest})
    page = response.content.decode()
    assert SECRET in page
    assert not [
        link for link in re.findall(r'(?:href|action|src)="([^"]*)"', page) if SECRET in link
    ]
    assert "no-store" in response["Cache-Control"]
    assert SECRET not in caplog.text
    assert SECRET not in ada.get(URL).content.decode()


def test_the_token_of_the_form_is_asked_for(watched: Portal, signed_in: SignIn) -> None:
    signed = signed_in(watched.ada)
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = signed.cookies
    assert posted(strict, job(1))[0] == 403


def test_namespaces_of_others_are_neither_listed_nor_answered_for(
    watched: Portal, signed_in: SignIn
) -> None:
    dan, cleo = signed_in(watched.dan), signed_in(watched.cleo)
    listed = re.findall(r'<option value="(west/[^"]+)"', dan.get(URL).content.decode())
    assert "west/vision" not in listed
    assert "west/vision" in cleo.get(URL).content.decode()
    status, page = posted(dan, job(1))
    assert (status, "There is no namespace vision on west" in page) == (404, True)
    missing = posted(dan, job(1), "west/none")[1]
    assert words_of(page).replace("vision", "none") == words_of(missing).replace("vision", "none")


def test_a_cluster_without_a_watch_is_said_so(watched: Portal, signed_in: SignIn) -> None:
    status, page = posted(signed_in(watched.cleo), job(1), "east/stray")
    assert (status, "No watch follows east" in page) == (422, True)


def test_an_answer_takes_few_queries_whatever_the_manifest(ada: Client) -> None:
    posted(ada, job(1))
    many = "---\n".join(job(gpus, pods) for gpus in (1, 2, 4) for pods in (1, 2))
    with at_most(30):
        assert posted(ada, many)[0] == 200


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("/pending/", "/preflight/"),
        ("/capacity/tiers/gold/?tab=manifest", "/preflight/?on=gold&amp;gpus=1"),
        (
            f"/quotas/requests/new/?key=west/ResourceQuota/vision/gpus/requests.{GPU}",
            "/preflight/?where=west%2Fvision",
        ),
    ],
)
def test_other_pages_lead_to_it(address: str, link: str, ada: Client) -> None:
    assert f'href="{link}' in ada.get(address).content.decode()
