"""The driver tells state workers on its own machine at once that their attempts have won.

Otherwise a worker learns it from the next request, and folds the batch while that request waits. So it folds while
Spark notes the batch and plans the next one. Workers elsewhere cannot be reached and fold as before; so does one that
hears nothing.

Invariants: I4 (what is told is what the next request says: the commit, and the winner's tag). Nothing is told before
the batch is over, its sink included, because until then it may have to be executed again on the commit before.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from varvite.spark_integration.transport.home import WorkerHome, connect, worker_name, worker_socket
from varvite.spark_integration.transport.wire import Channel, Confirmation, PeerLostError
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.storage.format.records import Link


def confirm(summaries: Sequence[OperatorSummaries], job_id: str, base: Link) -> None:
    """Tell the workers that can be reached; who is busy or gone is passed over, and nobody is waited for.

    Args:
        summaries: Of the winners, of all operators.
        job_id: Of the job that the workers serve.
        base: The commit that says so, on which the next batch will be executed.
    """
    winners: dict[tuple[str, int], dict[str, str]] = {}
    for own in summaries:
        for position in own.with_note(bool(note.home) for note in own.notes):
            summary, home = own.summaries[position], own.notes[own.note_codes[position]].home
            winners.setdefault((home, summary.partition), {})[own.operator] = summary.tag
    for (home, partition), tags in winners.items():
        _tell(WorkerHome(Path(home)), worker_name(job_id, partition), Confirmation(base=base, winners=tags))


def _tell(home: WorkerHome, worker: str, confirmation: Confirmation) -> None:
    with suppress(OSError, PeerLostError, InvalidRequestError):  # the last: the path is too long for this system
        connection = connect(home, worker_socket(worker), timeout_s=0.0)
        if connection is None:
            return
        channel = Channel(connection)
        try:
            channel.send_message(confirmation)
        finally:
            channel.close()
