"""deploy/compose.yml: its options, names and files exist, nginx takes its site, and Prometheus asks its nodes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from support.nginx import find_ports, run_nginx, write_site
from support.service_pages import DEPLOY
from windvane.cli.app import build_app


def read_compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
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
        if (build := service.get("build")) is not None:
            assert (DEPLOY / build["context"] / build["dockerfile"]).exists()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).exists() if source.startswith("./") else source in document["volumes"]
        assert {config["source"] for config in service.get("configs", [])} <= document["configs"].keys()
        assert re.fullmatch(r"windvane|[a-z/]+:v?\d[\d.]*", service["image"]), "a fixed version"


def test_prometheus_asks_every_node_with_the_token_that_is_made_for_it() -> None:
    document = read_compose()
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    nodes = [
        name for name, service in document["services"].items() if "WINDVANE_NODE" in service.get("environment", {})
    ]
    assert job["job_name"] == "windvane"  # the alerts and the dashboard ask for it
    assert job["static_configs"] == [{"targets": [f"{name}:8000" for name in nodes]}]
    assert f"> {job['authorization']['credentials_file']}" in document["services"]["token"]["command"]


def test_docker_takes_the_file() -> None:
    docker = shutil.which("docker")
    line = [docker or "docker", "compose", "-f", str(DEPLOY / "compose.yml"), "config", "--quiet"]
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    done = subprocess.run(
        line,
        env={**os.environ, "POSTGRES_PASSWORD": "x", "GRAFANA_PASSWORD": "x"},
        capture_output=True,
        text=True,
        check=False,
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
