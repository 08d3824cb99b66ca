/* Requests that work, to get a stream going. */

import { token } from "./connection.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(path, body) {
  const access = token.get() ? ' -H "Authorization: Bearer $TOKEN"' : "";
  const url = new URL(path, document.baseURI).href;
  return `curl ${quoted(url)}${access} -H 'Content-Type: application/json' -d ${quoted(body)}`;
}

export const create = () => curl("v1/streams", '{"name": "homepage", "title": "Home page", "dim": 2}');

function value(declared) {
  if (declared.values) return declared.values[0];
  return declared.low === undefined ? 1 : declared.low;
}

const values = (fields) => Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, value(field)]));

/* A decision this stream would take: its own features, or vectors of its dimension. */
function round({ features, dim, L }) {
  if (!features) {
    const vector = (place) => Array.from({ length: dim }, (_, i) => (i === place ? 0.5 * L : 0));
    return { arms: { red: vector(0), blue: vector(dim - 1) } };
  }
  const context = { ...values(features.shared), ...values(features.by_arm) };
  const names = features.arms.length ? features.arms.slice(0, 2) : ["red", "blue"];
  const arms = Object.keys(features.per_arm).length
    ? Object.fromEntries(names.map((name) => [name, values(features.per_arm)])) : names;
  return Object.keys(context).length ? { context, arms } : { arms };
}

export const decide = ({ name, config }) => curl(`v1/streams/${name}/decide`, JSON.stringify(round(config)));

export const reward = ({ name }, decision) =>
  curl(`v1/streams/${name}/reward`, JSON.stringify({ decision, value: 1 }));
