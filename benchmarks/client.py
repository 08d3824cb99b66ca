"""Measure the processor time of windvane.Client, new and old in turn: `python benchmarks/client.py`.

A pair is a decision (20 arms, 10 dimensions) and its reward. Each version has its own client, in a process of its own,
and its own server, whose policy is UniformRandom; see benchmarks/service.py. The processor time of the client alone
depends less on how busy the machine is than its speed. The clients send one request after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import arms_and_luck
from figures import Figures
from versions import ARMS, DIM, NEW, POLICIES, serve, time_start, unpack_old

import windvane
from windvane import Client

STREAM = "random"


def build_offers(pairs: int) -> list[dict[str, list[float]]]:
    arms, _ = arms_and_luck(np.random.default_rng(2), pairs, ARMS, DIM)
    return [{f"arm{k}": row for k, row in enumerate(offer)} for offer in arms.tolist()]


def call(url: str, pairs: int) -> float:
    """Return the processor milliseconds of a pair."""
    offers = build_offers(pairs)
    with Client(url) as client:
        client.reward(STREAM, client.decide(STREAM, offers[0]), 1.0)  # the connection is open from here on
        start = time.process_time()
        for offer in offers:
            client.reward(STREAM, client.decide(STREAM, offer), 1.0)
        return 1e3 * (time.process_time() - start) / pairs


async def call_async(url: str, pairs: int) -> float:
    offers = build_offers(pairs)
    async with windvane.AsyncClient(url) as client:
        await client.reward(STREAM, await client.decide(STREAM, offers[0]), 1.0)
        start = time.process_time()
        for offer in offers:
            await client.reward(STREAM, await client.decide(STREAM, offer), 1.0)
        return 1e3 * (time.process_time() - start) / pairs


def create(url: str) -> None:
    with Client(url) as client:
        client.create(STREAM, dim=DIM, **POLICIES[STREAM])


def measure(folder: Path, pairs: int, repeats: int) -> None:
    old = unpack_old(folder / "checkout")
    versions = [NEW] if old is None else [NEW, old]
    figures, only_new = Figures(versions), Figures([NEW])
    with contextlib.ExitStack() as stack:
        urls = {}
        for version in versions:
            time_start(version, folder / f"{version.name}-warm.db")  # compiles what is not compiled yet
            urls[version.name] = stack.enter_context(serve(version, folder / f"{version.name}.db")).url
            version.run(__file__, "--create", urls[version.name])
        for repeat in range(repeats):
            for version in versions[:: -1 if repeat % 2 else 1]:
                milliseconds = version.run(__file__, "--call", urls[version.name], "--pairs", pairs)
                figures.add("Client", version, float(milliseconds))
            milliseconds = NEW.run(__file__, "--call", urls["new"], "--pairs", pairs, "--async")
            only_new.add("AsyncClient", NEW, float(milliseconds))
    figures.print("milliseconds of processor time of a pair", ".3f", less_is_better=True)
    only_new.print("milliseconds of processor time of a pair", ".3f", less_is_better=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--create", help=argparse.SUPPRESS)
    parser.add_argument("--call", help=argparse.SUPPRESS)
    parser.add_argument("--async", action="store_true", dest="is_async", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.create:
        create(options.create)
    elif options.call:
        is_async = options.is_async
        print(asyncio.run(call_async(options.call, options.pairs)) if is_async else call(options.call, options.pairs))
    else:
        with tempfile.TemporaryDirectory(prefix="windvane-benchmark-") as folder:
            measure(Path(folder), options.pairs, options.repeats)


if __name__ == "__main__":
    sys.exit(main())
