"""The SQL statements of the lease protocol; :mod:`windvane.service.cluster.membership` explains them."""

from __future__ import annotations

from windvane.service.store.postgres.eviction import NEW_EPOCH

JOIN = """
WITH stored AS (SELECT value FROM meta WHERE name = 'format' FOR SHARE),
added AS (
    INSERT INTO nodes (instance, name, url, version, format, joined, lease_until)
    SELECT %(instance)s, %(name)s, %(url)s, %(version)s, %(format)s, clock_timestamp(),
           clock_timestamp() + make_interval(secs => %(lease)s)
    FROM stored WHERE value = %(format)s::integer::text
    ON CONFLICT DO NOTHING RETURNING instance)
SELECT (SELECT value FROM stored), CASE WHEN number > 0 THEN pg_notify(%(channel)s, '') END
FROM (SELECT count(*) AS number FROM added) AS changes
"""
FIND_HOLDER = """
SELECT instance, name, url, version, format, extract(epoch FROM joined)::double precision,
       extract(epoch FROM lease_until)::double precision - extract(epoch FROM clock_timestamp())::double precision
FROM nodes WHERE name = %s OR instance = %s ORDER BY instance = %s DESC LIMIT 1
"""
RENEW = """
UPDATE nodes SET lease_until = clock_timestamp() + make_interval(secs => %s), url = %s
WHERE instance = %s RETURNING extract(epoch FROM clock_timestamp())::double precision
"""
LEAVE = f"""
WITH mine AS (SELECT shard FROM shards WHERE node = %(instance)s ORDER BY shard FOR UPDATE SKIP LOCKED),
freed AS (
    UPDATE shards SET node = NULL, epoch = {NEW_EPOCH} FROM mine WHERE shards.shard = mine.shard
    RETURNING shards.shard),
gone AS (DELETE FROM nodes WHERE instance = %(instance)s RETURNING instance)
SELECT (SELECT count(*) FROM freed), (SELECT count(*) FROM gone), pg_notify(%(channel)s, '')
"""
READ = """
SELECT s.shard, s.epoch, s.node, n.instance, n.name, n.url, n.version, n.format,
       extract(epoch FROM n.joined)::double precision,
       extract(epoch FROM n.lease_until)::double precision - extract(epoch FROM clock_timestamp())::double precision
FROM (SELECT shard, epoch, node FROM shards WHERE shard >= 0 AND shard < %s) AS s
FULL JOIN nodes AS n ON n.instance = s.node
"""
ADD_MISSING = f"""
WITH added AS (
    INSERT INTO shards (shard, epoch) SELECT shard, {NEW_EPOCH} FROM generate_series(0, %s - 1) AS shard
    ORDER BY shard ON CONFLICT DO NOTHING RETURNING shard)
SELECT shard, pg_notify(%s, '') FROM added
"""
TAKE = f"""
WITH free AS (
    SELECT shard FROM shards WHERE node IS NULL AND shard >= 0 AND shard < %(count)s
    AND EXISTS (SELECT FROM nodes WHERE nodes.instance = %(instance)s AND lease_until > clock_timestamp())
    ORDER BY shard LIMIT %(most)s FOR UPDATE OF shards SKIP LOCKED),
changed AS (
    UPDATE shards SET node = %(instance)s, epoch = {NEW_EPOCH} FROM free WHERE shards.shard = free.shard
    RETURNING shards.shard, shards.epoch)
SELECT shard, epoch, pg_notify(%(channel)s, '') FROM changed ORDER BY shard
"""
RETAKE = f"""
WITH mine AS (
    SELECT shard FROM shards WHERE node = %(instance)s AND shard >= 0 AND shard < %(count)s
    AND (%(shards)s::integer[] IS NULL OR shard = ANY(%(shards)s)) ORDER BY shard FOR UPDATE),
changed AS (
    UPDATE shards SET epoch = {NEW_EPOCH} FROM mine WHERE shards.shard = mine.shard
    RETURNING shards.shard, shards.epoch)
SELECT shard, epoch, pg_notify(%(channel)s, '') FROM changed ORDER BY shard
"""
RELEASE = f"""
WITH mine AS (
    SELECT shards.shard FROM shards
    JOIN unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS held (shard, epoch)
    ON shards.shard = held.shard AND shards.epoch = held.epoch
    WHERE shards.node = %(instance)s ORDER BY shards.shard FOR UPDATE OF shards),
changed AS (
    UPDATE shards SET node = NULL, epoch = {NEW_EPOCH} FROM mine WHERE shards.shard = mine.shard
    RETURNING shards.shard)
SELECT shard, pg_notify(%(channel)s, '') FROM changed
"""
