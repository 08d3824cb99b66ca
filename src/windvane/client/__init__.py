"""Clients of the decision service: :class:`windvane.Client` and :class:`windvane.AsyncClient`."""

try:
    from windvane.client.blocking import Client
    from windvane.client.client import AsyncClient
    from windvane.client.messages import BatchError, ClientError
except ModuleNotFoundError as error:
    hint = f"{error.name} is missing; install it with: pip install 'windvane[client]'"
    raise ModuleNotFoundError(hint, name=error.name) from None

__all__ = ["AsyncClient", "BatchError", "Client", "ClientError"]
