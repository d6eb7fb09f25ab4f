"""Names for those who write a store, a log store, a key provider or a sink of their own.

Errors to raise are in `varvite.storage.errors`; the tests that a store must pass are in `varvite.testing.contracts`.

The pages are those of docs/operate/ and docs/guide/.

| for | names | page |
|---|---|---|
| a working store | `TableStore`, `StoreTarget`, `TableChanges`, or `WorkingStore` itself | state-backends.md |
| the tables of a working store | `ValueTable`, `MapTable`, `ListTable`, `TimerTable` | state-backends.md |
| what a working store writes | `StateSchema`, `StateChanges`, `Op`, `Link`, `ORIGIN` | state-backends.md |
| keys and values as bytes | `parse_type_string`, `key_writer`, `key_reader` | state-backends.md |
| a log store | `SimpleLogStore`, `LogTarget`, `ObjectMeta`, or `LogStore` itself | log-stores.md |
| names and URLs of a log store | `check_name`, `check_prefix`, `local_directory` | log-stores.md |
| the time | `Clock`, `SystemClock` | log-stores.md |
| a key provider | `EncryptionKey`, `KeyProvider` | security.md |
| a sink | `SinkCommit`, `decide_write`, `WriteKind`, `RepeatedBatch` | sinks.md |
"""

from varvite.changelog.commit.base_decision import RepeatedBatch, SinkCommit, WriteKind, decide_write
from varvite.changelog.segments.changes import Op, StateChanges
from varvite.changelog.types.factory import parse_type_string
from varvite.changelog.types.key_wire import key_reader, key_writer
from varvite.changelog.working_stores.contract import ListTable, MapTable, TimerTable, ValueTable, WorkingStore
from varvite.changelog.working_stores.table_store import StoreTarget, TableChanges, TableStore
from varvite.storage.clock import Clock, SystemClock
from varvite.storage.format.records import ORIGIN, Link, StateSchema
from varvite.storage.job.log_store import LogStore, LogTarget, SimpleLogStore
from varvite.storage.object_stores.contract import ObjectMeta
from varvite.storage.object_stores.encrypted.keys import EncryptionKey, KeyProvider
from varvite.storage.object_stores.names import check_name, check_prefix
from varvite.storage.object_stores.open import local_directory

__all__ = [
    "ORIGIN",
    "Clock",
    "EncryptionKey",
    "KeyProvider",
    "Link",
    "ListTable",
    "LogStore",
    "LogTarget",
    "MapTable",
    "ObjectMeta",
    "Op",
    "RepeatedBatch",
    "SimpleLogStore",
    "SinkCommit",
    "StateChanges",
    "StateSchema",
    "StoreTarget",
    "SystemClock",
    "TableChanges",
    "TableStore",
    "TimerTable",
    "ValueTable",
    "WorkingStore",
    "WriteKind",
    "check_name",
    "check_prefix",
    "decide_write",
    "key_reader",
    "key_writer",
    "local_directory",
    "parse_type_string",
]
