"""`deploy/ensure_java.sh` on machines that this one is not: with no Java, an old one, with apt, without root."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "ensure_java.sh"
BASH = shutil.which("bash") or "/bin/bash"
NEW = 'openjdk version "17.0.15" 2025-04-15'
OLD = 'openjdk version "1.8.0_292"'


@dataclass(frozen=True)
class Machine:
    """A PATH with only what the machine is said to have."""

    programs: Path

    def has(self, name: str, script: str) -> Machine:
        path = self.programs / name
        path.write_text(f"#!{BASH}\n{script}\n")
        path.chmod(0o755)
        return self

    def has_java(self, banner: str) -> Machine:
        return self.has("java", f"echo '{banner}' >&2")

    def has_apt(self, candidates: str, banner: str = NEW) -> Machine:
        """apt with installation candidates for these packages, each of which brings a java with that banner."""
        java = self.programs / "java"
        self.has("apt-cache", f'case " {candidates} " in *" $2 "*) echo "  Candidate: 1";; *) echo "N: none";; esac')
        install = f"printf '#!{BASH}\\necho %q >&2\\n' '{banner}' >{java}; chmod 755 {java}"
        return self.has("apt-get", f'echo "$@" >>{self.programs}/apt.log\ncase $1 in install) {install};; esac')

    def apt_log(self) -> list[str]:
        log = self.programs / "apt.log"
        return log.read_text().splitlines() if log.exists() else []

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, str(SCRIPT)],
            env={"PATH": str(self.programs), **environment},
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without Java and without root."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "cat", "chmod", "grep", "head", "sed"):
        (programs / name).symlink_to(shutil.which(name) or "")
    return Machine(programs).has("id", "echo 1000")


@pytest.mark.parametrize("banner", [NEW, 'java version "21" 2023-09-19 LTS', 'openjdk version "25-ea" 2025-09-16'])
def test_a_new_enough_java_is_taken_without_a_word(machine: Machine, banner: str) -> None:
    done = machine.has_java(banner).run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("banner", [None, OLD, 'openjdk version "11.0.2" 2019-01-15', "The operation couldn't run"])
def test_without_root_one_is_told_what_to_type(machine: Machine, banner: str | None) -> None:
    if banner is not None:
        machine.has("java", f'echo "{banner}" >&2')
    done = machine.has_apt("openjdk-17-jre-headless").run()
    assert done.returncode == 1
    for line in (
        "sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless",
        "sudo dnf install -y java-17-openjdk-headless",
        "brew install openjdk@17",
    ):
        assert line in done.stderr
    assert machine.apt_log() == []


@pytest.mark.parametrize(
    ("candidates", "installed"),
    [
        ("openjdk-17-jre-headless openjdk-21-jre-headless", "openjdk-17-jre-headless"),
        ("openjdk-21-jre-headless", "openjdk-21-jre-headless"),
    ],
)
def test_root_with_apt_gets_the_first_java_that_the_system_has(
    machine: Machine, candidates: str, installed: str
) -> None:
    done = machine.has("id", "echo 0").has_apt(candidates).run()
    assert done.returncode == 0, done.stderr
    update, install = machine.apt_log()
    assert update.startswith("update")
    assert install.split()[-1] == installed
    assert "--no-install-recommends" in install


def test_an_installation_that_brings_no_new_java_is_an_error(machine: Machine) -> None:
    done = machine.has("id", "echo 0").has_apt("openjdk-17-jre-headless", OLD).run()
    assert done.returncode == 1
    assert "Spark needs a Java >= 17" in done.stderr


def test_java_home_comes_before_the_path(machine: Machine, tmp_path: Path) -> None:
    """Spark looks there first too, so a good java on the PATH does not help."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    Machine(home / "bin").has_java(OLD)
    machine.has_java(NEW)
    assert machine.run().returncode == 0
    refused = machine.run(JAVA_HOME=str(home))
    assert refused.returncode == 1
    assert f"JAVA_HOME is {home}" in refused.stderr
    Machine(home / "bin").has_java(NEW)
    machine.has_java(OLD)
    assert machine.run(JAVA_HOME=str(home)).returncode == 0
