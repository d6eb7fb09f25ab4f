"""`DataStreamSink`: PyFlink's end of a stream that is printed or written."""

from __future__ import annotations

from typing import Any


class DataStreamSink:
    """The end of a printed stream. Its settings have no effect: a sink has no state, and runs on the driver."""

    def name(self, name: str) -> DataStreamSink:
        """No effect; for PyFlink's signature."""
        del name
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """No effect; for PyFlink's signature."""
        del uid
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """No effect; for PyFlink's signature."""
        del uid_hash
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """No effect; for PyFlink's signature."""
        del description
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """No effect; for PyFlink's signature."""
        del parallelism
        return self

    def disable_chaining(self) -> DataStreamSink:
        """No effect; for PyFlink's signature."""
        return self

    def slot_sharing_group(self, slot_sharing_group: Any) -> DataStreamSink:
        """No effect; for PyFlink's signature."""
        del slot_sharing_group
        return self
