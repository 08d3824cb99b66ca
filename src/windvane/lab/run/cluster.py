"""Tasks on a Dask cluster: one that is running already, or one started here.

Dask sends tasks and results pickled; connect to a scheduler only if you trust it and its network, as Dask itself asks.
A task whose worker dies is retried on another worker; after ``DEATHS`` deaths the run fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

from windvane.errors import WindvaneError

DEATHS = 5
PATIENCE = 10.0  # seconds to reach a scheduler

T = TypeVar("T")


class ClusterError(WindvaneError, RuntimeError):
    """The cluster at ``address`` cannot be used; ``problem`` says why."""

    def __init__(self, address: str, problem: str) -> None:
        self.address, self.problem = address, problem
        super().__init__(f"cluster {address!r}: {problem}")


def run_on_cluster(
    function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], *, workers: int, address: str
) -> Iterator[T]:
    """Yield ``function(*task)`` for every task, in the order in which they are finished."""
    try:
        import dask
        import distributed
    except ModuleNotFoundError as error:
        text = "cluster: needs Dask; install it with: pip install 'windvane[cluster]'"
        raise ModuleNotFoundError(text, name=error.name) from None

    # their functions are not typed
    start, connect, as_completed = cast(Any, (distributed.LocalCluster, distributed.Client, distributed.as_completed))
    with dask.config.set({"distributed.scheduler.allowed-failures": DEATHS}):
        local = None
        if address == "local":
            local = start(
                n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
            )
        futures: list[Any] = []
        try:
            client = connect(local or address, timeout=PATIENCE)
            with client:
                try:
                    futures += [client.submit(function, *task, pure=False) for task in tasks]
                    for future in as_completed(futures):
                        yield future.result()
                        future.release()
                finally:
                    client.cancel(futures)
        except distributed.KilledWorker:
            raise ClusterError(address, f"{DEATHS} workers died on the same cell") from None
        except (OSError, ValueError) as error:
            if futures:
                raise
            raise ClusterError(address, f"no scheduler responds at this address ({error})") from None
        finally:
            if local is not None:
                local.close()
