"""Which GPU model a SKU stands for: as it was mapped, or as its name says; and what it may be."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from apps.clusters.domain.tiers import CapacityType, model_key

_TYPES = frozenset(map(str, CapacityType))
_FAMILY = re.compile(r"\b([A-Z]{1,3}\d{1,4}[A-Z]{0,2})\b")
_MEMORY = re.compile(r"(\d+)\s*GB", re.IGNORECASE)
# Instance types of clouds, and the family of GPUs that these have; the first that fits counts.
_INSTANCES = (
    *(("p5en", "H200"), ("p5e", "H200"), ("p5", "H100"), ("p4de", "A100 80GB")),
    *(("p4d", "A100 40GB"), ("p3", "V100"), ("g6e", "L40S"), ("g6", "L4"), ("g5g", "T4G")),
    *(("g5", "A10G"), ("g4dn", "T4"), ("a3-ultragpu", "H200"), ("a3-", "H100")),
    *(("a2-ultragpu", "A100 80GB"), ("a2-", "A100 40GB"), ("g2-", "L4")),
)


class SkuTarget(Struct, frozen=True):
    """What a SKU stands for; no `gpu_model`: it is no GPU, no `capacity_type`: of any.

    `automatic`: the SKU is named as the model is, and was not mapped by a user.
    """

    gpu_model: str
    capacity_type: str = ""
    automatic: bool = False


class SkuMapper:
    """The mappings of the portal; `models` are the names of its GPU models."""

    def __init__(self, mapped: Mapping[str, SkuTarget], models: Iterable[str]) -> None:
        self._mapped = mapped
        self._models = {model_key(model): model for model in models}

    def target(self, sku: str) -> SkuTarget | None:
        """Return what a SKU stands for; None: not mapped."""
        if sku in self._mapped:
            return self._mapped[sku]
        # As the portal writes SKUs itself: the model, a slash, and the capacity type.
        model, slash, kind = sku.rpartition("/")
        if slash and kind in _TYPES and (found := self._models.get(model_key(model))):
            return SkuTarget(found, kind, automatic=True)
        whole = self._models.get(model_key(sku))
        return SkuTarget(whole, automatic=True) if whole else None

    def suggestion(self, sku: str, description: str) -> str:
        """Return the one GPU model that the texts of a SKU name; empty for none, or several.

        It is only offered: a wrong guess must not become a figure unseen.
        """
        text = f"{sku} {description}"
        words = {word.upper() for word in re.split(r"[^A-Za-z0-9]+", text)}
        of_instance = next(
            (gpu for prefix, gpu in _INSTANCES if re.search(rf"\b{prefix}\b|\b{prefix}", text)), ""
        )
        found = [
            model
            for model in self._models.values()
            if (family := _family(model)) and (family in words or _family(of_instance) == family)
        ]
        memory = set(_MEMORY.findall(f"{text} {of_instance}"))
        fitting = [model for model in found if memory & set(_MEMORY.findall(model))]
        best = fitting or found
        return best[0] if len(best) == 1 else ""


def _family(model: str) -> str:
    """Return the family of a model's name, such as A100; empty where it has none."""
    found = _FAMILY.search(model.upper().replace("-", " ").replace("_", " "))
    return found[1] if found else ""
