/** Charts by uPlot: drawn only while they can be seen, in the colours of the style sheet. */

/** @import { ChartSpec } from "./types.js" */

import { makeOptions } from "./chart-options.js";
import { forgetColors } from "./colors.js";

const darkMode = window.matchMedia("(prefers-color-scheme: dark)");

/** Whether uPlot could be loaded; without it, tables have the numbers. */
const hasLibrary = typeof uPlot !== "undefined";
document.body.classList.toggle("no-charts", !hasLibrary);

/** @type {Map<Element, Chart>} */
const charts = new Map();

/** A place for a chart; it is redrawn when its data, its room or the colours of the page change. */
class Chart {
  /** @param {HTMLElement} place */
  constructor(place) {
    this.place = place;
    /** @type {ChartSpec | null} */
    this.spec = null;
    /** @type {uPlot | null} */
    this.plot = null;
    this.structure = "";
    this.isVisible = false;
    this.isStale = false;
    visibility.observe(place);
    sizes.observe(place);
  }

  /** @param {ChartSpec} spec */
  draw(spec) {
    this.spec = spec;
    this.isStale = true;
    this.refresh();
  }

  refresh() {
    const { place, spec } = this;
    if (!this.isStale || !this.isVisible || spec === null || place.clientWidth === 0 || !hasLibrary) return;
    this.isStale = false;
    const data = /** @type {uPlot.AlignedData} */ ([spec.x, ...spec.lines.map(({ values }) => values)]);
    const structure = JSON.stringify([
      spec.kind,
      spec.y.log,
      spec.x.length === 1,
      spec.lines.map(({ style, color: name, dash, width }) => [style, name, dash, width]),
    ]);
    if (this.plot !== null && structure === this.structure) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.structure = structure;
    const current = () => /** @type {ChartSpec} */ (this.spec);
    this.plot = new uPlot(makeOptions(current, place.clientWidth, place.clientHeight), data, place);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (width === 0) return;
    if (this.plot === null) this.refresh();
    else if (this.plot.width !== width || this.plot.height !== height) this.plot.setSize({ width, height });
  }

  remove() {
    this.plot?.destroy();
    visibility.unobserve(this.place);
    sizes.unobserve(this.place);
    charts.delete(this.place);
  }
}

const visibility = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const chart = charts.get(target);
      if (chart === undefined) continue;
      chart.isVisible = isIntersecting;
      chart.refresh();
    }
  },
  { rootMargin: "400px" },
);

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) charts.get(target)?.resize();
});

/**
 * The chart of an element.
 *
 * @param {HTMLElement} place
 */
export function chartOf(place) {
  const chart = charts.get(place) ?? new Chart(place);
  charts.set(place, chart);
  for (const other of charts.values()) if (!other.place.isConnected) other.remove();
  return chart;
}

darkMode.addEventListener("change", () => {
  forgetColors();
  for (const { plot } of charts.values()) plot?.redraw(false, true);
});
window.addEventListener("beforeprint", () => {
  for (const chart of charts.values()) {
    chart.isVisible = true;
    chart.refresh();
  }
});
