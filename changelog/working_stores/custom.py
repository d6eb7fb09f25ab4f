"""Users' working stores: loading the factory, checking its stores, and filling them.

The factory is named as `module:qualified.name`, so that a state worker can import it, and is called with a
`StoreTarget` for each (operator, partition), in several processes and threads. It must return an empty `WorkingStore`
at `ORIGIN`; `TableStore` is a base class for one.

Invariants: I5 (a copied store holds exactly the rows of its source), I9.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.columns import LIST
from varvite.changelog.working_stores.rocksdb.bulk import SEQ_OF_COPIES
from varvite.changelog.working_stores.table_rows import changes_of, table_of
from varvite.changelog.working_stores.table_store import StoreTarget
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import ORIGIN
from varvite.storage.named_objects import call_named
from varvite.storage.private_directories import TemporaryDirectory

if TYPE_CHECKING:
    from varvite.changelog.working_stores.contract import WorkingStore

_TABLES: Final = ("value_table", "map_table", "list_table", "timer_table")
_METHODS: Final = (*_TABLES, "register", "revert", "apply", "fold", "prepare", "clean_up", "write_snapshot", "close")


def open_custom_store(name: str, target: StoreTarget) -> WorkingStore:
    """A new empty store from the factory of that name; the target's directory is left to the factory.

    Raises:
        InvalidRequestError: the factory cannot be imported, fails, or returns anything but an empty working store.
    """
    advice = "correct the factory, or its options"
    store: Any = call_named(name, "working store factory", advice, target, operator=target.operator)
    try:
        _check_store(name, store, target)
    except BaseException:
        with suppress(Exception):
            store.close()
        raise
    return store


def check_factory(name: str, options: dict[str, str]) -> None:
    """Make a small store and close it, to find mistakes before a job starts. Raises as `open_custom_store`."""
    with TemporaryDirectory("check") as scratch:
        directory = scratch / "store"
        key_type = "1:string"
        store = open_custom_store(
            name, StoreTarget(operator="check", key_type=key_type, low=0, high=1, directory=directory, options=options)
        )
        try:
            store.close()
        except Exception as error:  # the user's code may raise anything
            raise InvalidRequestError(
                f"closing a new store of {name!r} failed: {type(error).__name__}: {error}; correct its close()"
            ) from error


def copy_store(source: WorkingStore, store: WorkingStore) -> None:
    """Fill an empty store with the state of another one, version included; both of the same operator and keys.

    Rows of key groups that the store does not have are an error. If anything raises, discard the store.
    """
    version = source.version
    for schema in source.schemas:
        store.register(schema)
    for schema in source.schemas:
        positions: dict[str, int] = {}
        for changes in changes_of(schema, table_of(source, schema)):
            batch = Batch([changes], SEQ_OF_COPIES, positions=positions if schema.kind == LIST else None)
            store.fold([batch], version, last=False)
    store.fold([], version, last=True)


def _check_store(name: str, store: Any, target: StoreTarget) -> None:
    missing = [m for m in _METHODS if not callable(getattr(store, m, None))]
    missing += [p for p in ("version", "schemas", "changed_ttls") if not hasattr(store, p)]
    if missing:
        raise InvalidRequestError(
            f"the working store factory {name!r} made a {type(store).__name__}, which is no WorkingStore: it lacks "
            f"{', '.join(missing)}; varvite.extending.TableStore has them",
            operator=target.operator,
        )
    if store.version != ORIGIN or tuple(store.schemas):
        raise InvalidRequestError(
            f"the working store factory {name!r} made a store that is not empty (version {store.version}); make a new "
            "one each time: varvite restores what it has to hold",
            operator=target.operator,
        )
