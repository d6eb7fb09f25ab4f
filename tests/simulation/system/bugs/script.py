"""A bug as a text of effects: who, at which effect, and what happens there. All else takes its ordinary course.

Without a script chance decides at each step, so that a run is another one as soon as anything takes another number of
steps. With one all take turns, nothing fails by chance, and only what the text says goes wrong:

    # The driver's reply is lost, and another run takes over before it asks again.
    driver.1 | put_if_absent job/chain/3 | 1 | lost
    driver.1 | get job/chain/3 | 1 | stalls 30
    driver.1 | get job/chain/3 | 1 | replaced

A line is: process, effect, its how-manieth occurrence in the process, outcome. In an effect a token is `*`, and
numbers have no leading zeros. So a text stays the same bug as long as those effects are there, whatever comes between.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

OUTCOMES: Final = {
    "fails": "the call fails without effect, and says so",
    "torn": "the call fails without effect, and the caller cannot know",
    "lost": "the call has its effect, and the reply is lost",
    "late": "the caller gives up; the effect comes after so many seconds",
    "hangs": "no answer until the timeout; the effect comes after so many seconds",
    "stalls": "the process does nothing for so many seconds",
    "killed": "the process is killed",
    "replaced": "another run of the driver is started",
    "restored": "an operator stops the job and sets it back by so many checkpoints; to a savepoint, if negative",
    "anew": "the same, and the job goes on with a new checkpoint location",
    "cloned": "somebody starts a clone of the job",
}
"""Outcome → what it means."""
_TOKEN: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_ZEROS: Final = re.compile(r"(?<![0-9a-z])0+(?=[0-9])")
SCRIPTS: Final = Path(__file__).parent / "scripts"


class Outcome(NamedTuple):
    """One of `OUTCOMES`, and its number."""

    what: str
    number: float = 0.0

    def __str__(self) -> str:
        return f"{self.what} {self.number:g}" if self.number else self.what


class Line(NamedTuple):
    """One deviation from the ordinary course."""

    process: str
    effect: str
    """As `effect_of` gives it."""
    nth: int
    """Occurrence in that process, from 1."""
    outcome: Outcome

    def __str__(self) -> str:
        return f"{self.process} | {self.effect} | {self.nth} | {self.outcome}"


class Script:
    """The lines of one run; counts effects, so it is used once."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = tuple(lines)
        self._seen = [0] * len(self.lines)

    def outcomes(self, process: str, effect: str) -> list[Outcome]:
        """The outcomes of an effect that is about to take place; none if no line names this occurrence."""
        effect = effect_of(effect)
        outcomes: list[Outcome] = []
        for number, line in enumerate(self.lines):
            if line.process == process and effect == line.effect:
                self._seen[number] += 1
                if self._seen[number] == line.nth:
                    outcomes.append(line.outcome)
        return outcomes


def effect_of(text: str) -> str:
    """An effect as scripts name it: the same in every run that has it."""
    return _ZEROS.sub("", _TOKEN.sub("*", text))


class Certain(random.Random):
    """Decides for the supervisor where a script says all that is out of the ordinary: always the same."""

    def random(self) -> float:
        return 0.5

    def getrandbits(self, k: int, /) -> int:
        return (1 << k) >> 1


def parse(text: str) -> list[Line]:
    """The lines of a script's text. Raises `ValueError` for a line that is none."""
    lines: list[Line] = []
    for number, row in enumerate(text.splitlines(), 1):
        if not row.strip() or row.startswith("#"):
            continue
        process, effect, nth, outcome = (part.strip() for part in row.split("|"))
        what, _, amount = outcome.partition(" ")
        if what not in OUTCOMES:
            raise ValueError(f"line {number}: {what} is none of {', '.join(OUTCOMES)}")
        lines.append(Line(process, effect, int(nth), Outcome(what, float(amount or 0))))
    return lines


def read_script(name: str) -> Script:
    """The script of `scripts/<name>.txt`."""
    return Script(parse((SCRIPTS / f"{name}.txt").read_text()))


def text_of(title: str, lines: Sequence[Line]) -> str:
    """The text of a script."""
    return "\n".join([f"# {title}", *map(str, lines), ""])
