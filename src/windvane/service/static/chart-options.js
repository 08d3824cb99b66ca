/** Options of uPlot: lines, the tooltip, and what uPlot does not draw itself. */

/** @import { ChartSpec, Line } from "./types.js" */

import { FONT, RIGHT_PADDING, makeXAxis, makeYAxis } from "./chart-axes.js";
import { color } from "./colors.js";
import { element, setText, syncChildren } from "./dom.js";
import { formatClock, formatCount } from "./format.js";

/**
 * Everything that can change without a new plot is read from `current()` when it is drawn.
 *
 * @param {() => ChartSpec} current
 * @param {number} width
 * @param {number} height
 * @returns {uPlot.Options}
 */
export function makeOptions(current, width, height) {
  const spec = current();
  const tooltip = makeTooltip(current);
  return {
    width,
    height,
    padding: [8, RIGHT_PADDING, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: false, y: false },
      points: { show: spec.lines.every((line) => line.style !== "area") },
    },
    scales: {
      x: { time: spec.kind === "time", range: () => current().range },
      y: { distr: spec.y.log ? 3 : 1, range: () => current().y.range },
    },
    axes: [makeXAxis(spec.kind), makeYAxis(current)],
    series: [{}, ...spec.lines.map((line) => makeLine(line, spec.x.length))],
    hooks: {
      drawClear: [(plot) => drawBand(plot, current())],
      draw: [(plot) => drawLabelAndInterval(plot, current())],
      ready: [(plot) => plot.over.append(tooltip.node)],
      setCursor: [(plot) => tooltip.update(plot)],
    },
  };
}

/**
 * @param {Line} line
 * @param {number} length
 * @returns {uPlot.Series}
 */
function makeLine({ label, color: name, style = "line", width = 2, dash }, length) {
  const stroke = () => color(name);
  if (style === "dots") {
    return { label, stroke, paths: () => null, points: { show: true, size: 5, width: 0, fill: stroke } };
  }
  if (style === "area") {
    return { label, stroke: () => color("card"), width: 1, fill: stroke, points: { show: false } };
  }
  return {
    label,
    stroke,
    width,
    dash,
    points: { show: true, size: length === 1 ? 7 : 4, width: 0, fill: stroke, filter: isolatedPoints },
    ...(style === "steps" ? { paths: uPlot.paths.stepped?.({ align: 1 }) } : {}),
  };
}

/**
 * Points without a neighbour, which no line would show.
 *
 * @param {uPlot} plot
 * @param {number} series
 * @returns {number[]}
 */
function isolatedPoints(plot, series) {
  const values = plot.data[series];
  const isMissing = (/** @type {number} */ i) => (values[i] ?? null) === null;
  return Array.from(values, (_, i) => i).filter((i) => !isMissing(i) && isMissing(i - 1) && isMissing(i + 1));
}

/* --- what uPlot does not draw itself --- */

/**
 * @param {uPlot} plot
 * @param {ChartSpec} spec
 */
function drawBand(plot, { band }) {
  if (band === undefined) return;
  const { left, width } = plot.bbox;
  const [top, bottom] = [plot.valToPos(band.high, "y", true), plot.valToPos(band.low, "y", true)];
  plot.ctx.fillStyle = color("area");
  plot.ctx.fillRect(left, top, width, bottom - top);
}

/**
 * @param {uPlot} plot
 * @param {ChartSpec} spec
 */
function drawLabelAndInterval(plot, { band, interval, x }) {
  const { ctx, bbox } = plot;
  const scale = window.devicePixelRatio;
  ctx.save();
  ctx.lineWidth = 1.5 * scale;
  if (band !== undefined) {
    const y = plot.valToPos(band.high, "y", true);
    ctx.strokeStyle = ctx.fillStyle = color("muted");
    ctx.setLineDash([6 * scale, 4 * scale]);
    strokePath(ctx, [
      [bbox.left, y],
      [bbox.left + bbox.width, y],
    ]);
    ctx.font = FONT.replace("12px", `${12 * scale}px`);
    ctx.textAlign = "right";
    ctx.textBaseline = "bottom";
    ctx.fillText(band.label, bbox.left + bbox.width - 4 * scale, y - 3 * scale);
  }
  if (interval !== undefined) {
    const [low, high] = [interval.low, interval.high].map((value) => plot.valToPos(value, "y", true));
    const at = plot.valToPos(x[x.length - 1], "x", true);
    const half = 4 * scale;
    ctx.strokeStyle = color(interval.color);
    ctx.setLineDash([]);
    for (const y of [low, high]) {
      strokePath(ctx, [
        [at - half, y],
        [at + half, y],
      ]);
    }
    strokePath(ctx, [
      [at, low],
      [at, high],
    ]);
  }
  ctx.restore();
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {[number, number][]} points
 */
function strokePath(ctx, points) {
  ctx.beginPath();
  for (const [x, y] of points) ctx.lineTo(x, y);
  ctx.stroke();
}

/** @param {() => ChartSpec} current */
function makeTooltip(current) {
  const node = element("div", { className: "tooltip", hidden: true });
  const update = (/** @type {uPlot} */ plot) => {
    const { idx, left = -1 } = plot.cursor;
    const { kind, x, lines } = current();
    node.hidden = idx === null || idx === undefined || left < 0 || idx >= x.length;
    if (node.hidden) return;
    const index = /** @type {number} */ (idx);
    const texts = lines.flatMap(({ describe, values }) => {
      const value = values[index];
      return describe === undefined || value === null ? [] : [describe(value, index)];
    });
    const heading = kind === "time" ? formatClock(x[index]) : `decision ${formatCount(x[index])}`;
    syncChildren(
      node,
      [heading, ...texts].map((text, i) => ({ text, key: String(i) })),
      {
        key: ({ key }) => key,
        create: () => element("p"),
        update: (line, { text }) => setText(line, text),
      },
    );
    const isRight = left > plot.over.clientWidth / 2;
    Object.assign(
      node.style,
      isRight ? { left: "", right: `${plot.over.clientWidth - left + 10}px` } : { left: `${left + 10}px`, right: "" },
    );
  };
  return { node, update };
}
