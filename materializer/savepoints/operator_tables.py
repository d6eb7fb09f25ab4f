"""The non-keyed states of an operator as Parquet files of a canonical savepoint, for other tools.

varvite itself reads the images, which lie beside them, and never these files.

Invariants: I8 (size and CRC-32 of each file are noted).
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet

from varvite.changelog.operator_state.image_source import read_images
from varvite.changelog.reading.operator_state_table import OperatorStateTable, operator_state_tables
from varvite.materializer.savepoints.state_files import WrittenFile
from varvite.storage.format import layout
from varvite.storage.format.records import TableFile
from varvite.storage.transfer.download import file_crc32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from varvite.storage.format.records import ImageRef
    from varvite.storage.object_stores.contract import ObjectStore

_parquet: Final[Any] = pyarrow.parquet


def write_tables(
    operator: str, images: Sequence[ImageRef], token: str, store: ObjectStore, scratch: Path
) -> Iterator[WrittenFile[TableFile]]:
    """Write the rows of the non-keyed states, one file per state that has any; a file is removed before the next.

    Args:
        operator: Its uid.
        images: Images of the operator's partitions.
        token: The savepoint's token.
        store: Store of the images.
        scratch: A directory.

    Raises the errors of `read_images`.
    """
    path = scratch / "table.parquet"
    for table in operator_state_tables(read_images(store, images)):
        if not table.elements:
            continue
        _write(path, table)
        name = layout.savepoint_table(token, operator, table.name, table.kind)
        size_bytes = path.stat().st_size
        record = TableFile(operator, table.name, table.kind, name, table.elements, size_bytes, file_crc32(path))
        yield WrittenFile(record, path)
        path.unlink()


def _write(path: Path, table: OperatorStateTable) -> None:
    """Write one row group per partition: each has all entries of broadcast state, so one for all may be too large."""
    pieces = (piece.to_arrow() for piece in _pieces(table))
    first = next(pieces)
    with _parquet.ParquetWriter(path, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(piece)


def _pieces(table: OperatorStateTable) -> list[OperatorStateTable]:
    types = {(section.value_type, section.map_key_type) for _, section in table.parts}
    if len(types) > 1:  # the columns follow from all of them
        return [table]
    by_partition = groupby(table.parts, key=attrgetter("partition"))
    return [table._replace(parts=tuple(parts)) for _, parts in by_partition]
