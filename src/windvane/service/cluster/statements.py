"""The statements of the lease protocol; :mod:`windvane.service.cluster.membership` says what they are for."""

from __future__ import annotations

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
LEAVE = """
WITH mine AS (SELECT shard FROM shards WHERE node = %(instance)s ORDER BY shard FOR UPDATE SKIP LOCKED),
freed AS (
    UPDATE shards SET node = NULL, epoch = nextval('epochs') FROM mine WHERE shards.shard = mine.shard
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
SWEEP = """
WITH expired AS (
    SELECT instance FROM nodes WHERE lease_until < clock_timestamp() AND instance <> %(me)s
    ORDER BY instance FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM nodes USING expired WHERE nodes.instance = expired.instance RETURNING nodes.instance, nodes.name),
shortened AS (
    UPDATE nodes SET lease_until = clock_timestamp() + make_interval(secs => %(most)s)
    WHERE lease_until > clock_timestamp() + make_interval(secs => %(most)s) RETURNING nodes.instance),
orphans AS MATERIALIZED (
    SELECT shard, epoch FROM shards
    WHERE node IS NOT NULL AND shard >= 0 AND shard < %(count)s
    AND (node IN (SELECT instance FROM gone) OR NOT EXISTS (SELECT FROM nodes WHERE nodes.instance = shards.node))),
locked AS (
    SELECT shards.shard FROM shards JOIN orphans ON shards.shard = orphans.shard AND shards.epoch = orphans.epoch
    ORDER BY shards.shard FOR UPDATE OF shards),
freed AS (
    UPDATE shards SET node = NULL, epoch = nextval('epochs') FROM locked WHERE shards.shard = locked.shard
    RETURNING shards.shard),
changes AS (SELECT count(*) AS number FROM (SELECT instance FROM gone UNION ALL SELECT shard::text FROM freed) AS a)
SELECT array(SELECT name FROM gone ORDER BY name), array(SELECT shard FROM freed ORDER BY shard),
       (SELECT count(*) FROM shortened),
       CASE WHEN number > 0 THEN pg_notify(%(channel)s, '') END FROM changes
"""
SWEEP_SKIPPING = SWEEP.replace("FOR UPDATE OF shards)", "FOR UPDATE OF shards SKIP LOCKED)")
ADD_MISSING = """
WITH added AS (
    INSERT INTO shards (shard, epoch) SELECT shard, nextval('epochs') FROM generate_series(0, %s - 1) AS shard
    ORDER BY shard ON CONFLICT DO NOTHING RETURNING shard)
SELECT shard, pg_notify(%s, '') FROM added
"""
TAKE = """
WITH free AS (
    SELECT shard FROM shards WHERE node IS NULL AND shard >= 0 AND shard < %(count)s
    AND EXISTS (SELECT FROM nodes WHERE nodes.instance = %(instance)s AND lease_until > clock_timestamp())
    ORDER BY shard LIMIT %(most)s FOR UPDATE OF shards SKIP LOCKED),
changed AS (
    UPDATE shards SET node = %(instance)s, epoch = nextval('epochs') FROM free WHERE shards.shard = free.shard
    RETURNING shards.shard, shards.epoch)
SELECT shard, epoch, pg_notify(%(channel)s, '') FROM changed ORDER BY shard
"""
RETAKE = """
WITH mine AS (
    SELECT shard FROM shards WHERE node = %(instance)s AND shard >= 0 AND shard < %(count)s
    AND (%(shards)s::integer[] IS NULL OR shard = ANY(%(shards)s)) ORDER BY shard FOR UPDATE),
changed AS (
    UPDATE shards SET epoch = nextval('epochs') FROM mine WHERE shards.shard = mine.shard
    RETURNING shards.shard, shards.epoch)
SELECT shard, epoch, pg_notify(%(channel)s, '') FROM changed ORDER BY shard
"""
RELEASE = """
WITH mine AS (
    SELECT shards.shard FROM shards
    JOIN unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS held (shard, epoch)
    ON shards.shard = held.shard AND shards.epoch = held.epoch
    WHERE shards.node = %(instance)s ORDER BY shards.shard FOR UPDATE OF shards),
changed AS (
    UPDATE shards SET node = NULL, epoch = nextval('epochs') FROM mine WHERE shards.shard = mine.shard
    RETURNING shards.shard)
SELECT shard, pg_notify(%(channel)s, '') FROM changed
"""
