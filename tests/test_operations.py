"""What operators copy from the documentation: the unit of systemd, the configuration, the alerts, and the tables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from support import backends
from support.backends import Databases
from support.nginx import find_ports, run_nginx, write_site
from support.postgres import Cluster
from support.server import Local
from test_docs import ROOT, read_rows
from windvane.cli.app import build_app
from windvane.service.readiness import CAUSES

DOCS = ROOT / "docs"
RULES = (DOCS / "windvane.rules.yml").read_text(encoding="utf-8")
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


def test_alerts_are_explained() -> None:
    table = (DOCS / "operations.md").read_text(encoding="utf-8").partition("## What you see")[2]
    missing = [name for name in re.findall(r"- alert: (\w+)", RULES) if name not in table]
    assert missing == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
def test_prometheus_takes_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", DOCS / "windvane.rules.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_in_the_docs_are_those_of_the_service(metrics: set[str]) -> None:
    """Those that the page names exist, and those of the service itself are all named."""
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    listed = set(re.findall(NAME, text))
    assert listed - metrics == set()
    folder = ROOT / "src" / "windvane" / "service" / "http"
    source = "".join((folder / name).read_text(encoding="utf-8") for name in ("metrics.py", "cluster_metrics.py"))
    own = {name for name in re.findall(NAME, source) if name in {re.sub(r"_(total|info)$", "", n) for n in metrics}}
    assert len(own) > 24
    families = {name.removesuffix(next((s for s in SUFFIXES if name.endswith(s)), "")) for name in listed} | listed
    assert own - families == set()


def test_causes_in_the_docs_are_those_of_the_service() -> None:
    cells = read_rows("| cause | meaning |", "On SIGTERM", "operations.md")
    assert {cause for cell in cells for cause in re.findall(r"\w+", cell)} == CAUSES.keys()


def test_options_in_the_docs_are_those_of_serve() -> None:
    """The table has every option, its variable and its default; the example sets or mentions every one."""
    serve = typer.main.get_command(build_app()).commands["serve"]  # type: ignore[attr-defined]
    options = {option.opts[0].removeprefix("--"): option for option in serve.params}
    for name in ("config", "json"):
        del options[name]
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| `(WINDVANE_\w+)` \| `?([^`|]*?)`? \|", text, re.M)
    assert {name for name, _, _ in rows} == options.keys()
    for name, variable, default in rows:
        expected = str(options[name].default).lower().removesuffix(".0")
        assert (variable, default) == (options[name].envvar, expected)
    example = (DOCS / "service.toml").read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:# )?([a-z-]+) = ", example, re.M)) == options.keys()
    uncommented = re.sub(r"^# (?=[a-z-]+ = )", "", example, flags=re.M)
    defaults = {name: value for name, value in tomllib.loads(uncommented).items() if f"# {name} = " in example}
    assert {name: options[name].default or defaults[name] for name in defaults} == defaults  # None: an example


def find_systemd_analyze() -> str:
    path = shutil.which("systemd-analyze")
    if path is None:
        pytest.skip("systemd-analyze is not installed")
    return path


@pytest.mark.parametrize(
    ("source", "name"), [("windvane.service",) * 2, ("windvane@.service", "windvane@8000.service")]
)
def test_systemd_takes_the_unit(source: str, name: str, tmp_path: Path) -> None:
    """Only the path of the program is replaced, because it must exist."""
    text = (DOCS / source).read_text(encoding="utf-8")
    assert text.count("/opt/windvane/bin/windvane ") == 1
    unit = tmp_path / name
    unit.write_text(text.replace("/opt/windvane/bin/windvane ", f"{Path(sys.executable).with_name('windvane')} "))
    line = [find_systemd_analyze(), "verify", "--man=no", str(unit)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_differ_in_what_a_node_needs() -> None:
    """What protects the machine, and when a service is restarted, is the same in both."""
    single, node = (
        set(re.findall(r"^\w+=.*", (DOCS / name).read_text(encoding="utf-8"), re.M))
        for name in ("windvane.service", "windvane@.service")
    )
    assert {line.partition("=")[0] for line in single ^ node} == {
        "Description", "ExecStart", "EnvironmentFile", "TimeoutStartSec"
    }  # fmt: skip


def read_compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DOCS / "compose.yml").read_text(encoding="utf-8"))
    return document


def test_compose_sets_options_that_exist() -> None:
    """Every node has its own name and address, and nginx sends requests to all of them."""
    serve = typer.main.get_command(build_app()).commands["serve"]  # type: ignore[attr-defined]
    variables = {option.envvar for option in serve.params} | {"PGPASSWORD"}
    document = read_compose()
    services, site = document["services"], document["configs"]["nginx"]["content"]
    nodes = {name: service for name, service in services.items() if "WINDVANE_NODE" in service.get("environment", {})}
    assert sorted(nodes) == ["a", "b", "c"]
    for name, node in nodes.items():
        settings = node["environment"]
        assert settings.keys() <= variables
        assert settings["WINDVANE_NODE"] == name
        assert settings["WINDVANE_NODE_URL"] == f"http://{name}:{settings['WINDVANE_PORT']}"
        assert f"server {name}:{settings['WINDVANE_PORT']} " in site
    for service in services.values():
        needed = service.get("depends_on", [])
        assert set(needed) <= services.keys()
        assert all((ROOT / "docs" / service["build"]["context"] / name).exists() for name in copied_files(service))


def copied_files(service: dict[str, Any]) -> list[str]:
    """Return what the image of a service is built from."""
    lines = re.findall(r"^COPY (.+) \S+$", service.get("build", {}).get("dockerfile_inline", ""), re.M)
    return [name for line in lines for name in line.split()]


def test_docker_takes_the_file() -> None:
    docker = shutil.which("docker")
    line = [docker or "docker", "compose", "-f", str(DOCS / "compose.yml"), "config", "--quiet"]
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    done = subprocess.run(
        line, env={**os.environ, "POSTGRES_PASSWORD": "x"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nginx_takes_the_site_of_compose(tmp_path: Path) -> None:
    """Its names of hosts exist only inside."""
    site = tmp_path / "compose.conf"
    site.write_text(re.sub(r"server [abc]:", "server 127.0.0.1:", read_compose()["configs"]["nginx"]["content"]))
    port = find_ports(1)[0]
    write_site(tmp_path, site, [("$$host", "$host"), ("listen 80;", f"listen 127.0.0.1:{port};")])
    with run_nginx(tmp_path, port):
        pass
