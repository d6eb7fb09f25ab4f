"""Commands of the documentation are run by something, and its Python is Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tidy.pages.doc_blocks import ROOT, SHELLS, Block, all_blocks, blocks_of, commands_of

COVERED: dict[str, str] = {
    "make": "tests/tidy/commands/test_make.py::test_make_alone_lists_the_commands",
    "make demo": "tests/spark/test_documents.py::test_the_demo_ends_with_the_state_that_pandas_computes",
    "make demo-crash": "tests/spark/test_documents.py::test_the_demo_survives_kills_of_every_kind_of_process",
    "make demo-kafka": "tests/spark/test_documents.py::test_the_demo_of_kafka_counts_each_order_once",
    "make demo-kafka DEMO_ARGS='--kills 3'":
        "tests/spark/test_documents.py::test_the_demo_of_kafka_counts_each_order_once",
    "make setup": ".ci/run",
    "make check": ".ci/run",
    "make test": ".ci/run",
    "make test PYTEST_ARGS='-x -k chain'": "tests/tidy/commands/test_make.py::test_make_test_passes_arguments_on",
    "make test-long": ".ci/run",
    "make test-all": "tests/tidy/commands/test_make.py::test_make_test_all_lists_what_was_skipped",
    "make bench-smoke": "tests/tidy/commands/test_make.py::test_the_benchmark_commands_start_the_benchmarks",
    "make bench-smoke BENCH_ARGS='--resume'": "tests/spark/test_benchmarks.py::test_a_run_is_resumed",
    "make bench-smoke BENCH_ARGS='--workload map-update --workload list-append'":
        "tests/spark/test_benchmarks.py::test_a_run_is_resumed",
    "make bench-smoke BENCH_ARGS='--system varvite-rocksdb --system floor'":
        "tests/spark/test_benchmarks.py::test_a_run_is_resumed",
    "make bench-smoke BENCH_ARGS='--tiny'": "tests/spark/test_benchmarks.py::test_a_run_is_resumed",
    "make bench-state": "tests/tidy/commands/test_make.py::test_the_benchmark_commands_start_the_benchmarks",
    "make bench-state BENCH_ARGS='--store hashmap --rows 5000'":
        "tests/integration/commands/test_state_access_benchmark.py::test_every_store_is_measured",
    "make bench-changelog": "tests/tidy/commands/test_make.py::test_the_benchmark_commands_start_the_benchmarks",
    "make bench-changelog BENCH_ARGS='--rows 200000 --backend rocksdb'":
        "tests/spark/test_benchmarks.py::test_the_changelogs_cost_is_measured",
    **dict.fromkeys(
        ("make bench", "make bench BENCH_ARGS='--resume'", "make bench BENCH_ARGS='--tiny'", "make bench-report",
         "python -m benchmarks.harness.report_page"),
        "tests/tidy/commands/test_make.py::test_the_benchmark_commands_start_the_benchmarks",
    ),
    "make bench-ack BENCH_ARGS='--only backend=hashmap --only storage=local'":
        "tests/unit/benchmarks/harness/test_case_runs.py::test_only_some_cases_are_chosen",
    "python -m benchmarks.timers": "tests/unit/benchmarks/test_timers.py::test_timers_are_measured",
    "python -m benchmarks.windows":
        "tests/unit/benchmarks/test_windows.py::test_the_log_is_no_larger_than_what_changed",
    ".ci/run": "tests/tidy/commands/test_make.py::test_ci_runs_the_readme_test_command_and_then_what_it_leaves_out",
    "python -m tests.simulation.system 7 --trace":
        "tests/simulation/whole/test_whole_system.py::test_the_command_tells_what_happens",
    "python -m tests.simulation.system 100000 --seeds 1000000 --steps 3000 --seconds 3600":
        "tests/simulation/whole/test_whole_system.py::test_the_command_ends_in_time",
    "varvite materialize --storage file:///var/lib/varvite --job flights":
        "tests/tidy/commands/test_sidecar_command.py::test_documented_options_of_the_sidecar_exist",
    "varvite materialize --storage file:///var/lib/varvite --job flights --now":
        "tests/integration/materializer/test_operation.py::test_now_asks_the_materializer_that_runs",
    "varvite standby flights --storage file:///var/lib/varvite --directory /mnt/disk1/varvite --directory /mnt/disk2/varvite":  # noqa: E501
        "tests/unit/materializer/commands/test_standby.py::test_the_command_of_the_page_runs",
    "varvite standby flights --storage file:///var/lib/varvite --directory /mnt/disk1/varvite --followers 2 --host node-7":  # noqa: E501
        "tests/unit/materializer/commands/test_standby.py::test_the_command_with_followers_runs",
    "varvite sweep --storage file:///var/lib/varvite --dry-run":
        "tests/unit/materializer/commands/test_inspect.py::test_sweep_deletes_what_an_attempt_left_and_dry_run_does_not",
    **dict.fromkeys(
        (
            "varvite describe flights --storage file:///var/lib/varvite",
            "varvite state flights total --storage file:///var/lib/varvite --limit 5",
            "varvite state flights total --storage file:///var/lib/varvite --key N14228",
            "varvite state flights by_name --storage file:///var/lib/varvite --checkpoint batch:0 --key-groups 0-3 --json",  # noqa: E501
            "varvite state flights --storage file:///var/lib/varvite --count",
            "varvite state flights --storage file:///var/lib/varvite --groups --json",
            "varvite diff flights --from batch:0 --storage file:///var/lib/varvite",
            "varvite diff flights --from batch:0 --to batch:1 --count --storage file:///var/lib/varvite",
            "varvite pins list flights --storage file:///var/lib/varvite",
            "varvite pins release flights --older-than 1d --storage file:///var/lib/varvite",
            "varvite verify flights --storage file:///var/lib/varvite",
            "varvite verify flights --repair --storage file:///var/lib/varvite",
            "varvite verify flights --repair --apply --storage file:///var/lib/varvite",
            "varvite verify flights --repair --apply --stopped --storage file:///var/lib/varvite",
        ),
        "tests/unit/materializer/commands/test_tools_document.py::test_the_commands_of_the_page_run",
    ),
    "varvite preflight --storage s3://bucket/varvite":
        "tests/integration/storage/test_bucket_settings.py::test_the_command_says_it_and_exits_with_1_if_there_is_a_danger",
    "varvite package --output lib":
        "tests/unit/materializer/commands/test_package.py::test_the_command_of_the_page_runs",
    "python -m benchmarks.many_partitions.restart_reads":
        "tests/integration/commands/test_benchmarks_without_spark.py::test_tasks_of_a_first_batch_read_no_entry_of_the_chain",
    "python -m benchmarks.many_partitions.driver_cost":
        "tests/unit/benchmarks/test_driver_cost.py::test_the_drivers_cost_is_measured",
    "deploy/spark_submit.sh --storage s3://bucket/varvite --job orders -- --master yarn --py-files varvite.zip orders.py":  # noqa: E501
        "tests/integration/commands/test_spark_submit.py::test_the_job_gets_the_flag_and_the_sidecar_runs_beside_it",
    "varvite savepoint create flights before-upgrade --storage file:///var/lib/varvite":
        "tests/spark/job/test_savepoints.py::test_the_page_runs_from_top_to_bottom",
    "varvite savepoint create flights copy --format canonical --storage file:///var/lib/varvite":
        "tests/spark/job/test_savepoints.py::test_the_page_runs_from_top_to_bottom",
    "varvite savepoint list flights --storage file:///var/lib/varvite":
        "tests/spark/job/test_savepoints.py::test_the_page_runs_from_top_to_bottom",
    "varvite savepoint describe flights copy --json --storage file:///var/lib/varvite":
        "tests/spark/job/test_savepoints.py::test_the_page_runs_from_top_to_bottom",
    "varvite savepoint delete flights before-upgrade --storage file:///var/lib/varvite":
        "tests/spark/job/test_savepoints.py::test_the_page_runs_from_top_to_bottom",
    "varvite restore flights --batch 0 --spark-checkpoint file:///data/checkpoints/flights --storage file:///var/lib/varvite":
        "tests/spark/job/test_savepoints.py::test_the_page_runs_from_top_to_bottom",
}  # fmt: skip
"""Command as it stands in a document → the test that runs it, or `.ci/run`."""

RUN_BY: dict[str, str] = {
    "docs/guide/broadcast.md": "tests/spark/programs/test_broadcast.py::test_the_programs_of_the_page_run",
    "docs/guide/connected-streams.md":
        "tests/spark/programs/test_connected_streams.py::test_the_programs_of_the_page_run",
    "docs/guide/operator-state.md":
        "tests/spark/programs/test_operator_state.py::test_the_function_of_the_page_loses_no_row_that_waits",
    "docs/guide/kafka.md": "tests/spark/kafka/test_kafka_jobs.py::test_the_program_of_the_page_runs",
    "docs/guide/recipes.md": "tests/spark/kafka/test_recipes.py::test_from_kafka_to_delta",
    "docs/guide/flink-connectors.md": "tests/spark/kafka/test_flink_kafka.py::test_the_programs_of_the_page_run",
    "docs/guide/tables.md": "tests/spark/sinks/test_table_jobs.py::test_the_programs_of_the_page_run",
    "docs/guide/side-outputs.md": "tests/spark/programs/test_side_outputs.py::test_the_program_of_the_page_runs",
    "docs/operate/state-backends.md": "tests/spark/job/test_state_backends.py::test_the_code_of_the_page_runs",
    "docs/guide/ttl.md":
        "tests/unit/changelog/keyed/ttl/test_document.py::test_the_function_of_the_page_forgets_old_airports",
    "docs/guide/pyflink.md": "tests/spark/programs/test_pyflink_programs.py::test_the_programs_of_the_page_run",
    "docs/guide/spark-programs.md":
        "tests/spark/programs/test_spark_programs.py::test_the_program_of_the_documentation",
    "docs/guide/timers.md":
        "tests/spark/programs/test_timers.py::test_the_job_of_the_documentation_says_which_aircraft_stay_grounded",
    "docs/operate/tools.md":
        "tests/unit/materializer/commands/test_tools_document.py::test_the_program_of_the_page_runs",
    "docs/guide/windows.md":
        "tests/spark/programs/test_windows.py::test_the_job_of_the_documentation_tells_mean_delays",
    "README.md": "tests/spark/test_documents.py::test_the_submit_script_runs_the_readme_job_with_a_sidecar_beside_it",
    "docs/guide/testing.md": "tests/unit/spark_integration/harness/test_document.py::test_the_code_of_the_page_runs",
    "docs/operate/savepoints.md": "tests/spark/job/test_savepoints.py::test_the_page_runs_from_top_to_bottom",
    "docs/operate/schema-evolution.md":
        "tests/spark/programs/test_schema_evolution.py::test_a_job_goes_on_with_other_types",
    "docs/guide/vectorized.md":
        "tests/spark/programs/test_vectorized_document.py::test_the_programs_of_the_page_do_what_it_says",
}  # fmt: skip
"""Document with blocks marked `python run` → the test that runs them."""

BLOCKS = all_blocks()
SHELL_BLOCKS = [block for block in BLOCKS if block.language in SHELLS]
PYTHON_BLOCKS = [block for block in BLOCKS if block.language == "python"]


def name_of(block: Block) -> str:
    return block.name


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=name_of)
def test_a_documented_command_is_run_by_a_test(block: Block) -> None:
    unknown = [command for command in commands_of(block) if command not in COVERED]
    assert not unknown, f"{block.name}: no test runs {unknown}; write one and name it in COVERED"


@pytest.mark.parametrize("block", [b for b in SHELL_BLOCKS if b.language == "console"], ids=name_of)
def test_a_console_block_shows_what_is_typed(block: Block) -> None:
    assert commands_of(block), f"{block.name}: no line begins with '$ '"


@pytest.mark.parametrize("block", BLOCKS, ids=name_of)
def test_a_block_says_what_it_is(block: Block) -> None:
    """A block without a language, or with an unknown one, would escape every check of this module."""
    assert block.language in SHELLS | {"python", "text", "json", "toml", "yaml", "ini"}
    assert not block.tags or (block.language, block.tags) == ("python", ("run",))


@pytest.mark.parametrize(("command", "test"), COVERED.items())
def test_what_covers_a_command_exists(command: str, test: str) -> None:
    path, _, function = test.partition("::")
    source = (ROOT / path).read_text()
    if function:
        functions = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
        assert function in functions
    else:
        assert command in source


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=name_of)
def test_a_python_block_compiles(block: Block) -> None:
    compile(block.text, block.name, "exec", dont_inherit=True)


@pytest.mark.parametrize("block", [b for b in PYTHON_BLOCKS if ".start(" in b.text], ids=name_of)
def test_a_query_that_a_document_starts_has_what_start_asks_for(block: Block) -> None:
    """Not every test runs a block to its end."""
    assert "query_name(" in block.text
    assert "checkpointLocation" in block.text or 'readStream.format("kafka")' in block.text


def test_blocks_that_are_marked_to_run_are_run() -> None:
    marked = {block.document for block in PYTHON_BLOCKS if "run" in block.tags}
    assert marked == set(RUN_BY)
    for test in RUN_BY.values():
        assert "doc_blocks" in Path(ROOT, test.partition("::")[0]).read_text()


def test_commands_are_found_in_blocks() -> None:
    text = "````console\n$ make  a\nshown\n````\n\n```bash\n# why\nx \\\n  --y\n```\n```python run\n1\n```\n"
    console, script, python = blocks_of("page.md", text)
    assert commands_of(console) == ["make a"]
    assert commands_of(script) == ["x --y"]
    assert (python.language, python.tags, python.line) == ("python", ("run",), 11)
    with pytest.raises(ValueError, match=r"page.md:2"):
        blocks_of("page.md", "\n```text\n")
