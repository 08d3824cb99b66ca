"""The service on several machines: nodes that share a PostgreSQL database, each the owner of some shards of streams."""
