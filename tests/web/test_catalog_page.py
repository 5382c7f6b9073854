"""The tiers compared, what each offers, and the guide to the one that suits."""

import html
import itertools
import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest
import yaml
from django.test import Client

from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.models import TierRule
from apps.clusters.selectors import TierRow
from apps.costs.models import Price
from apps.quotas.models import Entitlement
from apps.web.clusters import tier_catalog as catalog
from apps.web.clusters import tier_guide
from apps.web.clusters.tier_catalog import KINDS, Cost, price_text
from apps.web.components.listings import LISTED_PENDING_GPUS
from tests.factories import A100, H100, Portal
from tests.web.conftest import LOOKED
from tests.web.pages import check_explained, records_of, text_of
from tests.web.shown import tables_of
from tests.web.test_devices_page import words

SHAPE = "Change the shape of your work"
STEADY_PART = {
    "gpus": "part",
    "memory": "known",
    "load": "steady",
    "processes": "few",
    "attributes": "no",
}


def tier(**values: object) -> TierRow:
    given: dict[str, object] = {
        "name": "gold",
        "sharing": "exclusive",
        "resources": ("nvidia.com/gpu",),
        "device_classes": (),
        "node_selector": {},
        "promise": "",
        "allowed_teams": (),
        "builtin": False,
    }
    return TierRow(**{**given, **values})  # type: ignore[arg-type]


def test_every_kind_of_sharing_is_described() -> None:
    assert set(KINDS) == set(GpuSharing)


@pytest.mark.parametrize(
    ("changed", "title", "first"),
    [
        pytest.param({}, "A MIG slice", GpuSharing.MIG, id="steady and small"),
        pytest.param(
            {"load": "bursty"}, "A time-sliced share", GpuSharing.TIME_SLICED, id="bursts"
        ),
        pytest.param({"processes": "many"}, "A share under MPS", GpuSharing.MPS, id="many small"),
        pytest.param({"attributes": "yes"}, "A device claim", GpuSharing.DRA, id="attributes"),
        pytest.param({"gpus": "several"}, "Whole GPUs", GpuSharing.EXCLUSIVE, id="several GPUs"),
        pytest.param({"gpus": "one"}, "A whole GPU", GpuSharing.EXCLUSIVE, id="one GPU"),
        pytest.param({"memory": "unknown"}, SHAPE, GpuSharing.EXCLUSIVE, id="memory not known"),
        pytest.param(
            {"gpus": "several", "load": "bursty"}, SHAPE, GpuSharing.EXCLUSIVE, id="bursts on many"
        ),
        pytest.param(
            {"gpus": "one", "processes": "many"}, SHAPE, GpuSharing.MPS, id="many on whole"
        ),
    ],
)
def test_the_guide_ends_at_a_kind_of_tier_or_at_another_shape_of_work(
    changed: dict[str, str], title: str, first: GpuSharing
) -> None:
    advice = tier_guide.advise(STEADY_PART | changed)
    assert advice is not None
    assert advice.title.startswith(title)
    assert advice.kinds[0] is first
    assert bool(advice.reshape) == (title == SHAPE)


def test_the_guide_has_an_answer_to_every_combination_and_to_no_fewer() -> None:
    options = [[value for value, _ in question.options] for question in tier_guide.QUESTIONS]
    keys = [question.key for question in tier_guide.QUESTIONS]
    for values in itertools.product(*options):
        answers = dict(zip(keys, values, strict=True))
        assert tier_guide.advise(answers) is not None
        for key in keys:
            assert tier_guide.advise({k: v for k, v in answers.items() if k != key}) is None


def test_answers_that_are_no_options_do_not_count() -> None:
    assert tier_guide.answered({"gpus": "part", "memory": "lots", "other": "x"}) == {"gpus": "part"}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(tier(node_selector={"nvidia.com/gpu.product": "A100"}), id="with a selector"),
        pytest.param(tier(node_selector={"gpu": "yes", "slot": "0"}), id="values that look typed"),
        pytest.param(tier(resources=("nvidia.com/mig-1g.10gb",), sharing="mig"), id="a slice"),
    ],
)
def test_a_manifest_requests_one_unit_on_nodes_of_the_tier(row: TierRow) -> None:
    (pod,) = yaml.safe_load_all(catalog.manifest(row))
    assert pod["spec"].get("nodeSelector", {}) == dict(row.node_selector)
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {row.resources[0]: 1}}


def test_a_device_class_is_asked_for_by_a_claim() -> None:
    row = tier(sharing="dra", resources=(), device_classes=("gpu.nvidia.com",))
    template, pod = yaml.safe_load_all(catalog.manifest(row))
    request = template["spec"]["spec"]["devices"]["requests"][0]
    assert request["exactly"] == {"deviceClassName": "gpu.nvidia.com"}
    claim = pod["spec"]["resourceClaims"][0]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": claim["name"]}]


def test_tiers_are_compared_in_one_table(portal: Portal, admin: Client) -> None:
    gold = portal.tiers[0]
    TierRule.objects.filter(tier=gold).update(allowed_teams=["vision"])
    page = html.unescape(text_of(admin, "/capacity/tiers/"))
    shown = tables_of(page)["tiers"]
    assert [row[0].text for row in shown.rows[1:]] == ["gold", "silver"]
    keys = list(records_of(admin, "/capacity/tiers/?format=csv")[0])
    row = dict(zip(keys, [cell.text for cell in shown.rows[1]], strict=True))
    assert row["sharing"] == "Exclusive"
    assert (row["free_gpus"], row["capacity_gpus"]) == ("2.0", "8.0")
    assert row["allocation_ratio"] == "75.0"
    assert row[LISTED_PENDING_GPUS.key] == "4"
    assert row["access"] == "Only vision"
    assert "<pre" not in page  # the manifest is on the page of the tier
    assert "waiting_gpus" in check_explained(admin, "/capacity/tiers/")
    links = dict(re.findall(r'href="(/explain/\?[^"]+tier=gold[^"]*)"[^>]*>([^<]+)<', page))
    assert list(links.values()) == ["2.0", "8.0", "75.0"]
    for link, text in links.items():
        unit = " %" if "allocation_ratio" in link else ""
        assert admin.get(link).context["explanation"].value == f"{text}{unit}", link


def test_a_tier_says_who_may_use_it_and_who_is_entitled(
    portal: Portal, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: LOOKED)  # capacity is that of a day
    gold = portal.tiers[0]
    TierRule.objects.filter(tier=gold).update(allowed_teams=["vision", "speech"])
    since = datetime(2025, 1, 1, tzinfo=UTC)
    Entitlement.objects.create(
        team=portal.vision, tier=gold, gpus=6.0, weight=6.0, valid_from=since
    )
    (gold_row, _) = records_of(admin, "/capacity/tiers/?format=csv")
    assert gold_row["access"] == "2 teams"
    assert float(gold_row["entitled_ratio"]) == 12 / 8
    page = words(text_of(admin, "/capacity/tiers/gold/?tab=manifest"))
    assert re.search("Only (vision , speech|speech , vision) .", page)
    assert "vision 6 GPUs" in page


def test_the_guide_on_the_page_names_a_tier_of_the_catalog(admin: Client) -> None:
    query = "gpus=several&memory=known&load=steady&processes=few&attributes=no"
    page = text_of(admin, f"/capacity/tiers/?{query}")
    advice = page[page.index('class="advice') :]
    assert "Ask for" in advice
    assert "<b>gold</b>" in advice[: advice.index("</div>")]
    nearest = text_of(admin, f"/capacity/tiers/?{query.replace('several', 'part')}")
    assert "This catalog has no tier of that kind; the nearest is" in nearest
    assert "Answer all five" in text_of(admin, "/capacity/tiers/?gpus=part")


def test_a_gpu_hour_has_the_price_of_its_cluster_before_the_general_one(
    portal: Portal, admin: Client
) -> None:
    west, east = portal.clusters
    since = datetime(2025, 1, 1, tzinfo=UTC)
    until = datetime(2025, 6, 1, tzinfo=UTC)
    for cluster, model, cost, valid_to in (
        (None, H100.lower(), "2.50424658", None),
        (west, H100, "9", until),
        (None, A100, "3", None),
        (east, A100.replace("-", " "), "4", None),  # as somebody may interval it
    ):
        Price.objects.create(
            cluster=cluster,
            gpu_model=model,
            capacity_type="on-demand",
            per_gpu_hour=cost,
            currency="EUR",
            valid_from=since,
            valid_to=valid_to,
        )
    assert "tier_price" in check_explained(admin, "/capacity/tiers/")
    rows = records_of(admin, "/capacity/tiers/?format=csv")
    assert [row["price"] for row in rows] == ["2.50 EUR", "4.00 EUR"]
    page = text_of(admin, "/capacity/tiers/gold/?tab=manifest")
    assert 'title="2.50424658 EUR"' in page
    assert "tier_price" in check_explained(admin, "/capacity/tiers/gold/?tab=manifest")


def test_several_prices_are_a_range(db: None) -> None:
    def cost(amount: str, currency: str = "USD") -> Cost:
        return Cost(Decimal(amount), amount, f"{amount} {currency}", currency, "A100, spot")

    assert price_text([]) is None
    assert price_text([cost("2.10"), cost("0.81"), cost("1.28")]) == "0.81 – 2.10 USD"
    assert price_text([cost("2.10"), cost("2.10")]) == "2.10 USD"
    assert price_text([cost("2.10"), cost("0.81", "EUR")]) == "2.10 USD, 0.81 EUR"
