"""The decision service: streams of decisions over HTTP, durable, with a live page. ``windvane serve`` starts it."""
