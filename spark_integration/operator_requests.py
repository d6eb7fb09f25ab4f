"""What the driver tells tasks about an operator, and what it writes into the chain about it; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varve.spark_integration.protocol import OperatorRequest, UploadLimits
from varve.storage.records import OperatorLayout, StateSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varve.spark_integration.job_plan import JobPlan
    from varve.spark_integration.operator_plan import OperatorPlan
    from varve.spark_integration.protocol import Summary


def operator_request(plan: JobPlan, operator: OperatorPlan, function_hash: str, job_id: str) -> OperatorRequest:
    """The part of a request that stays the same from batch to batch."""
    config = plan.config
    tasks = plan.parallelism * len(plan.operators)
    return OperatorRequest(
        job=plan.job,
        job_id=job_id,
        storage_url=config.storage_url,
        storage_options=dict(config.storage_options),
        operator=operator.uid,
        parallelism=plan.parallelism,
        max_parallelism=config.max_parallelism,
        backend=config.backend_type,
        backend_options=config.backend_options,
        changelog=config.changelog_enabled,
        key_columns=operator.key_columns,
        key_type=operator.key_type,
        output_schema=operator.arrow_output_schema().serialize().to_pybytes(),
        timestamp_column=operator.timestamp_column,
        function_hash=function_hash,
        task_name=operator.name,
        job_parameters=dict(config.job_parameters),
        upload=UploadLimits(
            uploads=config.upload_threads,
            in_flight_bytes=config.upload_in_flight_max_bytes,
            hedge_after_s=config.upload_timeout_ms / 1000,
            attempts=config.upload_attempts_max,
        ),
        inline_bytes_max=config.inline_bytes_per_task(tasks),
        idle_timeout_s=config.worker_idle_timeout_ms / 1000,
        vectorized=operator.vectorized,
    )


def operator_layout(request: OperatorRequest, summaries: Sequence[Summary]) -> OperatorLayout:
    """How the operator's state is laid out after the batch."""
    states: dict[str, StateSchema] = {}
    for summary in summaries:
        if summary.operator == request.operator:
            states.update({s.name: s for s in summary.states})
    return OperatorLayout(
        uid=request.operator,
        parallelism=request.parallelism,
        key_type=request.key_type,
        changelog=request.changelog,
        backend=request.backend,
        states=tuple(states[name] for name in sorted(states)),
    )
