"""Several servers on one PostgreSQL database: nodes, shards of streams, and the leases that say who owns what."""
