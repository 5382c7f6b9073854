"""Views that people save under a name of their own."""

from django.db import transaction

from apps.accounts.models import SavedView, User

MOST_VIEWS = 50
LONGEST_VIEW_NAME = 80


class ViewRefused(ValueError):
    """A view cannot be saved; the text is for the person who asked."""


@transaction.atomic
def save_view(user: User, *, name: str, address: str) -> None:
    """Keep an address under a name for `user`, who has MOST_VIEWS at most.

    The caller has made sure that the address is one of this portal. Raises ViewRefused.
    """
    name = " ".join(name.split())
    if not name or not name.isprintable():
        raise ViewRefused("A view needs a name of letters, digits and signs.")
    if len(name) > LONGEST_VIEW_NAME:
        raise ViewRefused(f"The name of a view has {LONGEST_VIEW_NAME} characters at most.")
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # so that two do not both count 49
    own = SavedView.objects.filter(user=user)
    if own.filter(name=name).exists():
        raise ViewRefused(f"You have a view “{name}” already: choose another name, or delete it.")
    if own.count() >= MOST_VIEWS:
        raise ViewRefused(f"You have {MOST_VIEWS} views already: delete one that you do not need.")
    SavedView.objects.create(user=user, name=name, address=address)


def delete_view(user: User, pk: int) -> bool:
    """Delete a view that `user` saved; says whether there was one. One query."""
    deleted, _ = SavedView.objects.filter(user=user, pk=pk).delete()
    return bool(deleted)
