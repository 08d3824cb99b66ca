"""Two nodes behind Debian's nginx with the configurations of deploy/: in front of both, and between them."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
import pytest

from support.nginx import create_certificate, find_ports, find_program, locate_site, run_nginx, write_site
from support.nodes import NodeForks, ServiceCluster
from support.postgres import Cluster
from support.server import ARMS, run_command, until
from support.service_pages import DEPLOY

NAME = "windvane.example.com"


class Site(NamedTuple):
    """Two nodes as clients on the open internet see them, through one nginx."""

    nodes: ServiceCluster
    https: int
    tls: ssl.SSLContext
    secret: str

    @contextlib.contextmanager
    def client(self) -> Iterator[httpx2.Client]:
        headers = {"host": NAME, "authorization": f"Bearer {self.secret}"}
        address = f"https://127.0.0.1:{self.https}"
        with httpx2.Client(base_url=address, headers=headers, verify=self.tls, trust_env=False, timeout=30) as client:
            yield client

    def decide(self, stream: str) -> dict[str, Any] | None:
        """Return a decision, None if it has to be asked for again."""
        with self.client() as client:
            answer = client.post(f"/v1/streams/{stream}/decisions", json=ARMS)
        assert answer.status_code in (201, 502, 503), answer.text
        return answer.json() if answer.status_code == 201 else None

    def create_owned(self, owner: str, prefix: str) -> str:
        """Create a stream that a node owns."""
        with self.client() as client:
            for i in range(1000):
                name = f"{prefix}{i}"
                if (found := self.nodes.find_owner(name)) is not None and found.name == owner:
                    assert client.post("/v1/streams", json={"name": name, "dim": 2}).status_code == 201
                    return name
        raise AssertionError(owner)


@pytest.fixture(scope="module")
def site(cluster: Cluster, node_forks: NodeForks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Each node has an nginx of its own with ``nginx.conf``, at which the other node reaches it over TLS."""
    find_program("nginx")
    certificates = tmp_path_factory.mktemp("certificates")
    certificate, database = create_certificate(certificates, NAME), cluster.create_database()
    secret = run_command("token", "add", "shop", "--store", cluster.url(database)).stdout.strip()
    nodes = ServiceCluster(node_forks, cluster, database)
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.drop_database, database)
        stack.callback(nodes.close)
        ports = dict(zip("ab", find_ports(2), strict=True))
        trusted = {"SSL_CERT_FILE": str(certificate)}
        for name, port in ports.items():
            folder = tmp_path_factory.mktemp(f"nginx-{name}")
            https, http = find_ports(2)
            nodes.start(name, wait=False, port=port, node_url=f"https://localhost:{https}", environment=trusted)
            here = [*locate_site(folder, certificates, https, http), ("127.0.0.1:8000", f"127.0.0.1:{port}")]
            write_site(folder, DEPLOY / "nginx.conf", here)
            stack.enter_context(run_nginx(folder, https))
        folder = tmp_path_factory.mktemp("nginx-cluster")
        https, http = find_ports(2)
        places = [("10.0.0.5:8000", f"127.0.0.1:{ports['a']}"), ("10.0.0.6:8000", f"127.0.0.1:{ports['b']}")]
        write_site(folder, DEPLOY / "nginx-cluster.conf", [*locate_site(folder, certificates, https, http), *places])
        stack.enter_context(run_nginx(folder, https))
        nodes.wait_until_balanced()
        yield Site(nodes, https, ssl.create_default_context(cafile=certificate), secret)


def test_any_node_answers_for_any_stream(site: Site) -> None:
    """nginx takes them in turn, and they forward over TLS."""
    for owner in "ab":
        stream = site.create_owned(owner, f"any-{owner}")
        assert all(site.decide(stream) is not None for _ in range(6))
    with site.client() as client:
        assert {client.get("/v1/cluster").json()["node"] for _ in range(4)} == {"a", "b"}
        assert len(client.get("/v1/streams").json()["streams"]) == 2
        others = [node["url"] for node in client.get("/v1/cluster").json()["nodes"]]
    assert all(url.startswith("https://") for url in others)
    text = site.nodes.nodes["a"].exchange("GET", "/metrics", authorization=f"Bearer {site.secret}")[2].decode()
    forwarded = next(line for line in text.splitlines() if 'node="b",outcome="answered"' in line)
    assert float(forwarded.split()[-1]) > 0


def test_a_node_that_is_gone(site: Site) -> None:
    stream = site.create_owned("b", "gone")
    assert site.decide(stream) is not None
    site.nodes.nodes["b"].kill()
    until(lambda: site.decide(stream), 30.0)
    for _ in range(10):  # the node that is left serves everything, and nginx asks it if the other does not answer
        assert site.decide(stream) is not None
    site.nodes.restart("b")
    site.nodes.wait_until_balanced()
    assert all(site.decide(stream) is not None for _ in range(4))


def test_a_node_that_is_stopped_in_an_orderly_way(site: Site) -> None:
    stream = site.create_owned("b", "stopped")
    site.nodes.nodes["b"].stop()
    until(lambda: site.decide(stream), 30.0)
    site.nodes.restart("b")
    site.nodes.wait_until_balanced()


def test_the_limits_are_those_of_a_single_service() -> None:
    """The two configurations differ in their upstreams only."""
    single, several = ((DEPLOY / name).read_text().splitlines() for name in ("nginx.conf", "nginx-cluster.conf"))
    assert [line for line in single if line not in several and not line.startswith("#")] == [
        "    server 127.0.0.1:8000 max_conns=900;    # the service serves 1,000 requests at once"
    ]
    added = [line.split()[0] for line in several if line not in single and line.strip() and line.strip()[0] != "#"]
    assert added == [
        "server", "server", "proxy_connect_timeout", "proxy_next_upstream", "proxy_next_upstream_timeout"
    ]  # fmt: skip
