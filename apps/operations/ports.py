"""What the doctor asks of sources beyond what facts need; a source may not offer it."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from apps.clusters.domain.credentials import Credential


@runtime_checkable
class TakesQuestions(Protocol):
    """A metrics source that takes single questions."""

    def ask(self, question: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Return labels and value of each series of an instant query, as of the server's now.

        `$matchers` in the question stands for the cluster's own matchers, each followed by a
        comma. Raises SourceUnavailable and SourceRejected.
        """


@runtime_checkable
class ShowsCredentials(Protocol):
    """A source that tells when what the portal signs in with ends."""

    def credentials(self) -> Sequence[Credential]:
        """Return them, as far as their end can be read; raises as its other methods."""


@runtime_checkable
class ReviewsAccess(Protocol):
    """A Kubernetes API server that can be asked what the portal's own account may do."""

    def may(
        self, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        """Say whether a verb is allowed on a resource, without a namespace in all of them.

        By a SelfSubjectAccessReview, which every account may create and which changes nothing.
        Raises SourceUnavailable and SourceRejected.
        """
