"""What a request is decided by, in words: evidence, preview and ruling as they were frozen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apps.quota_requests.domain.approval_policy import Check, Ruling
from apps.web.quota_requests.evidence_view import evidence_summary
from apps.web.quota_requests.figures import Summary
from apps.web.quota_requests.impact_view import impact_summary

__all__ = ["Ruled", "Summary", "approval_summary", "evidence_summary", "impact_summary"]


@dataclass(frozen=True, slots=True)
class Ruled:
    """Who decides, by what, and each rule with whether it holds (None: that is not known).

    As a sequence it is its sentences, what decides first.
    """

    who: str = ""
    why: str = ""
    checks: Sequence[tuple[bool | None, str]] = ()

    def __bool__(self) -> bool:
        return bool(self.who)

    def __iter__(self) -> Iterator[str]:
        yield from (text for text in (self.who, self.why) if text)
        yield from (sentence for _, sentence in self.checks)


def approval_summary(ruling: Ruling | None) -> Ruled:
    """Return what the site's rules say of a request; empty before it is handed in."""
    if ruling is None:
        return Ruled()
    first = _first(ruling)
    return Ruled(
        who=_who(ruling),
        why=first.sentence if first is not None else "",
        checks=[(one.holds, one.sentence) for one in ruling.checks if one is not first],
    )


def _who(ruling: Ruling) -> str:
    if ruling.verdict:
        return ruling.verdict
    if ruling.by_rule:
        return "The site's rules approve this by themselves."
    if ruling.approvals_needed > 1:
        return f"{ruling.approvals_needed} people have to approve this."
    return "One person has to approve this, who did not write it."


def _first(ruling: Ruling) -> Check | None:
    """Return the check that decides: that two people do, else the first that does not hold."""
    named = [one for one in ruling.checks if one.name == ruling.decides]
    two = [one for one in ruling.checks if one.name == "two people"]
    against = [] if ruling.by_rule else [one for one in ruling.checks if not one.holds]
    return next(iter([*named, *two, *against]), None)
