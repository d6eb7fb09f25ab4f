"""Contracts of stores and sinks as test classes for pytest: those of users and of varvite must pass the same claims.

A test module subclasses a contract, names the subclass `Test...` and overrides the fixture that makes the store:

```python
class TestMyLog(LogStoreContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> LogStore:
        return MyLog(tmp_path)
```

Each claim is one test method. This package needs pytest; `varvite.testing` does not.

| module | owns |
|---|---|
| `log_store` | the claims about a `LogStore` |
| `object_store` | the claims about an `ObjectStore` |
| `sink` | the claims about a `Sink` that is exactly once |
| `working_store` | the claims about a `WorkingStore` |
"""

import pytest

# Before the modules are imported, so that a failing claim shows its values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("log_store", "object_store", "sink", "working_store"))
)

from varvite.testing.contracts.log_store import LogStoreContract  # noqa: E402
from varvite.testing.contracts.object_store import ObjectStoreContract  # noqa: E402
from varvite.testing.contracts.sink import SinkContract, SinkOutput  # noqa: E402
from varvite.testing.contracts.working_store import WorkingStoreContract  # noqa: E402

__all__ = [
    "LogStoreContract",
    "ObjectStoreContract",
    "SinkContract",
    "SinkOutput",
    "WorkingStoreContract",
]
