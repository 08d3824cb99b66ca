"""The how-to page about monitoring, followed as an administrator would: token, scrape, alerts and logs.

Nothing listens for Prometheus here; ``journalctl`` stands for a file with what the service wrote. On a cluster, and for
the alerts about one, see tests/deploy/test_alerts.py.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

import windvane.testing
from support.pages import read_blocks
from support.server import parse_json
from support.service_pages import DEPLOY, HOWTO, PLACES, Shell, read_commands, read_section
from windvane import Client

PAGE = HOWTO / "monitoring.md"
NAME = r"\bwindvane_[a-z_]+"
REQUEST = "3288ac1e67affefa"  # whose lines the page finds
PROMTOOL = 'test -f "$3"'  # where there is none


@dataclass
class Monitored:
    """A service that was monitored as the page says: what it answered, and what it logged."""

    shell: Shell
    metrics: str
    statuses: dict[str, int]
    shown: str

    def read_prometheus(self, name: str) -> str:
        return (self.shell.folder / "prometheus" / name).read_text(encoding="utf-8")

    def run(self, script: str) -> str:
        return self.shell.run(move_folders(script, self.shell))


def move_folders(script: str, shell: Shell) -> str:
    """Put what a script names in /etc and /var/log into the folder of the shell."""
    for place in ("/etc/prometheus", "/var/log/nginx"):
        script = script.replace(place, str(shell.folder / Path(place).name))
    return script


def add_program(shell: Shell, name: str, script: str) -> None:
    path = shell.folder / "programs" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Monitored:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    shell = Shell(tmp_path_factory.mktemp("monitoring"))
    (shell.folder / "deploy").symlink_to(DEPLOY)
    if shutil.which("promtool") is None:
        add_program(shell, "promtool", PROMTOOL)
    add_program(shell, "journalctl", 'cat "$HOME/journal"')
    install, check = read_commands(PAGE, "Scrape the metrics")
    shell.run(move_folders(install, shell))
    (config,) = re.findall(r"^```text\n(scrape_configs:.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (shell.folder / "prometheus" / "prometheus.yml").write_text(move_folders(config, shell), encoding="utf-8")
    shell.run(move_folders(check, shell))
    store = shell.folder / PLACES["/var/lib/windvane"] / "windvane.db"
    admin = shell.run(f"windvane token add admin --store {store}").strip().split()[-1]
    options = ["--log-format", "json", "--access-log", "--skip-probes", "--log-level", "info"]
    service = windvane.testing.Service(store, *options)
    try:
        with Client(service.address, token=admin) as client:
            assert client.ready(wait=60)
            client.create("shop", features={"arms": ["red", "blue"]})
            for _ in range(3):
                client.reward("shop", client.decide("shop"), 1.0)
        shell.port = service.address.rpartition(":")[2]
        with httpx2.Client(base_url=service.address, trust_env=False) as http:
            scraping = {
                "authorization": f"Bearer {(shell.folder / 'prometheus' / 'windvane.token').read_text().strip()}"
            }
            metrics = http.get("/metrics", headers=scraping).text
            statuses = {
                "readyz": http.get("/readyz").status_code,
                "metrics without a token": http.get("/metrics").status_code,
                "streams": http.get("/v1/streams", headers={**scraping, "x-request-id": REQUEST}).status_code,
            }
        asks_prometheus, asks_service = read_commands(PAGE, "See that it works")[0].splitlines()
        assert "localhost:9090" in asks_prometheus
        shown = shell.run(move_folders(asks_service, shell))
    finally:
        service.stop()
    (shell.folder / "journal").write_text(service.errors + "\n", encoding="utf-8")
    return Monitored(shell, metrics, statuses, shown)


def test_the_token_reads_metrics_and_nothing_else(monitored: Monitored) -> None:
    assert monitored.statuses == {"readyz": 200, "metrics without a token": 401, "streams": 403}
    assert "windvane_ready 1.0" in monitored.shown


def test_the_configuration_is_about_files_that_were_installed(monitored: Monitored) -> None:
    config = yaml.safe_load(monitored.read_prometheus("prometheus.yml"))
    (job,) = config["scrape_configs"]
    assert Path(job["authorization"]["credentials_file"]).read_text().startswith("wv_")
    (rules,) = config["rule_files"]
    assert monitored.read_prometheus(rules) == (DEPLOY / "windvane.rules.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'job="(\w+)"', monitored.read_prometheus(rules))) == {job["job_name"]}
    assert (monitored.shell.folder / "systemctl").read_text() == "reload prometheus\n"


def list_names(metrics: str) -> set[str]:
    """Return the names of all series, and of all families: one may have no series yet."""
    return set(re.findall(rf"^({NAME})", metrics, re.M)) | set(re.findall(rf"^# TYPE ({NAME}) ", metrics, re.M))


def test_the_metrics_of_the_page_exist(monitored: Monitored) -> None:
    """Those of a service on a file."""
    of_service, _, rest = read_section(PAGE, "The metrics").partition("Of a node on PostgreSQL:")
    of_stream = rest.partition("Of a stream:")[2]
    named = set(re.findall(NAME, of_service + of_stream))
    assert len(named) > 30
    assert named - list_names(monitored.metrics) == set()


def test_the_alerts_are_about_metrics_that_exist(monitored: Monitored) -> None:
    """Those of a service on a file; the groups and severities are those of the page."""
    groups = {
        group["name"]: group["rules"]
        for group in yaml.safe_load(monitored.read_prometheus("rules/windvane.yml"))["groups"]
    }
    section = read_section(PAGE, "Alerts")
    assert set(groups) == set(re.findall(r"`(windvane-\w+)`", section))
    rules: list[dict[str, Any]] = [rule for name in ("windvane-service", "windvane-model") for rule in groups[name]]
    for rule in rules:
        named = set(re.findall(NAME, rule["expr"]))
        assert named <= list_names(monitored.metrics), rule["alert"]
        assert f"`{rule['labels']['severity']}`" in section


def test_lines_of_the_log_have_the_fields_of_the_page(monitored: Monitored) -> None:
    lines = [parse_json(line) for line in (monitored.shell.folder / "journal").read_text(encoding="utf-8").splitlines()]
    requests = [line for line in lines if line["logger"] == "windvane.access"]
    assert {"GET", "POST", "PUT"} == {line["method"] for line in requests}
    known = set(re.findall(r"`(\w+)`", read_section(PAGE, "Read the logs")))
    assert set().union(*requests) <= known
    ended = [(line["path"], line["status"]) for line in requests if "path" in line]
    assert ("/metrics", 401) in ended  # what the page says about a token that is missing
    assert not any(line["status"] == 200 and "/metrics" in line.values() for line in requests)


def test_a_request_is_found_and_requests_are_counted(monitored: Monitored) -> None:
    find, count = read_commands(PAGE, "Read the logs")
    found = [parse_json(line) for line in monitored.run(find).splitlines()]
    assert {line["request_id"] for line in found} == {REQUEST}
    assert [line["status"] for line in found if line["logger"] == "windvane.access"] == [403]
    assert "log_format windvane '$time_iso8601 $remote_addr " in (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    (monitored.shell.folder / "nginx").mkdir()
    (monitored.shell.folder / "nginx" / "windvane.log").write_text(
        '2026-11-17T23:28:35+00:00 10.0.0.7 "GET /" 200\n' * 2
    )
    counted = [line.split(maxsplit=1) for line in monitored.run(count).splitlines()]
    assert ["7", '"token": "admin"'] in counted  # the stream, three decisions, three rewards
    assert counted[-1] == ["2", "10.0.0.7"]


def test_the_lines_that_the_page_shows_have_the_form_it_describes() -> None:
    shown = [line for block in read_blocks(PAGE, "text") for line in block.splitlines() if re.match(r"\d{4}-", line)]
    assert len(shown) >= 4
    for line in shown:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (INFO|WARNING|ERROR) windvane\.\w+: \S", line), line
