"""deploy/windvane.rules.yml: alerts about metrics that exist, each explained; and the table of metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import backends
from support.backends import Databases
from support.pages import ROOT
from support.postgres import Cluster
from support.server import Local
from support.service_pages import DEPLOY, HOWTO

RULES = (DEPLOY / "windvane.rules.yml").read_text(encoding="utf-8")
NAME = r"\b(?:windvane|process)_[a-z_]+"
SUFFIXES = ("_bucket", "_sum", "_count", "_total", "_info")  # that a series has and its family has not


def read_names(path: Path) -> set[str]:
    """Return the names of all series of a service with a stream that has learned something."""
    service = Local(path)
    service.create("shop")
    for _ in range(3):
        service.reward(service.decide()["id"], 1.0)
    text = service.get("/metrics").text
    service.stop()
    families = set(re.findall(rf"^# TYPE ({NAME}) ", text, re.M))  # one without a series is there, too
    return families | set(re.findall(rf"^({NAME})", text, re.M))


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[set[str]]:
    """The names of all series of a service on a file, and of a node of a cluster."""
    path = tmp_path_factory.mktemp("metrics") / "a.db"
    on_file = read_names(path)
    backends.current = Databases(cluster, "template1")
    try:
        of_node = read_names(path)
        assert "windvane_disk_bytes" in on_file - of_node
        assert "windvane_owned_shards" in of_node - on_file
        yield on_file | of_node
    finally:
        backends.current.drop()
        backends.current = None


def test_alerts_are_about_metrics_that_exist(metrics: set[str]) -> None:
    """In all groups; every rule has what an alert needs."""
    rules = re.split(r"^ +- alert: ", RULES, flags=re.M)[1:]
    assert "- name: windvane-service" in RULES
    assert "- name: windvane-cluster" in RULES
    assert len(rules) >= 25
    for rule in rules:
        expression = re.search(r"^ +expr: (?:>\n)?((?:.|\n)*?)^ +(?:for|labels|annotations):", rule, re.M)
        assert expression is not None, rule
        named = set(re.findall(NAME, expression[1]))
        assert named <= metrics, named - metrics
        assert named or "up{" in expression[1]
        assert "summary:" in rule
        assert "severity:" in rule


def test_the_dashboard_is_about_metrics_that_exist(metrics: set[str]) -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    expressions += [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    assert len(expressions) >= 25
    for expression in expressions:
        named = set(re.findall(NAME, expression))
        assert named, expression
        assert named <= metrics, expression


def test_alerts_are_explained() -> None:
    """Each is in a table of the page, and the page names no other."""
    page = (HOWTO / "troubleshooting.md").read_text(encoding="utf-8")
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| "))
    alerts = set(re.findall(r"- alert: (\w+)", RULES))
    assert alerts - set(re.findall(r"\w+", rows)) == set()
    assert set(re.findall(r"`(Windvane\w+)`", page)) <= alerts


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
def test_prometheus_takes_the_rules() -> None:
    line = ["promtool", "check", "rules", DEPLOY / "windvane.rules.yml"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_in_the_docs_are_those_of_the_service(metrics: set[str]) -> None:
    """Those that the pages name exist, and those of the service itself are all in the tables."""
    text = (HOWTO / "monitoring.md").read_text(encoding="utf-8")
    listed = set(re.findall(NAME, text))
    elsewhere = (HOWTO / "troubleshooting.md").read_text(encoding="utf-8")
    assert (listed | set(re.findall(NAME, elsewhere))) - metrics == set()
    folder = ROOT / "src" / "windvane" / "service" / "http"
    source = "".join((folder / name).read_text(encoding="utf-8") for name in ("metrics.py", "cluster_metrics.py"))
    own = {name for name in re.findall(NAME, source) if name in {re.sub(r"_(total|info)$", "", n) for n in metrics}}
    assert len(own) > 24
    families = {name.removesuffix(next((s for s in SUFFIXES if name.endswith(s)), "")) for name in listed} | listed
    assert own - families == set()
