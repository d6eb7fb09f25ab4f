"""Output and exit codes of the commands when something is wrong: a mistyped name, one bad job of many, `--json`."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.jobs.committing_job import CommittingJob, random_batch
from tests.stores.manual_clock import ManualClock
from varvite.materializer.commands.cli import RequestLine, main
from varvite.materializer.commands.output.lines import show_lines, show_rows
from varvite.materializer.commands.output.progress import ConsoleReporter, EventConsole, describe
from varvite.materializer.monitoring.events import JobFailed
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format import layout
from varvite.storage.job.listing import job_names
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.prefixed import PrefixedStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.testing import Result

    from varvite.changelog.commit.batch_result import BatchFacts
    from varvite.storage.object_stores.contract import ObjectMeta

NAMES = ("flights", "orders", "trains")


@pytest.fixture
def jobs(tmp_path: Path) -> dict[str, CommittingJob]:
    found: dict[str, CommittingJob] = {}
    for name in NAMES:
        job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), name), ManualClock(), name=name)
        job.start()
        job.commit(random_batch(random.Random(1)))
        job.close()
        found[name] = job
    return found


def call(storage: Path | str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--storage", str(storage)], catch_exceptions=False)


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("area", [layout.JOB, layout.CHAIN])
def test_one_bad_job_leaves_the_others_their_lines(jobs: dict[str, CommittingJob], tmp_path: Path, area: str) -> None:
    store = jobs["orders"].store
    store.put([meta.name for meta in store.list(area)][-1], b"damaged")
    for command in ("jobs", "sweep"):
        done = call(tmp_path, command, "--json")
        assert done.exit_code == 1
        found = {line["job"]: line["error"] for line in lines(done)}
        assert list(found) == list(NAMES)
        assert (found["flights"], found["trains"]) == (None, None)
        assert "job=orders" in found["orders"]
        shown = call(tmp_path, command)
        assert (shown.exit_code, "job=orders" in "".join(shown.output.split())) == (1, True)
    done = call(tmp_path, "verify", "--json")
    assert done.exit_code == 1
    assert {line["job"] for line in lines(done) if line.get("problem")} == {"orders"}
    store.delete([layout.JOB])
    assert f"has lost its {layout.JOB}" in call(tmp_path, "describe", "orders").output


@pytest.mark.parametrize("command", [("jobs",), ("sweep",), ("verify",), ("materialize", "--now")])
@pytest.mark.usefixtures("jobs")
def test_a_bug_that_one_job_meets_leaves_the_others_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """A record that no decoder had foreseen ended the commands over all jobs with its traceback."""
    real = LocalStore.get

    def odd(self: LocalStore, name: str) -> bytes:
        if name.startswith("orders/"):
            raise RecursionError("maximum recursion depth exceeded")
        return real(self, name)

    monkeypatch.setattr(LocalStore, "get", odd)
    done = call(tmp_path, *command, "--json")
    assert done.exit_code == 1
    found = {line["job"]: line.get("error") or line.get("problem") for line in lines(done)}
    assert list(found) == list(NAMES)
    assert "RecursionError: maximum recursion depth exceeded; this is a bug in varvite" in found["orders"]
    assert (found["flights"], found["trains"]) == (None, None)


def test_now_asks_for_the_jobs_beside_a_bad_one(jobs: dict[str, CommittingJob], tmp_path: Path) -> None:
    jobs["flights"].store.put(layout.JOB, b"damaged")
    done = call(tmp_path, "materialize", "--now", "--json")
    assert done.exit_code == 1
    found = {line["job"]: line["error"] for line in lines(done)}
    assert list(found) == list(NAMES)
    assert "job=flights" in found["flights"]
    assert [found["orders"], found["trains"]] == [None, None]
    assert [len(jobs[name].store.list(layout.REQUESTS)) for name in NAMES] == [0, 1, 1]
    shown = call(tmp_path, "materialize", "--now")
    assert "orders: materialization requested" in shown.output
    assert (shown.exit_code, "flights: not requested" in shown.output) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("checkpoints", "flihgts"),
        ("describe", "flihgts"),
        ("state", "flihgts"),
        ("diff", "flihgts", "--from", "2"),
        ("sweep", "--job", "flihgts"),
        ("verify", "flihgts"),
        ("savepoint", "list", "flihgts"),
        ("savepoint", "create", "flihgts", "a"),
        ("savepoint", "delete", "flihgts", "a"),
        ("pins", "list", "flihgts"),
        ("pins", "release", "flihgts", "x"),
        ("restore", "flihgts"),
        ("restore", "flihgts", "--cancel"),
        ("standby", "flihgts", "--once"),
        ("materialize", "--now", "--job", "flihgts"),
        ("materialize", "--once", "--job", "flihgts"),
    ],
    ids=" ".join,
)
def test_a_mistyped_job_is_an_error_that_names_the_near_one(
    jobs: dict[str, CommittingJob], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    del jobs
    done = call(tmp_path, *arguments)
    assert done.exit_code == 1, done.output
    assert "there is no job 'flihgts'" in done.output
    assert "did you mean 'flights'?" in done.output


@pytest.mark.parametrize(
    "arguments",
    [("verify",), ("jobs",), ("sweep",), ("describe", "flights"), ("materialize", "--now"), ("materialize", "--once")],
    ids=" ".join,
)
def test_a_storage_that_is_not_there_is_an_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = call(tmp_path / "nothing", *arguments)
    assert (done.exit_code, f"there is no directory {tmp_path}/nothing" in done.output) == (1, True)
    done = call("s3:/bucket/x", *arguments)
    assert (done.exit_code, "write s3://bucket/x" in done.output) == (1, True)
    assert not (tmp_path / "nothing").exists()


def test_verify_of_a_storage_without_a_job_is_no_success(tmp_path: Path) -> None:
    done = call(tmp_path, "verify")
    assert (done.exit_code, "nothing was verified" in done.output) == (1, True)


def test_what_runs_once_does_not_say_that_it_waits_for_a_job(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    done = call(tmp_path / "storage", "materialize", "--once", "--working-directory", str(tmp_path / "work"))
    assert done.exit_code == 1
    assert "there is no job in" in done.output
    assert "waiting" not in done.output


def test_errors_are_json_where_the_output_is(jobs: dict[str, CommittingJob], tmp_path: Path) -> None:
    for arguments, code, kind, told in (
        (("describe", "nobody"), 1, "InvalidRequestError", "there is no job 'nobody'"),
        (("savepoint", "delete", "flights", "x"), 1, "InvalidRequestError", "there is no savepoint"),
        (("sweep", "--grace-hours", "-3"), 2, "UsageError", "-3"),
        (("jobs", "--nonsense"), 2, "UsageError", "--nonsense"),
        (("materialize", "--once", "--poll", "0 s"), 2, "UsageError", "--poll"),
    ):
        done = call(tmp_path, *arguments, "--json")
        assert (done.exit_code, done.stdout) == (code, "")
        [error] = [json.loads(line) for line in done.stderr.splitlines()]
        assert set(error) == {"message", "kind", "context"}
        assert error["kind"] == kind
        assert told in error["message"]
    store = jobs["flights"].store
    store.put(layout.chain(2), b"damaged")
    error = json.loads(call(tmp_path, "checkpoints", "flights", "--json").stderr)
    assert (error["kind"], error["context"]["object_name"]) == ("CorruptDataError", layout.chain(2))


@pytest.mark.parametrize("hours", ["-3", "nan", "inf"])
def test_a_grace_that_is_no_time_is_refused(jobs: dict[str, CommittingJob], tmp_path: Path, hours: str) -> None:
    """An upload that is going on would be taken for abandoned."""
    del jobs
    assert call(tmp_path, "sweep", "--dry-run", "--grace-hours", hours).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--conf", "spark.varvite.foo=1"), "spark.varvite.foo is no option of varvite"),
        (("--conf", "spark.varvite.state.changelog.periodic-materialize.interwal=1 s"), "materialize.interval?"),
        (("--parallel", "0"), "'--parallel': '0' is too small; use at least 1"),
        (("--space-ratio", "inf"), "finite"),
        (("--log-ratio", "nan"), "--log-ratio"),
        (("--once",), "give one"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    done = call(tmp_path, "materialize", "--now", *arguments)
    assert (done.exit_code, told in " ".join(done.output.split())) == (2, True), done.output


def test_options_that_choose_rows_do_not_go_with_counts(jobs: dict[str, CommittingJob], tmp_path: Path) -> None:
    del jobs
    for what in ("--count", "--groups"):
        for option in (("--key", "a"), ("--limit", "3")):
            done = call(tmp_path, "state", "flights", what, *option)
            assert (done.exit_code, f"{option[0]} does not go with {what}" in done.output) == (1, True)


def test_a_state_that_no_operator_has_is_not_counted_as_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = CommittingJob(PrefixedStore(LocalStore(str(tmp_path)), "flights"), ManualClock(), name="flights")
    job.start()
    assert job.run is not None
    commit, change = job.run.commit, msgspec.structs.replace

    def of_two(facts: BatchFacts, *others: Any) -> Any:
        """With a second operator, which has changed nothing."""
        operators = (*facts.operators, change(facts.operators[0], uid="second"))
        idle = [change(result, operator="second", inline=b"", mutations=0) for result in facts.results]
        return commit(change(facts, operators=operators, results=(*facts.results, *idle)), *others)

    monkeypatch.setattr(job.run, "commit", of_two)
    job.commit(random_batch(random.Random(1)))
    job.close()
    assert lines(call(tmp_path, "jobs", "--json"))[0]["operators"] == ["flights", "second"]
    done = call(tmp_path, "state", "flights", "typo", "--count")
    assert (done.exit_code, "no operator has a state 'typo'" in done.output) == (1, True)
    counted = lines(call(tmp_path, "state", "flights", "total", "--count", "--json"))
    assert [line["operator"] for line in counted] == ["flights"]


def test_floats_that_json_lacks_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    values = [float("nan"), float("inf"), float("-inf"), 1.5, None]
    show_rows([{"key": value, "value": [{"x": (value,)}]} for value in values], as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["key"] for line in told] == ["NaN", "Infinity", "-Infinity", 1.5, None]
    assert [line["value"] for line in told] == [[{"x": [line["key"]]}] for line in told]


@pytest.mark.parametrize(
    ("arguments", "bar"),
    [
        (("state", "flights", "--count"), "ranges of key groups"),
        (("diff", "flights", "--from", "2", "--count"), "key groups of flights"),
        (("verify", "flights"), "checkpoints"),
        (("savepoint", "create", "flights", "copy", "--format", "canonical"), "copy"),
    ],
)
def test_a_progress_bar_is_shown_on_a_terminal_and_never_among_the_output(
    jobs: dict[str, CommittingJob],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    bar: str,
) -> None:
    del jobs
    plain = call(tmp_path, *arguments, "--json")
    assert plain.stderr == ""
    if arguments[0] == "savepoint":
        call(tmp_path, "savepoint", "delete", "flights", "copy")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes every stream for a terminal then
    shown = call(tmp_path, *arguments, "--json")
    assert bar in shown.stderr
    assert [set(line) for line in lines(shown)] == [set(line) for line in lines(plain)]


def test_a_failure_of_no_job_names_none() -> None:
    event = JobFailed(
        job="", time_ms=0, step="listing the jobs", error="x", error_type="X", object_name=None, failures=1, retry_ms=1
    )
    assert describe(event).startswith("listing the jobs failed")


class PartlyClosed(LocalStore):
    """It may not enter everything that lies below its root, but all of what is asked for."""

    def list(self, prefix: str, *, start_after: str = "") -> Sequence[ObjectMeta]:
        if not prefix:
            raise InvalidRequestError("permission denied: lost+found")
        return super().list(prefix, start_after=start_after)


def test_what_may_not_be_entered_beside_the_jobs_hides_none(jobs: dict[str, CommittingJob], tmp_path: Path) -> None:
    """`lost+found` at the root of a filesystem is the superuser's."""
    for name in ("lost+found", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert job_names(PartlyClosed(str(tmp_path))) == NAMES
    with pytest.raises(InvalidRequestError, match="permission denied"):
        job_names(PartlyClosed(str(tmp_path / "gone")))
    del jobs


def test_a_job_that_may_not_be_entered_is_named(
    jobs: dict[str, CommittingJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del jobs
    ways = Path.is_file

    def is_file(path: Path) -> bool:
        if path.parent.name == "orders":
            raise PermissionError(13, "Permission denied")
        return ways(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    assert job_names(PartlyClosed(str(tmp_path))) == NAMES


@pytest.mark.parametrize(
    "arguments",
    [
        ("state", "flights", "\udcff"),
        ("state", "flights", "total", "--key", "\udcff"),
        ("describe", "flights", "--checkpoint", "savepoint:\udcff"),
        ("savepoint", "describe", "flights", "\udcff"),
        ("pins", "release", "flights", "\udcff"),
    ],
)
@pytest.mark.usefixtures("jobs")
def test_a_byte_that_is_not_utf_8_is_told(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """It comes as a lone surrogate, which has no encoding."""
    for more in ((), ("--json",)):
        done = CliRunner().invoke(main, [*arguments, *more, "--storage", str(tmp_path)])
        assert isinstance(done.exception, SystemExit | None), done.exception
        assert done.exit_code == ("--key" not in arguments)
        if more and done.stderr:
            assert "\udcff" in json.loads(done.stderr)["message"] or "\\udcff" in json.loads(done.stderr)["message"]


EVIL = "\x1b[2J\x1b]0;title\x07\r\n2026-01-01 varvite: all is well\u202e"


def test_control_characters_reach_no_table_and_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    """A key that held them cleared the terminal and set its title."""
    show_rows([{"key": EVIL, "value": [EVIL], "map_key": {"x": EVIL}}], as_json=False)
    show_lines([RequestLine(EVIL, EVIL)], as_json=False)
    stream = io.StringIO()
    failed = JobFailed(
        time_ms=0, job=EVIL, step=EVIL, error_type="x", error=EVIL, object_name=None, failures=1, retry_ms=1
    )
    for is_terminal in (True, False):
        ConsoleReporter(EventConsole(file=stream, force_terminal=is_terminal, color_system=None, width=500)).report(
            failed
        )
    text = capsys.readouterr().out + RequestLine(EVIL, EVIL).text + stream.getvalue()
    assert text.count("all is well") == 3 + 2 + 2 + 3 * 2
    assert r"\x1b[2J" in text
    assert [character for character in text if character != "\n" and not character.isprintable()] == []
    assert not any(line.startswith("2026-01-01 varvite") for line in text.splitlines())
