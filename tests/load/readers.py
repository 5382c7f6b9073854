"""Many people who read the portal's pages at once."""

import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random

_PAUSE_SECONDS = (1.0, 5.0)
"""Between two pages of a reader."""
_TIMEOUT_SECONDS = 60.0


def read(
    url: str, cookie: str, pages: Mapping[str, Sequence[str]], *, readers: int, seconds: float
) -> dict[str, list[float]]:
    """Have so many people read pages at once for so long; return the seconds of each, by page.

    Each reads one of all pages, pauses, and reads another. A page that is not answered with 200
    raises RuntimeError.
    """
    found: dict[str, list[float]] = defaultdict(list)
    failed: list[str] = []
    until = time.monotonic() + seconds
    ended = threading.Event()

    def reader(number: int) -> None:
        random = Random(number)  # noqa: S311 - made-up readers
        ended.wait(random.uniform(0.0, _PAUSE_SECONDS[1]))
        while time.monotonic() < until and not ended.is_set():
            name = random.choice(sorted(pages))
            try:
                found[name].append(_seconds(url + random.choice(pages[name]), cookie))
            except OSError as error:
                failed.append(f"{name}: {error}")
                ended.set()
            ended.wait(random.uniform(*_PAUSE_SECONDS))

    threads = [threading.Thread(target=reader, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(f"a page was not answered: {failed[0]}")
    return found


def _seconds(address: str, cookie: str) -> float:
    headers = {"Cookie": cookie}
    if "part=now" in address:
        headers["HX-Request"] = "true"
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - our own
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - our own
        answer.read()
    return time.perf_counter() - began
