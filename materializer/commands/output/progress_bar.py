"""Progress bars on standard error, if that is a terminal; they are gone when the work is done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

_Item = TypeVar("_Item")


def track_items(items: Sequence[_Item], what: str) -> Iterable[_Item]:
    """The items one after the other, with a bar that tells how many are done."""
    with shown_steps(what) as tell:
        for done, item in enumerate(items):
            tell(done, len(items))
            yield item


@contextmanager
def shown_steps(what: str) -> Generator[Callable[[int, int], None]]:
    """Gives a function that is to be told how many steps are done, of how many; the bar has no end until then."""
    console = Console(stderr=True)
    # What is printed meanwhile must go where it belongs: redirected, standard output would end up beside the bar.
    bar = Progress(
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(escape(what), total=None)

        def tell(done: int, steps: int) -> None:
            bar.update(task, completed=done, total=steps)

        yield tell
