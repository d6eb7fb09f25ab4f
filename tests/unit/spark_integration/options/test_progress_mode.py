"""Progress in the chain alone, or in Spark's logs as well."""

from __future__ import annotations

import pytest

from varvite.spark_integration.options.progress_mode import IN_CHAIN, decide_progress
from varvite.storage.errors import InvalidRequestError

EVERY = {"processingTime": "1 second"}


@pytest.mark.parametrize("trigger", [{}, EVERY])
@pytest.mark.parametrize("sources", [["rate"], ["kafka"], ["kafka", "rate"], ["rate-micro-batch"]])
@pytest.mark.parametrize("option", ["auto", "chain"])
def test_sources_whose_offsets_say_all_have_it_in_the_chain(
    option: str, sources: list[str], trigger: dict[str, object]
) -> None:
    assert decide_progress(option, sources, trigger, has_spark_state=False) == IN_CHAIN


@pytest.mark.parametrize(
    ("option", "sources", "trigger", "has_spark_state", "reason"),
    [
        ("auto", ["rate", "FileSource[/in]"], {}, False, "the source FileSource"),
        ("auto", ["socket"], {}, False, "the source socket"),
        ("auto", ["rate"], {"availableNow": True}, False, "availableNow"),
        ("auto", ["rate"], {"once": True}, False, "once"),
        ("auto", ["rate"], {}, True, "keep state"),
        ("spark", ["rate"], {}, False, "is spark"),
    ],
)
def test_what_keeps_spark_s_logs_is_said(
    option: str, sources: list[str], trigger: dict[str, object], has_spark_state: bool, reason: str
) -> None:
    mode = decide_progress(option, sources, trigger, has_spark_state=has_spark_state)
    assert not mode.is_in_chain
    assert reason in mode.reason


def test_a_user_may_say_that_another_source_keeps_nothing() -> None:
    assert decide_progress("chain", ["my-source"], {}, has_spark_state=False) == IN_CHAIN


@pytest.mark.parametrize(("trigger", "has_spark_state"), [({"availableNow": True}, False), ({}, True)])
def test_what_spark_refuses_is_an_error(trigger: dict[str, object], has_spark_state: bool) -> None:
    with pytest.raises(InvalidRequestError, match=r"progress is chain, but .*set it to auto"):
        decide_progress("chain", ["rate"], trigger, has_spark_state=has_spark_state)
