"""Names in the directory of an executor's state workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from varvite.spark_integration.transport.home import (
    WorkerHome,
    connect,
    exclusive,
    executor_home,
    import_path,
    listen,
    socket_inode,
    worker_name,
    worker_socket,
)
from varvite.storage.errors import InvalidRequestError

HOME = WorkerHome(Path("/local/blockmgr-1/varvite-0"))


def test_the_home_lies_in_the_first_local_directory() -> None:
    home = executor_home({"SPARK_LOCAL_DIRS": "/disk1/blockmgr-a,/disk2/blockmgr-b"})
    assert home.path.parent == Path("/disk1/blockmgr-a")
    assert home.path.name.startswith("varvite-")


@pytest.mark.parametrize("environment", [{}, {"SPARK_LOCAL_DIRS": ""}])
def test_outside_of_an_executor_there_is_no_home(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match="SPARK_LOCAL_DIRS"):
        executor_home(environment)


def test_a_state_directory_names_job_operator_and_key_groups() -> None:
    assert HOME.state_directory("j", "count", 0, 64) == HOME.path / "state" / "j" / "count" / "00000-00064"


def test_state_directories_differ_if_anything_differs_and_stay_below_the_home() -> None:
    operators = ["a", "A", "a/b", "a%2Fb", "..", ".", "a.b", "ä", "x" * 300, "x" * 301]
    paths = {HOME.state_directory(j, o, low, 8) for j in ("1", "2") for o in operators for low in (0, 4)}
    assert len(paths) == 2 * len(operators) * 2
    for path in paths:
        assert path.relative_to(HOME.path / "state").parts[2] in ("00000-00008", "00004-00008")
        assert max(len(part.encode()) for part in path.parts) <= 255


def test_worker_names_fit_a_socket_address() -> None:
    assert worker_name("0123456789abcdef0123456789abcdef", 12) == "0123456789abcdef0123456789abcdef-12"
    odd = [worker_name(job, 99_999) for job in ("a/b", "j" * 200, "j" * 201, "ä")]
    assert len(set(odd)) == len(odd)
    assert all(len(worker_socket(name)) < 80 for name in odd)


def test_nobody_listening_is_a_value(tmp_path: Path) -> None:
    home = WorkerHome(tmp_path)
    assert connect(home, "a.sock") is None
    listen(home, "a.sock").close()
    assert connect(home, "a.sock") is None


def test_a_socket_can_be_bound_below_a_path_of_any_length(tmp_path: Path) -> None:
    home = WorkerHome(tmp_path / ("long" * 30) / "varvite-0")
    home.path.mkdir(parents=True)
    server = listen(home, "a.sock")
    first = socket_inode(home, "a.sock")
    client = connect(home, "a.sock")
    assert client is not None
    accepted, _ = server.accept()
    client.sendall(b"x")
    assert accepted.recv(1) == b"x"
    again = listen(home, "a.sock")
    assert first is not None
    assert socket_inode(home, "a.sock") not in (None, first)
    for connection in (server, client, accepted, again):
        connection.close()


def test_a_lock_is_exclusive_also_after_its_file_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive(path) as held:
        assert held
        with exclusive(path, wait=False) as other:
            assert not other
        path.unlink()
        with exclusive(path, wait=False) as fresh:
            assert fresh
            with exclusive(path, wait=False) as third:
                assert not third


def test_modules_that_spark_has_put_beside_the_executor_are_found_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--py-files` are on `sys.path` as ./name; a state worker with another directory did not find them."""
    monkeypatch.chdir(tmp_path)
    assert import_path(["", "./varvite.zip", ".", "/usr/lib/python3"]) == (
        f"{tmp_path}/varvite.zip",
        str(tmp_path),
        "/usr/lib/python3",
    )
