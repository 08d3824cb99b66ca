"""Clients of the decision service: :class:`windvane.Client` and :class:`windvane.AsyncClient`."""

from windvane.client.client import AsyncClient, Client
from windvane.client.messages import BatchError, ClientError

__all__ = ["AsyncClient", "BatchError", "Client", "ClientError"]
