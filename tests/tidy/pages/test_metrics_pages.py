"""Every metric is documented, and pages, alert rules and dashboard name only metrics that there are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from tests.stores.manual_clock import ManualClock
from tests.tidy.project_files import ROOT
from varvite.materializer.monitoring.metrics import MaterializerMetrics
from varvite.spark_integration.driver.monitoring.metrics import JobMetrics

PAGE = ROOT / "docs" / "operate" / "metrics.md"
MONITORING = ROOT / "deploy" / "monitoring"
NAME = re.compile(r"\bvarvite_[a-z_]+\b")
FLINKS = [
    "startedMaterialization",
    "completedMaterialization",
    "failedMaterialization",
    "lastDurationOfMaterialization",
    "lastFullSizeOfMaterialization",
    "lastIncSizeOfMaterialization",
    "lastFullSizeOfNonMaterialization",
    "lastIncSizeOfNonMaterialization",
    "numberOfUploadRequests",
    "numberOfUploadFailures",
    "attemptsPerUpload",
    "totalAttemptsPerUpload",
    "uploadBatchSizes",
    "uploadLatenciesNanos",
    "uploadSizes",
    "uploadQueueSize",
    "changelogBusyTimeMsPerSecond",
]


def samples(registry: Any) -> set[str]:
    """Names of what a process shows, as queries name them."""
    found: set[str] = set()
    for family in registry.collect():
        if family.name.startswith("varvite_"):
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
            found |= {family.name + suffix for suffix in suffixes}
    return found


DRIVER = samples(JobMetrics(ManualClock()).registry)
MATERIALIZER = samples(MaterializerMetrics().registry)


def documented() -> set[str]:
    """Names on the page; a histogram stands there without suffix."""
    return set(NAME.findall(PAGE.read_text()))


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_there_are_metrics_of_both_processes() -> None:
    assert len(DRIVER) > 50
    assert len(MATERIALIZER) > 40


@pytest.mark.parametrize("registry", [DRIVER, MATERIALIZER], ids=["driver", "materializer"])
def test_every_metric_is_documented(registry: set[str]) -> None:
    names = documented()
    assert sorted(name for name in registry if not {name, re.sub("_(bucket|sum|count)$", "", name)} & names) == []


def test_every_documented_metric_exists() -> None:
    known = {re.sub("_(bucket|sum|count)$", "", name) for name in DRIVER | MATERIALIZER}
    assert sorted(documented() - known) == []


def test_all_metrics_of_flink_are_on_the_page() -> None:
    rows = re.findall(r"^\| `([a-z]+[A-Z]\w+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert rows == FLINKS


def test_the_alert_rules_ask_for_metrics_that_exist() -> None:
    rules = alert_rules()
    assert len({rule["alert"] for rule in rules}) == len(rules) > 8
    for rule in rules:
        names = set(NAME.findall(rule["expr"]))
        assert names or rule["expr"].startswith("up{"), rule
        assert names <= DRIVER | MATERIALIZER, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]


def test_the_alert_of_failed_batches_sees_the_first_one() -> None:
    """The series does not exist before, so `increase` alone never tells of it."""
    assert "varvite_failed_batches_total" in {name for name in DRIVER if name.endswith("_total")}
    metrics = JobMetrics(ManualClock())
    metrics.started("flights", 1)
    assert "varvite_failed_batches_total{" not in generate_latest(metrics.registry).decode()
    [rule] = [rule for rule in alert_rules() if "varvite_failed_batches_total" in rule["expr"]]
    assert "varvite_failed_batches_total unless varvite_failed_batches_total offset 10m" in rule["expr"]


def test_what_does_not_answer_is_alerted_by_the_names_of_the_scrape_configuration() -> None:
    """A driver closes its port with its last query, so its own metrics cannot tell that this one has failed."""
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    scraped = "|".join(one["job_name"] for one in config["scrape_configs"])
    assert [f'up{{job=~"{scraped}"}} == 0'] == [r["expr"] for r in alert_rules() if r["expr"].startswith("up{")]


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    dashboard = json.loads((MONITORING / "grafana-varvite.json").read_text())
    panels = dashboard["panels"]
    assert (
        len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}) == len({p["id"] for p in panels}) == len(panels)
    )
    for panel in panels:
        for target in panel["targets"]:
            names = set(NAME.findall(target["expr"]))
            assert names, panel["title"]
            assert names <= DRIVER | MATERIALIZER, panel["title"]


def test_the_scrape_configuration_names_the_rules_and_keeps_varvites_labels() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert all((MONITORING / name).exists() for name in config["rule_files"])
    assert all(scraped["honor_labels"] for scraped in config["scrape_configs"])
