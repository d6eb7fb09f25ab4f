"""`OPTIONS`: all options of varvite, and a materializer's configuration from `spark.varvite.*` keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from varvite.changelog.commit import options as commits
from varvite.changelog.restore import options as local_recovery
from varvite.changelog.schema import pickled
from varvite.changelog.working_stores import options as backends
from varvite.changelog.working_stores.rocksdb.settings import memory_options
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.materializer.options import driver, start
from varvite.materializer.options.materializer_config import PERIODIC_ENABLED, MaterializerConfig
from varvite.storage.job import options as storage
from varvite.storage.options.declaration import CONF_PREFIX, declared_in, options_of
from varvite.storage.options.table import OptionTable, values_for
from varvite.storage.transfer import options as transfer

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_A_MATERIALIZER: Final = (PERIODIC_ENABLED, *options_of(MaterializerConfig).values())

JOB_OPTIONS: Final = declared_in(storage, backends, commits, transfer, start, local_recovery, driver, pickled)
ROCKSDB_OPTIONS: Final = (*declared_in(memory_options), *options_of(RocksDBOptions).values())
MATERIALIZER_OPTIONS: Final = tuple(option for option in _OF_A_MATERIALIZER if option not in JOB_OPTIONS)
OPTIONS: Final = OptionTable((*JOB_OPTIONS, *ROCKSDB_OPTIONS, *MATERIALIZER_OPTIONS))


def read_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Fields of `MaterializerConfig` that these `spark.varvite.*` keys set.

    Keys without that prefix are ignored, and so are the values of options that a materializer has no use for.

    Raises:
        InvalidRequestError: An unknown key, with the nearest known one, or a value that does not fit.
    """
    settings = {key.removeprefix(CONF_PREFIX): text for key, text in properties.items() if key.startswith(CONF_PREFIX)}
    level = OPTIONS.read("properties", settings, CONF_PREFIX, only=_OF_A_MATERIALIZER)
    fields = values_for(MaterializerConfig, [level])
    if level.storage_options:
        fields["storage_options"] = dict(level.storage_options)
    if level.values.get(PERIODIC_ENABLED.key) is False:
        fields["interval_ms"] = None
    return fields
