"""The service over HTTP: routes, access and the page."""
