"""`varvite restore`: sets a stopped job, and Spark's checkpoint location, back to a checkpoint that both have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from varvite.materializer.commands.output.lines import show_lines
from varvite.materializer.commands.output.parameters import existing_job, storage_parameters
from varvite.materializer.commands.output.progress import shown_steps
from varvite.materializer.restore.decision import RequestedCheckpoint
from varvite.materializer.restore.job import CancelLine, JobRestore
from varvite.materializer.restore.origin import find_origin
from varvite.storage.clock import SystemClock, SystemTokens
from varvite.storage.errors import InvalidRequestError, VarviteError
from varvite.storage.object_stores.open import open_beside

if TYPE_CHECKING:
    from varvite.materializer.restore.job import RestoreLine

_CHOICES: Final = ("seq", "batch", "location", "cancel")


@click.command()
@click.argument("job")
@storage_parameters(required=True)
@click.option("--checkpoint", "seq", type=click.IntRange(1), help="Seq of the checkpoint to go back to.")
@click.option("--batch", type=click.IntRange(0), help="Batch whose checkpoint to go back to.")
@click.option("--savepoint", "location", metavar="NAME", help="Savepoint to go back to, by name or location.")
@click.option("--spark-checkpoint", "spark_url", metavar="URL", help="Spark's checkpoint location, to set it back too.")
@click.option(
    "--new-location", is_flag=True, help="Spark's checkpoint location is still empty: the query begins there."
)
@click.option("--cancel", is_flag=True, help="Undo an earlier choice.")
@click.option("--force", is_flag=True, help="Also if a driver seems to run the job: it is fenced off.")
@click.option("--dry-run", is_flag=True, help="Only print the plan; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
def restore(job: str, storage_url: str, storage_options: dict[str, Any] | None, **options: Any) -> None:
    """Choose the checkpoint that the next start of JOB continues from. JOB must be stopped.

    Without --checkpoint, --batch or --savepoint: the newest that fits Spark's checkpoint location, or the newest.
    """
    try:
        if sum(options[name] is not None and options[name] is not False for name in _CHOICES) > 1:
            raise InvalidRequestError("give one of --checkpoint, --batch, --savepoint and --cancel")
        store, record = existing_job(job, storage_url, storage_options)
        spark = (
            None if options["spark_url"] is None else open_beside(options["spark_url"], storage_url, storage_options)
        )
        command = JobRestore(
            job,
            store,
            record,
            spark,
            clock=SystemClock(),
            tokens=SystemTokens(),
            dry_run=options["dry_run"],
            may_be_new=options["new_location"],
        )
        command.is_forced = options["force"]
        line: RestoreLine | CancelLine
        if options["cancel"]:
            line = command.cancel()
        elif options["location"] is not None:
            with shown_steps("copying the state"):
                line = command.to_origin(find_origin(options["location"], store, storage_options))
        else:
            line = command.to_checkpoint(RequestedCheckpoint(options["seq"], options["batch"]))
    except VarviteError as error:
        raise click.ClickException(str(error)) from error
    if isinstance(line, CancelLine) and not options["as_json"]:
        click.echo(_cancel_text(line))
        return
    show_lines([line], as_json=options["as_json"])


def _cancel_text(line: CancelLine) -> str:
    if line.cancelled_seq is None:
        return f"{line.job}: no checkpoint was chosen for the next start; nothing was changed"
    verb = "would be" if line.dry_run else "is"
    return f"{line.job}: the choice of checkpoint {line.cancelled_seq} {verb} undone"
