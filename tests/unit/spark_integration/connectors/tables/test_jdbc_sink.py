"""`JdbcSink`: statements and URLs of JDBC as PostgreSQL's own client has them."""

from __future__ import annotations

from typing import Any

import pytest

from varvite.common import Types
from varvite.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from varvite.spark_integration.connectors.tables.jdbc_sink import conninfo_parts, statement_of
from varvite.storage.errors import InvalidRequestError

ROW = Types.ROW([Types.INT(), Types.STRING()])
URL = "jdbc:postgresql://h:5432/d"


def options(url: str = URL, **settings: str) -> JdbcConnectionOptions:
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url)
    for name, value in settings.items():
        getattr(builder, f"with_{name}")(value)
    return builder.build()


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("insert into t values (?, ?)", "insert into t values (%s, %s)"),
        ("insert into t values (?, '? %'' ?', ?)", "insert into t values (%s, '? %%'' ?', %s)"),
        ('update "t?" set a = ? where b % 2 = ?', 'update "t?" set a = %s where b %% 2 = %s'),
        ("insert into t values (?, ?) -- ?\n/* ? */", "insert into t values (%s, %s) -- ?\n/* ? */"),
        ("select j ?? ? where $a$ ? $a$ = ?", "select j ? %s where $a$ ? $a$ = %s"),
    ],
)
def test_parameters_are_those_outside_of_text_and_comments(sql: str, statement: str) -> None:
    assert statement_of(sql, 2) == statement


@pytest.mark.parametrize(
    ("url", "settings", "parts"),
    [
        (URL, {}, ("postgresql://h:5432/d", {})),
        (URL, {"user_name": "u", "password": "p"}, ("postgresql://h:5432/d", {"user": "u", "password": "p"})),
        (f"{URL}?user=a&sslmode=require", {"user_name": "u"},
         ("postgresql://h:5432/d", {"user": "u", "sslmode": "require"})),
        (f"{URL}?currentSchema=s", {}, ("postgresql://h:5432/d", {"options": "-c search_path=s"})),
        ("jdbc:postgresql:d", {}, ("postgresql:///d", {})),
    ],
)  # fmt: skip
def test_urls(url: str, settings: dict[str, str], parts: Any) -> None:
    assert conninfo_parts(options(url, **settings)) == parts


def test_options_answer_what_was_set_and_do_not_show_the_password() -> None:
    made = options(driver_name="org.postgresql.Driver", user_name="u", password="secret")
    assert (made.get_db_url(), made.get_driver_name()) == (URL, "org.postgresql.Driver")
    assert (made.get_user_name(), made.get_password()) == ("u", "secret")
    assert "secret" not in repr(made)
    defaults = JdbcExecutionOptions.defaults()
    assert (defaults.get_batch_size(), defaults.get_batch_interval_ms(), defaults.get_max_retries()) == (5000, 0, 3)
    built = JdbcExecutionOptions.builder().with_batch_size(7).with_batch_interval_ms(9).with_max_retries(0).build()
    assert (built.get_batch_size(), built.get_batch_interval_ms(), built.get_max_retries()) == (7, 9, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: options("jdbc:mysql://h/d?password=x"),
            r"PostgreSQL alone.*not to 'jdbc:mysql://h/d': write to other",
        ),
        (lambda: options(f"{URL}?ssl=true"), "parameter 'ssl'"),
        (lambda: JdbcSink.sink("insert into t values (?)", ROW, options()), r"1 parameters \(\?\), and .* 2 fields"),
        (lambda: JdbcSink.sink("x", Types.STRING(), options()), r"Types\.ROW"),
        (lambda: JdbcSink.sink("?", Types.ROW([Types.MAP(Types.INT(), Types.INT())]), options()), "field f0"),
        (lambda: JdbcSink.sink("? ?", ROW, URL), "no JdbcConnectionOptions"),  # type: ignore[arg-type]
        (lambda: JdbcExecutionOptions.builder().with_batch_size(0), "at least 1"),
        (lambda: JdbcExecutionOptions.builder().with_max_retries(-1), "at least 0"),
    ],
)
def test_what_does_not_fit_is_an_error(call: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        call()
