"""A small client of the decision service: see :class:`windvane.Client`. Standard library only."""

from windvane.client.client import Client
from windvane.client.messages import BatchError, ClientError, Decided

__all__ = ["BatchError", "Client", "ClientError", "Decided"]
