"""`pyflink.common.types`' names."""

from varvite.changelog.row import Row, RowKind

__all__ = ["Row", "RowKind"]
