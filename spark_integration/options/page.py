"""The page `docs/reference/configuration.md`, made from the options.

`python -m varvite.spark_integration.options.page > docs/reference/configuration.md`
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from varvite.materializer.options.table import JOB_OPTIONS, MATERIALIZER_OPTIONS, ROCKSDB_OPTIONS
from varvite.storage.options.table import STORAGE_OPTION_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.storage.options.declaration import ConfigOption

_HEAD: Final = f"""# Configuration

<!-- Made by `python -m varvite.spark_integration.options.page`; do not edit. -->

In Spark's configuration every key has the prefix `spark.varvite.`, for example
`spark-submit --conf spark.varvite.state.changelog.enabled=true`. In code it is `env.configure(key, value)`, and for one
query `.option(key, value)` on its writer, both without the prefix.

* Code wins over a query option, a query option over the session's configuration. A key that a level does not set
  comes from the next level, and in the end from its default.
* Keys are Flink's where Flink has the option. An unknown `spark.varvite.*` key is an error that names the nearest one.
* Durations: `10 min`, `30s`, `500 ms`, or a bare number of milliseconds. Sizes: `64 mb`, or a bare number of bytes;
  1 kb is 1024 bytes.
* `{STORAGE_OPTION_PREFIX}<name>` goes to fsspec as option `<name>` of the storage's filesystem, for example
  `{STORAGE_OPTION_PREFIX}endpoint_url`, `{STORAGE_OPTION_PREFIX}key`, `{STORAGE_OPTION_PREFIX}secret`.
  `{STORAGE_OPTION_PREFIX}engine` chooses the client of S3. `true` and `false` become booleans, values in `{{...}}` or
  `[...]` are read as JSON, all others stay text. varvite never prints them. Spark's own web page shows the session's
  configuration; it hides only keys that match `spark.redaction.regex`. So pass secrets in code, in environment
  variables or as roles of the machine.
"""


def render() -> str:
    """The whole page."""
    parts = [
        _HEAD,
        _table("Job", JOB_OPTIONS),
        _table("RocksDB", ROCKSDB_OPTIONS),
        _table("Materializer", MATERIALIZER_OPTIONS),
    ]
    return "\n".join(parts)


def _table(title: str, options: Sequence[ConfigOption]) -> str:
    lines = [f"## {title}", "", "| key | type | default | meaning |", "|---|---|---|---|"]
    lines += [_line(option) for option in options]
    return "\n".join(lines) + "\n"


def _line(option: ConfigOption) -> str:
    unset = f" Not set: {option.unset}." if option.unset else ""
    limits = f" Range: {option.range_text}." if option.range_text else ""
    names = ", ".join(f"`{key}`" for key in option.deprecated_keys)
    older = f" Older name{'s' if len(option.deprecated_keys) > 1 else ''}: {names}." if names else ""
    default = f"`{option.default_text}`" if option.default_text else "none"
    return f"| `{option.key}` | {option.type.name} | {default} | {option.description}{unset}{limits}{older} |"


if __name__ == "__main__":
    sys.stdout.write(render())
