"""The descriptions of an operator in requests to tasks and in entries of the chain; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from varvite.changelog.schema.history import newest_of
from varvite.spark_integration.messages.protocol import OperatorRequest
from varvite.storage.format.records import OperatorLayout

if TYPE_CHECKING:
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.spark_integration.plan.operator import OperatorPlan
    from varvite.storage.format.records import Commit, JobRecord, StateSchema


def operator_request(
    plan: JobPlan, operator: OperatorPlan, function_hash: str, record: JobRecord, inbox: str = ""
) -> OperatorRequest:
    """The part of a request that stays the same from batch to batch; `inbox`: path of the driver's inbox, if any."""
    config = plan.config
    tasks = sum(o.parallelism or plan.parallelism for o in plan.operators)
    return OperatorRequest(
        job=plan.job,
        job_id=record.job_id,
        job_storage=record.storage,
        key_provider=config.encryption_key_provider,
        storage_url=config.storage_url,
        storage_options=dict(config.storage_options),
        operator=operator.uid,
        parallelism=operator.parallelism or plan.parallelism,
        max_parallelism=config.max_parallelism,
        backend=config.backend_type,
        backend_options=plan.backend_options,
        changelog=config.changelog_enabled,
        key_columns=operator.key_columns,
        key_type=operator.key_type,
        output_schema=operator.arrow_output_schema().serialize().to_pybytes(),
        timestamp_column=operator.timestamp_column,
        function_hash=function_hash,
        task_name=operator.name,
        job_parameters=dict(config.job_parameters),
        upload=plan.upload_policy,
        downloads=config.download_policy,
        local_recovery=config.local_recovery,
        preemptive_persist_threshold_bytes=config.preemptive_persist_threshold_bytes,
        inline_bytes_max=config.inline_bytes_per_task(tasks),
        idle_timeout_s=config.worker_idle_timeout_ms / 1000,
        generic_types=config.generic_types,
        vectorized=operator.vectorized,
        broadcast=operator.broadcast is not None,
        has_watermark=plan.has_watermark,
        follows=operator.uid != plan.operators[0].uid and (operator.input is None or bool(operator.input.outputs)),
        is_batch=plan.is_batch,
        inbox=inbox,
    )


def with_states(request: OperatorRequest, base: Commit | None) -> OperatorRequest:
    """The request of a run that begins at this commit."""
    states = next((o.states for o in base.operators if o.uid == request.operator), ()) if base else ()
    return msgspec.structs.replace(request, states=states)


def operator_layout(request: OperatorRequest, summaries: OperatorSummaries) -> OperatorLayout:
    """The layout of the operator's state after the batch.

    Raises `IncompatibleError` if the partitions do not agree about a state's schema.
    """
    states: dict[str, list[StateSchema]] = {}
    for note in summaries.notes:
        for schema in note.states:
            states.setdefault(schema.name, []).append(schema)
    return OperatorLayout(
        uid=request.operator,
        parallelism=request.parallelism,
        key_type=request.key_type,
        changelog=request.changelog,
        backend=request.backend,
        states=tuple(newest_of(states[name], request.operator) for name in sorted(states)),
    )
