"""Objects that are there, in memory: by key, by index, and which of them are to be written."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Values = Callable[[T], Iterable[Hashable]]


class ObservedStore(Generic[T]):
    """The objects that are there, by key and by index, like an Indexer of client-go.

    `key` tells an object's key; `indexes` tell for each name under which values an object is
    found. `row` tells the key of the row that an object is written to, its own key unless given:
    `changed` holds by it what is to be written, until `written`.
    """

    def __init__(
        self,
        key: Callable[[T], Any],
        items: Iterable[T] = (),
        *,
        row: Callable[[T], Any] | None = None,
        indexes: Mapping[str, Values[T]] | None = None,
    ) -> None:
        self.items: dict[Any, T] = {}
        self.changed: dict[Any, T] = {}
        self._key = key
        self._row = row or key
        self._values = dict(indexes or {})
        # Keys as of a dictionary, so that they come in the order in which they were put.
        self._keys: dict[str, dict[Hashable, dict[Any, None]]] = {
            name: defaultdict(dict) for name in self._values
        }
        for item in items:
            self.put(item)

    def __contains__(self, key: object) -> bool:
        return key in self.items

    def __len__(self) -> int:
        return len(self.items)

    def get(self, key: Any) -> T | None:
        """Return the object of a key; None while there is none."""
        return self.items.get(key)

    def by_index(self, name: str, value: Hashable) -> list[T]:
        """Return the objects that an index has under a value, in the order they were put."""
        return [self.items[key] for key in self._keys[name].get(value, ())]

    def index_keys(self, name: str, value: Hashable) -> Collection[Any]:
        """Return the keys of these objects."""
        return self._keys[name].get(value, {}).keys()

    def put(self, item: T) -> T | None:
        """Put an object in the place of the one of its key, which is returned."""
        key = self._key(item)
        before = self.items.get(key)
        if self._values:
            if before is not None:
                self._unindex(key, before)
            for name, values in self._values.items():
                # An object may be under several values of one index, as a pod under each of its
                # claims.
                for value in values(item):
                    self._keys[name][value][key] = None
        self.items[key] = item
        return before

    def drop(self, key: Any) -> T | None:
        """Drop and return the object of a key; None where there is none."""
        item = self.items.pop(key, None)
        if item is not None:
            self._unindex(key, item)
        return item

    def replace(self, items: Iterable[T]) -> None:
        """Put these in the place of all there are."""
        self.retain(())
        for item in items:
            self.put(item)

    def retain(self, keys: Collection[Any]) -> list[T]:
        """Drop and return all objects but those of these keys."""
        gone = [key for key in self.items if key not in keys]
        return [item for key in gone if (item := self.drop(key)) is not None]

    def mark(self, item: T) -> None:
        """Note that an object is to be written, whether it is there or has gone."""
        self.changed[self._row(item)] = item

    def keep(self, item: T) -> None:
        """Put an object, and note that it is to be written."""
        self.put(item)
        self.mark(item)

    def written(self) -> None:
        """Note that all changes are in the database."""
        self.changed.clear()

    def _unindex(self, key: Any, item: T) -> None:
        for name, values in self._values.items():
            for value in values(item):
                found = self._keys[name][value]
                found.pop(key, None)
                # Values come and go with pods for as long as a watch runs: empty ones must not
                # stay.
                if not found:
                    del self._keys[name][value]
