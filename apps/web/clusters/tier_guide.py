"""The guide to a tier: five questions about a workload, and what follows from the answers."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from apps.clusters.domain.tiers import GpuSharing

Answers = Mapping[str, str]


class GuideQuestion(Struct, frozen=True):
    """`key` is the field of the form; each option is (value, words)."""

    key: str
    text: str
    options: tuple[tuple[str, str], ...]


class Advice(Struct, frozen=True):
    """What suits: kinds of sharing, best first, and why.

    `reshape` holds what to change about the work before it gets a GPU; with it the kinds are those
    to go on with meanwhile, or after.
    """

    title: str
    reason: str
    kinds: tuple[GpuSharing, ...]
    reshape: tuple[str, ...] = ()


QUESTIONS = (
    GuideQuestion(
        "gpus",
        "How much GPU does one process need at once?",
        (("part", "a part of a GPU"), ("one", "a whole GPU"), ("several", "several GPUs")),
    ),
    GuideQuestion(
        "memory",
        "Do you know the most GPU memory it takes?",
        (("known", "yes, measured"), ("unknown", "no, or a guess")),
    ),
    GuideQuestion(
        "load",
        "What does its load look like over a day?",
        (("steady", "steady"), ("bursty", "bursts with pauses, or somebody at a notebook")),
    ),
    GuideQuestion(
        "processes",
        "Are there many small processes of the same kind?",
        (("few", "no"), ("many", "yes, many and steady")),
    ),
    GuideQuestion(
        "attributes",
        "Must the GPU have particular attributes, such as a model, memory or place on the bus?",
        (("no", "no"), ("yes", "yes")),
    ),
)

_MEASURE_FIRST = Advice(
    "Change the shape of your work: measure first",
    "Choose a share of a GPU only when the memory is known. On a shared GPU a wrong guess also "
    "stops the neighbours.",
    (GpuSharing.EXCLUSIVE, GpuSharing.MIG),
    (
        "Run it for a day on a GPU of its own.",
        "Read the peak of its memory on the page of its pod.",
        "Come back with that number.",
    ),
)
_BURSTS_ON_WHOLE_GPUS = Advice(
    "Change the shape of your work: do not hold GPUs through the pauses",
    "A whole GPU that is active in bursts is idle and paid for in between, and no other work "
    "can use it.",
    (GpuSharing.EXCLUSIVE, GpuSharing.TIME_SLICED),
    (
        "Put each burst into a Job that ends, with checkpoints, so that the GPU is given back.",
        "Let a service scale to zero, or gather requests into larger batches.",
        "Keep notebooks on a small share, and send training from them as Jobs.",
    ),
)
_ONE_SERVER = Advice(
    "Change the shape of your work: one process for many",
    "Many small processes do not each need a whole GPU. One of them can hold the model and "
    "answer the others.",
    (GpuSharing.MPS, GpuSharing.EXCLUSIVE),
    (
        "Serve the model from one process that gathers requests into batches.",
        "Where they must stay apart, measure the memory of one and choose a part of a GPU.",
    ),
)
_BY_ATTRIBUTES = Advice(
    "A device claim",
    "A claim chooses the device by its attributes; a node selector knows only labels of a node.",
    (GpuSharing.DRA, GpuSharing.EXCLUSIVE),
)
_SEVERAL = Advice(
    "Whole GPUs",
    "A process that spans GPUs needs whole ones: slices and shares cannot be joined.",
    (GpuSharing.EXCLUSIVE, GpuSharing.DRA),
)
_WHOLE = Advice(
    "A whole GPU",
    "Steady work that fills a GPU runs best alone on it.",
    (GpuSharing.EXCLUSIVE, GpuSharing.DRA),
)
_MANY = Advice(
    "A share under MPS",
    "Small steady processes of one team fill a GPU together when they run at the same time, "
    "each within its limits.",
    (GpuSharing.MPS, GpuSharing.MIG, GpuSharing.TIME_SLICED),
)
_BURSTS = Advice(
    "A time-sliced share",
    "Bursts of several pods seldom meet, so they can take turns. Mind the memory: it has no limit.",
    (GpuSharing.TIME_SLICED, GpuSharing.MPS, GpuSharing.MIG),
)
_STEADY_PART = Advice(
    "A MIG slice",
    "Steady work of known size gets a slice that no neighbour can slow or fill.",
    (GpuSharing.MIG, GpuSharing.MPS, GpuSharing.EXCLUSIVE),
)


def advise(answers: Answers) -> Advice | None:
    """Return what suits work with these answers; None while a question is open."""
    if any(answers.get(question.key) is None for question in QUESTIONS):
        return None
    if answers["gpus"] == "part":
        return _part_of_a_gpu(answers)
    # Before attributes: GPUs that idle between bursts are dear however they are asked for.
    if answers["load"] == "bursty":
        return _BURSTS_ON_WHOLE_GPUS
    if answers["attributes"] == "yes":
        return _BY_ATTRIBUTES
    if answers["gpus"] == "several":
        return _SEVERAL
    return _ONE_SERVER if answers["processes"] == "many" else _WHOLE


def _part_of_a_gpu(answers: Answers) -> Advice:
    # First of all, since a wrong share harms its neighbours too.
    if answers["memory"] == "unknown":
        return _MEASURE_FIRST
    if answers["attributes"] == "yes":
        return _BY_ATTRIBUTES
    if answers["processes"] == "many":
        return _MANY
    return _BURSTS if answers["load"] == "bursty" else _STEADY_PART


def answered(given: Mapping[str, str]) -> dict[str, str]:
    """Return the answers that are options of their question; others count as not given."""
    return {
        question.key: given[question.key]
        for question in QUESTIONS
        if given.get(question.key) in dict(question.options)
    }


def fitting(advice: Advice, tiers: Sequence[tuple[str, GpuSharing]]) -> list[str]:
    """Return the tiers (name, sharing) of the first kind that the catalog has one of."""
    for kind in advice.kinds:
        # A kind that no tier has is passed over: the next best can be asked for.
        if found := [name for name, sharing in tiers if sharing is kind]:
            return found
    return []
