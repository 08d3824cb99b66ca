/** The nodes of a cluster: what each of them owns, which of them answers this page, and who is missing. */

/** @import { ClusterInfo, ClusterNode, Timestamp } from "./types.js" */

import { $, element, setText, setTimeText, syncChildren } from "./dom.js";
import { countOf, formatCount } from "./format.js";

const FEW = 8; // shards that are named one by one

/** @typedef {{ node: ClusterNode, since: Timestamp | null }} SeenNode since when it is missing */

/** @type {Map<string, SeenNode>} Nodes by name, also those that have gone since this page was opened. */
const seen = new Map();

/** @param {ClusterInfo | null} cluster */
export const isCluster = (cluster) => cluster !== null && cluster.nodes.length > 0;

/**
 * Remember the nodes of a cluster, and when one was missed first.
 *
 * @param {ClusterInfo} cluster
 */
export function noteNodes({ nodes }) {
  const names = new Set(nodes.map(({ name }) => name));
  for (const known of seen.values()) {
    if (!names.has(known.node.name)) known.since ??= new Date().toISOString();
  }
  for (const node of nodes) seen.set(node.name, { node, since: null });
}

const listMissing = () => [...seen.values()].filter(({ since }) => since !== null);

/** @param {number[]} shards */
function describeUnowned(shards) {
  const [noun, verb, those] = shards.length === 1 ? ["shard", "has", "its"] : ["shards", "have", "their"];
  const names = shards.length > FEW ? "" : ` (${shards.join(", ")})`;
  const effect = `requests for ${those} streams fail until a node takes over`;
  return `${formatCount(shards.length)} ${noun}${names} ${verb} no owner: ${effect}.`;
}

/**
 * The parts of the page that are shown with every stream.
 *
 * @param {ClusterInfo | null} cluster
 */
export function showSummary(cluster) {
  const summary = $("#cluster-summary");
  summary.hidden = cluster === null || !isCluster(cluster);
  $("#unowned").hidden = cluster === null || summary.hidden || cluster.unowned.length === 0;
  if (cluster === null || summary.hidden) return;
  const missing = listMissing().length;
  const link = $("a", summary);
  setText(link, `${countOf(cluster.nodes.length, "node")}${missing > 0 ? `, ${missing} missing` : ""}`);
  link.title = `Node ${cluster.node} answers this page`;
  summary.dataset.kind = missing > 0 || cluster.unowned.length > 0 ? "problem" : "";
  setText($("#unowned"), $("#unowned").hidden ? "" : describeUnowned(cluster.unowned));
}

/** @param {ClusterInfo} cluster */
export function showCluster(cluster) {
  const count = countOf(cluster.nodes.length, "node");
  const verb = cluster.nodes.length === 1 ? "serves" : "serve";
  setText(
    $("#cluster .reading"),
    `${count} ${verb} ${countOf(cluster.shards, "shard")} of streams. Node ${cluster.node} answers this page.`,
  );
  const rows = [...seen.values()].sort((a, b) => (a.node.name < b.node.name ? -1 : 1));
  syncChildren($("#nodes tbody"), rows, {
    key: ({ node }) => node.name,
    create: makeRow,
    update: (row, item) => updateRow(row, item, cluster.node),
  });
}

/** @param {SeenNode} item */
function makeRow({ node }) {
  const about = ["name", "note"].map((className) => element("span", { className }));
  setText(about[0], node.name);
  const cells = ["version", "number shards", "number streams"].map((className) => element("td", { className }));
  return element("tr", {}, element("th", { scope: "row" }, ...about), ...cells);
}

/**
 * @param {HTMLElement} row
 * @param {SeenNode} item
 * @param {string | null} here
 */
function updateRow(row, { node, since }, here) {
  const note = $(".note", row);
  if (since !== null) setTimeText(note, "missing, last seen ", since);
  else setTimeText(note, node.name === here ? `${node.url}, answers this page` : node.url, null);
  row.dataset.kind = since === null ? "" : "missing";
  setText($(".version", row), node.version);
  setText($(".shards", row), since === null ? formatCount(node.shards.length) : "–");
  setText($(".streams", row), since === null && node.streams !== null ? formatCount(node.streams) : "–");
}
