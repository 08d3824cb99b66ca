/** The panels of the estimate: its norm against its bound, and its coordinates. */

/** @import { Series, StreamInfo } from "./types.js" */

import { $, element, fillTable, setDetails, setText, syncChildren } from "./dom.js";
import { countLearned, describeBound, FEWEST } from "./findings.js";
import { formatCount, formatNumber, formatPercent, formatSetting, shorten } from "./format.js";
import { clockOf, drawChart, formatTick, joinTexts, numeric, setBucketTable, showPanel } from "./panel.js";
import { modelSeries } from "./series.js";

const COORDINATES = 12;

/**
 * @param {StreamInfo} info
 * @param {Series} series
 */
export function showNorm(info, series) {
  const { kind, range, buckets } = series;
  const { models, x } = modelSeries(info, series);
  const { projects, bound } = describeBound(info);
  const norms = models.map((model) => model?.norm ?? null);
  const shares = buckets.map(({ projected, decisions }) => (projected === null ? null : projected / decisions));
  const isKnown = shares.some((share) => share !== null);
  const hasShares = isKnown && info.projected_share > 0;
  const reading = describeNorm(info, Number(norms[norms.length - 1]), isKnown);
  const isDrawn = countLearned(info.counts) >= FEWEST;
  const section = showPanel("norm", {
    reading,
    caption: joinTexts(
      " ",
      `The norm of θ̂; ${bound === null ? "no bound applies" : "shaded: the ball of radius S"}.`,
      hasShares &&
        `Below: the share of decisions with an estimate ${projects ? "projected onto" : "outside"} that ball.`,
      models.includes(null) && "Recorded since the server started.",
    ),
    blank: isDrawn ? null : `The chart starts with ${FEWEST} outcomes.`,
  });
  const describe = (/** @type {number} */ value) => `norm ${formatNumber(value)}`;
  const largest = Math.max(...norms.map(Number), bound ?? 0);
  if (isDrawn) {
    drawChart($(".norm", section), `Norm of the estimate over ${kind}. ${reading}`, {
      kind,
      range,
      x,
      y: { range: [0, largest > 0 ? 1.15 * largest : 1], format: formatTick },
      lines: [{ label: "norm", values: norms, color: "series-0", width: 2.5, describe }],
      band: bound === null ? undefined : { low: 0, high: bound, label: `S = ${formatSetting(bound)}` },
    });
  }
  $(".projected", section).hidden = !hasShares || !isDrawn;
  if (hasShares && isDrawn) drawShares($(".projected", section), info, series, shares);
  setBucketTable($("details", section), "Estimate, the latest first", series, [
    ["From", (i) => clockOf(buckets[i].since)],
    ["Norm", (i) => formatNumber(norms[i])],
    [projects ? "Projected" : "Outside", (i) => (shares[i] === null ? "–" : formatPercent(shares[i]))],
  ]);
}

/**
 * @param {HTMLElement} place
 * @param {StreamInfo} info
 * @param {Series} series
 * @param {(number | null)[]} shares
 */
function drawShares(place, { projected_share: share }, { kind, range, starts, ends }, shares) {
  const values = [...shares, shares[shares.length - 1]];
  const describe = (/** @type {number} */ value) => `projected ${formatPercent(value)}`;
  drawChart(place, `Projected share over ${kind}, all time ${formatPercent(share)}.`, {
    kind,
    range,
    x: [...starts, ends[ends.length - 1]],
    y: { range: [0, 1.05], ticks: [0, 0.5, 1], format: (value) => `${100 * value} %` },
    lines: [{ label: "projected", values, color: "series-5", style: "steps", describe }],
  });
}

/**
 * @param {StreamInfo} info
 * @param {number} norm
 * @param {boolean} isKnown whether the policy reports projections
 */
function describeNorm(info, norm, isKnown) {
  const { projects, learnsScale, bound } = describeBound(info);
  const radius = (/** @type {number} */ value) => `S\u00a0=\u00a0${formatSetting(value)}`;
  const place = learnsScale
    ? `and the learned scale is ${radius(Number(info.S))}, which is not a bound`
    : bound === null
      ? "this policy has no bound"
      : `${norm > bound * (1 + 1e-9) ? "outside" : "within"} its bound ${radius(bound)}`;
  const share = formatPercent(info.projected_share);
  return joinTexts(
    " ",
    `The norm of the estimate θ̂ is ${formatNumber(norm)}, ${place}.`,
    isKnown && `It was ${projects ? "projected" : "outside that ball"} in ${share} of decisions.`,
  );
}

/**
 * The name of a coordinate for readers: a constant 1 is called "1", or "ARM: 1".
 *
 * @param {string} name
 * @param {StreamInfo["settings"]} settings
 */
export function nameCoordinate(name, { features = null, intercept }) {
  const hasConstants = features !== null || intercept === true;
  return hasConstants && /^(.*: )?1$/s.test(name) ? `${name.slice(0, -1)}constant` : name;
}

/** @param {StreamInfo} info */
export function showTheta({ theta, settings }) {
  const all = Object.entries(theta).map(
    ([key, value]) => /** @type {const} */ ([nameCoordinate(key, settings), value]),
  );
  const largest = [...all].sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  const shown = all.length <= COORDINATES ? all : largest.slice(0, COORDINATES);
  const [name, value] = largest[0];
  const section = showPanel("theta", {
    reading: joinTexts(
      " ",
      all.length > shown.length && `The ${shown.length} largest of ${formatCount(all.length)}.`,
      value !== 0 && `The largest is ${shorten(name, 60)} with ${formatNumber(value)}.`,
    ),
    caption: "Positive coordinates raise the prediction of an arm, negative ones lower it.",
    blank: value === 0 ? "Nothing has been learned yet: all coordinates are zero." : null,
  });
  syncChildren(
    $(".bars", section),
    shown.map(([key, size]) => ({ key, size })),
    {
      key: ({ key }) => key,
      create: ({ key }) =>
        element(
          "li",
          {},
          element("span", { title: key }, key),
          element("span", { className: "bar" }, element("i")),
          element("span", { className: "number" }),
        ),
      update: (item, { size }) => {
        const share = Math.abs(size / value) * 50;
        Object.assign($("i", item).style, { left: `${size < 0 ? 50 - share : 50}%`, width: `${share}%` });
        $("i", item).classList.toggle("negative", size < 0);
        setText($(".number", item), formatNumber(size));
      },
    },
  );
  setDetails($("details", section), (table) =>
    fillTable(
      table,
      "All coordinates, the largest first",
      [{ head: "Coordinate" }, numeric("Value")],
      largest.map(([key, size]) => ({ key, cells: [key, formatNumber(size)] })),
    ),
  );
}
