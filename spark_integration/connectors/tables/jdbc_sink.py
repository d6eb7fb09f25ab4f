"""`JdbcSink`: a statement for each element, by PyFlink's names, over PostgreSQL's own client.

The statements of a batch are one transaction. A batch that is executed again after a crash is written again, as in
Flink: a statement such as `insert ... on conflict ... do update` makes that harmless. `PostgresSink` is exactly once.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from varvite.changelog.types.collections import MapType, PickledType, SequenceType
from varvite.changelog.types.composites import CompositeType, RowType
from varvite.spark_integration.connectors.output.rows import FrameRows, TableRows
from varvite.spark_integration.connectors.sink import ElementSink
from varvite.spark_integration.elements.formats.schemas import row_fields
from varvite.spark_integration.elements.types import TypedElements
from varvite.spark_integration.options.flink_values import log_without_effect
from varvite.storage.clock import SystemClock
from varvite.storage.errors import DidNotHappenError, InvalidRequestError
from varvite.storage.fail_point import fail_point

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from varvite.changelog.commit.base_decision import SinkCommit
    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.connectors.output.rows import OutputRows
    from varvite.spark_integration.elements.types import ElementType
    from varvite.storage.clock import Clock

_log: Final = logging.getLogger(__name__)
_JDBC: Final = "jdbc:postgresql:"
_PARAMETERS: Final = {
    "user": "user", "password": "password", "sslmode": "sslmode", "connectTimeout": "connect_timeout",
    "ApplicationName": "application_name", "sslrootcert": "sslrootcert", "sslcert": "sslcert", "sslkey": "sslkey",
    "currentSchema": "options",
}  # fmt: skip
"""Parameters of such URLs, and what PostgreSQL's own client calls them."""
_TOKEN: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$|\?\?|\?", re.DOTALL
)
"""Parts of a statement in which ? is no parameter, and parameters."""
_PAUSE_S: Final = 1.0


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """The database."""

    url: str
    driver_name: str | None = None
    user_name: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"JdbcConnectionOptions({self.url.partition('?')[0]!r})"

    def get_db_url(self) -> str:
        """The URL."""
        return self.url

    def get_driver_name(self) -> str | None:
        """The name of the driver, which has no effect."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """The user."""
        return self.user_name

    def get_password(self) -> str | None:
        """The password."""
        return self.password

    class JdbcConnectionOptionsBuilder:
        """Builds the options."""

        def __init__(self) -> None:
            self._options = JdbcConnectionOptions("")

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the URL: `jdbc:postgresql://host:5432/database`."""
            return self._with(url=url)

        def with_driver_name(self, driver_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """A hint without effect: the URL names the database's kind."""
            return self._with(driver_name=driver_name)

        def with_user_name(self, user_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the user."""
            return self._with(user_name=user_name)

        def with_password(self, password: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the password."""
            return self._with(password=password)

        def build(self) -> JdbcConnectionOptions:
            """The options. Raises `InvalidRequestError` for a URL that is none of PostgreSQL's."""
            conninfo_parts(self._options)
            return self._options

        def _with(self, **changes: Any) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            self._options = replace(self._options, **changes)
            return self


def conninfo_parts(options: JdbcConnectionOptions) -> tuple[str, dict[str, str]]:
    """The database as libpq has it: a URL, and parameters beside it.

    Raises:
        InvalidRequestError: It is none of PostgreSQL's, or has a parameter that its own client does not have.
    """
    url = options.url
    if not url.startswith(_JDBC):
        raise InvalidRequestError(
            f"JdbcSink writes to PostgreSQL alone, by a URL such as jdbc:postgresql://host:5432/database, not to "
            f"{url.partition('?')[0]!r}: write to other databases with "
            "stream.foreach_batch(lambda rows, batch: rows.write.jdbc(...))"
        )
    place, _, query = url.removeprefix(_JDBC).partition("?")
    parts: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _PARAMETERS:
            raise InvalidRequestError(f"JdbcSink: the URL's parameter {name!r} is none of {', '.join(_PARAMETERS)}")
        parts[_PARAMETERS[name]] = f"-c search_path={value}" if name == "currentSchema" else value
    beside = {"user": options.user_name, "password": options.password}
    parts |= {name: value for name, value in beside.items() if value is not None}
    return f"postgresql:{place if place.startswith('//') else f'///{place}'}", parts


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """The way in which statements are sent."""

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3

    def get_batch_interval_ms(self) -> int:
        """The interval, which has no effect."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Elements that are sent at once."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Further attempts after the server was not there."""
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Flink's defaults."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> JdbcExecutionOptions.Builder:
        """A builder."""
        return JdbcExecutionOptions.Builder()

    class Builder:
        """Builds the options."""

        def __init__(self) -> None:
            self._options = JdbcExecutionOptions()

        def with_batch_size(self, size: int) -> JdbcExecutionOptions.Builder:
            """Set the elements that are sent at once. Raises `InvalidRequestError` below 1."""
            if size < 1:
                raise InvalidRequestError(f"with_batch_size({size}): give at least 1")
            return self._with(batch_size=size)

        def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptions.Builder:
            """A hint without effect: elements are written when their batch is durable."""
            log_without_effect(f"with_batch_interval_ms({interval_ms})", "elements are written with their batch")
            return self._with(batch_interval_ms=interval_ms)

        def with_max_retries(self, max_retries: int) -> JdbcExecutionOptions.Builder:
            """Set the attempts after the first one. Raises `InvalidRequestError` below 0."""
            if max_retries < 0:
                raise InvalidRequestError(f"with_max_retries({max_retries}): give at least 0")
            return self._with(max_retries=max_retries)

        def build(self) -> JdbcExecutionOptions:
            """The options."""
            return self._options

        def _with(self, **changes: Any) -> JdbcExecutionOptions.Builder:
            self._options = replace(self._options, **changes)
            return self


def statement_of(sql: str, arity: int) -> str:
    """A statement with parameters as PostgreSQL's own client has them.

    Raises:
        InvalidRequestError: It does not have a parameter for each field.
    """
    pieces: list[str] = []
    parameters = end = 0
    for match in _TOKEN.finditer(sql):
        pieces.append(sql[end : match.start()].replace("%", "%%"))
        end, part = match.end(), match[0]
        if part == "?":
            parameters += 1
            pieces.append("%s")
        else:
            pieces.append("?" if part == "??" else part.replace("%", "%%"))
    if parameters != arity:
        raise InvalidRequestError(
            f"JdbcSink: the statement has {parameters} parameters (?), and the rows have {arity} fields: {sql}"
        )
    return "".join([*pieces, sql[end:].replace("%", "%%")])


class RowOf:
    """The fields of an element; picklable."""

    def __init__(self, kind: RowType) -> None:
        self._kind = kind

    def __call__(self, element: Any) -> tuple[Any, ...]:
        """The fields in order. Raises `InvalidRequestError` if the element is no such row."""
        return row_fields(self._kind)(element)


class JdbcSink(ElementSink):
    """Executes a statement for each element; made by `sink`."""

    brings_rows_to_driver = True

    title = "JdbcSink"

    def __init__(
        self,
        sql: str,
        kind: RowType,
        connection: JdbcConnectionOptions,
        execution: JdbcExecutionOptions,
        clock: Clock | None = None,
    ) -> None:
        self._elements = TypedElements(kind)
        self._sql, self._kind, self._execution = statement_of(sql, kind.arity), kind, execution
        self._place = connection
        self._connection: Any = None
        self._clock = clock or SystemClock()

    @staticmethod
    def sink(
        sql: str,
        type_info: Any,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """A sink.

        Args:
            sql: The statement, with a ? for each field.
            type_info: Types of the fields: `Types.ROW([...])`.
            jdbc_connection_options: The database.
            jdbc_execution_options: The way in which statements are sent.

        Raises:
            InvalidRequestError: These do not fit, or a field is of a type that PostgreSQL does not get.
        """
        if not isinstance(type_info, RowType):
            raise InvalidRequestError(f"JdbcSink.sink takes a Types.ROW or Types.ROW_NAMED, not {type_info!r}")
        for name, field in zip(type_info.names, type_info.types, strict=True):
            _check_field(name, field)
        if not isinstance(jdbc_connection_options, JdbcConnectionOptions):
            raise InvalidRequestError(f"{jdbc_connection_options!r} is no JdbcConnectionOptions")
        return JdbcSink(sql, type_info, jdbc_connection_options, jdbc_execution_options or JdbcExecutionOptions())

    def form(self, elements: ElementType) -> tuple[RowOf, ElementType]:
        del elements
        return RowOf(self._kind), self._elements

    def check_columns(self, schema: StructType) -> None:
        if schema.names != self._elements.schema.names:
            raise InvalidRequestError("a JdbcSink takes elements: call stream.add_sink(sink)")

    def prepare(self, job_id: str) -> None:
        """Connect. Raises `InvalidRequestError` if the client is not installed, or the server refuses."""
        del job_id
        try:
            import psycopg  # noqa: F401  is it there?
        except ImportError:
            raise InvalidRequestError(
                "JdbcSink needs the package psycopg in the driver: pip install 'varvite[postgres]'"
            ) from None
        self._retry(self._connected, "connect")

    def write(self, df: DataFrame, commit: SinkCommit) -> None:
        self._retry(lambda: self._insert(FrameRows(df)), f"write batch {commit.batch}")

    def write_table(self, table: pa.Table, commit: SinkCommit) -> None:
        self._retry(lambda: self._insert(TableRows(table)), f"write batch {commit.batch}")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it is of no use any more, whatever it says
                connection.close()

    def _insert(self, rows: OutputRows) -> None:
        connection = self._connected()
        with connection.transaction(), connection.cursor() as cursor:
            values = self._values(rows)
            while piece := list(islice(values, self._execution.batch_size)):
                cursor.executemany(self._sql, piece)
            fail_point("driver.in_sink")

    def _values(self, rows: OutputRows) -> Iterator[tuple[Any, ...]]:
        for batch in rows.batches():
            yield from map(tuple, self._elements.reader(batch.schema).rows(batch))

    def _connected(self) -> Any:
        import psycopg
        from psycopg.conninfo import make_conninfo

        if self._connection is None or self._connection.closed:
            url, parts = conninfo_parts(self._place)
            known: Any = {"connect_timeout": "10", "application_name": "varvite", **parts}
            self._connection = psycopg.connect(make_conninfo(url, **known), autocommit=True)
        return self._connection

    def _retry(self, call: Any, action: str) -> None:
        """Call again while the server is not there, as often as the options say."""
        import psycopg

        for attempt in range(self._execution.max_retries + 1):
            try:
                call()
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                self.close()
                reason = " ".join(str(error).split())
                if attempt == self._execution.max_retries:
                    raise DidNotHappenError(
                        f"JdbcSink: PostgreSQL could not {action}; see that {self._place.url.partition('?')[0]} can be "
                        f"reached, and start the job again: {reason}"
                    ) from error
                _log.warning("JdbcSink: PostgreSQL could not %s, it is tried again: %s", action, reason)
                self._clock.sleep(_PAUSE_S * attempt)
            except psycopg.Error as error:
                self.close()
                raise InvalidRequestError(
                    f"JdbcSink: PostgreSQL refuses to {action}: {' '.join(str(error).split())}; correct the statement "
                    f"or the table: {self._sql}"
                ) from error
            else:
                return


def _check_field(name: str, kind: WireType) -> None:
    item = kind.element if isinstance(kind, SequenceType) else kind
    if isinstance(item, CompositeType | MapType | PickledType | SequenceType):
        raise InvalidRequestError(
            f"JdbcSink: field {name} is of type {kind}, which PostgreSQL does not get: convert it"
        )
