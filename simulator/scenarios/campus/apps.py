"""What runs on the apps nodes of `campus` day by day, whatever the trace says.

Services that follow the working day, notebooks, jobs that load for long and hold their GPUs after
the work is done, a service without calls, and a gang that keeps all of its GPUs active.
"""

from collections.abc import Mapping, Sequence

from simulator.scenarios.base import GPU_KEY, Service
from simulator.scenarios.day_work import CLOSES, OPENS, Work, office

DEDICATED = ("dedicated", "apps", "NoSchedule")
"""The taint of the apps nodes."""
WORK: Sequence[Work] = (
    # Two workers on two hosts, where one host has room for both.
    Work("language-apps", "PyTorchJob", "pretrain-foundation", "apps-01", 0, 1, 4, 71_000,
          ((0, 0.96),), elsewhere=(("apps-04", 4),)),
    Work("vision-apps", "Deployment", "segment-serve", "apps-02", 0, 4, 1, 14_000,
          office(0.62, 0.05), ((0, 0.04),)),
    Work("speech-apps", "Deployment", "whisper-live", "apps-02", 4, 3, 1, 17_500,
          office(0.55, 0.06), ((0, 0.05),)),
    Work("speech-apps", "Deployment", "tts-legacy", "apps-02", 7, 1, 1, 9_000, ((0, 0.0),)),
    Work("vision-apps", "StatefulSet", "notebook-ada", "apps-03", 0, 1, 1, 6_200,
          ((9, 0.41), (9.75, 0.0)), ((0, 0.0),)),
    Work("vision-apps", "StatefulSet", "notebook-lin", "apps-03", 1, 1, 1, 3_900, ((0, 0.0),)),
    Work("speech-apps", "StatefulSet", "notebook-eva", "apps-03", 2, 1, 1, 5_100,
          ((13, 0.35), (14.5, 0.01)), ((0, 0.0),)),
    Work("speech-apps", "StatefulSet", "notebook-mira", "apps-03", 3, 1, 1, 2_400, ((0, 0.01),)),
    Work("search-apps", "Deployment", "embed-small", "apps-03", 4, 2, 1, 4_600, ((0, 0.17),)),
    Work("vision-apps", "Deployment", "label-tool", "apps-03", 6, 2, 1, 3_300, ((0, 0.02),)),
    Work("search-apps", "StatefulSet", "workshop", "apps-04", 0, 4, 1, 12_000, ((0, 0.44),),
          at_hours=(OPENS, CLOSES), working_days=True),
    Work("speech-apps", "CronJob", "finetune-voices", "apps-01", 4, 1, 4, 52_000,
          ((18, 0.01), (18.75, 0.91), (23.5, 0.0)), at_hours=(18, 30)),
)  # fmt: skip
SERVICES: Sequence[Service] = (
    # One pod of it has lost its scrape configuration.
    Service("vision-apps", "segment-serve", "triton", "sam-vit-h", 1100.0, 240.0, 9.0, silent=(3,)),
    Service("speech-apps", "whisper-live", "vllm", "whisper-large-v3", 3000.0, 700.0, 5.0,
            restarting=(4,), restarts_at=11 * 3600 + 1200),
    Service("speech-apps", "tts-legacy", "vllm", "tacotron-2"),
    Service("search-apps", "embed-small", "vllm-0.9", "bge-small-en", 9000.0, 60.0, 30.0,
            restarting=(4,), restarts_at=3 * 3600 + 2400),
    Service("vision-apps", "label-tool", "sglang", "llava-7b", 800.0, 300.0, 0.8,
            ttft="1s"),
)  # fmt: skip
LIMITS: Mapping[str, int] = {"language": 8, "search": 16, "speech": 12, "vision": 12}
"""The quota of each team's namespace here, in GPUs: that of search is far more than it uses."""


def limits() -> dict[str, dict[str, int]]:
    """Return the limit of each quota key by namespace."""
    return {f"{team}-apps": {GPU_KEY: limit} for team, limit in LIMITS.items()}
