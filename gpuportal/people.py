"""Whether the portal keeps who is behind a pod, as the environment says: off by default."""

from msgspec import Struct

from apps.clusters.domain.pods.people import PersonSource, PersonSourceRefused, person_sources
from gpuportal import env


class People(Struct, frozen=True):
    """Where persons are read from, for how long they are kept, and how many GPUs one may hold.

    `days` count from the end of the pod. `cap_gpus` None: there is no cap.
    """

    sources: tuple[PersonSource, ...]
    days: int = 90
    cap_gpus: float | None = None


def people() -> People | None:
    """Return what GPUPORTAL_PEOPLE_* say; None where it is off. Raises EnvironmentValueError."""
    words = env.words("GPUPORTAL_PEOPLE")
    # Read whether it is on or not: a wrong value is told at once, not when somebody turns it on.
    days = env.days("GPUPORTAL_PEOPLE_DAYS", 90, least=1)
    cap = env.amount("GPUPORTAL_PEOPLE_CAP_GPUS", None)
    try:
        sources = person_sources(words)
    except PersonSourceRefused as refused:
        raise env.EnvironmentValueError(f"GPUPORTAL_PEOPLE: {refused}") from refused
    return People(sources, days, None if cap is None else float(cap)) if sources else None
