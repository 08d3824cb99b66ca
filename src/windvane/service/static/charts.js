/* Charts by plotly: loaded when the first one is to be drawn, drawn only while they can be seen, in the page's colours.

   Names from outside reach plotly through plain() only: it would take markup in them for markup. */

import { given, short, span } from "./words.js";

const CONFIG = { displayModeBar: false, doubleClick: false };
const darkness = window.matchMedia("(prefers-color-scheme: dark)");
const charts = new Map(); // by element
let plotly = null;

export const plain = (text, most = 40) =>
  short(text, most).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function load() {
  plotly ??= new Promise((loaded, failed) => {
    const script = document.createElement("script");
    script.src = new URL("page/plotly.js", document.baseURI);
    script.onload = () => loaded(window.Plotly);
    script.onerror = () => {
      plotly = null; // the next drawing tries again
      script.remove();
      failed(new Error("plotly could not be loaded"));
    };
    document.head.append(script);
  });
  return plotly;
}

/* The page's colours, as its style sheet has them. */
function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: of("ink"), muted: of("muted"), grid: of("grid"), ground: of("card"), main: of("series-0"), second: of("series-5"),
    area: of("area"), other: of("series-other"), series: Array.from({ length: 7 }, (_, i) => of(`series-${i}`)),
    font: getComputedStyle(document.body).fontFamily,
  };
}

class Chart {
  constructor(div) {
    this.div = div;
    this.make = null;
    this.seen = false;
    this.stale = false;
    this.busy = false;
    watcher.observe(div);
    sizes.observe(div);
  }

  /* make(colours): the chart's { data, layout }, in the colours of now; and rows, if its height goes by them. */
  draw(make) {
    this.make = make;
    this.stale = true;
    this.refresh();
  }

  async refresh() {
    if (!this.stale || !this.seen || this.busy || this.make === null) return;
    this.busy = true;
    this.stale = false;
    try {
      const Plotly = await load();
      const { data, layout, rows } = this.make(colours());
      if (this.div.isConnected && this.div.clientWidth > 0) {
        if (rows) this.div.style.height = `max(var(--least), ${48 + 26 * rows}px)`;
        await Plotly.react(this.div, data, layout, CONFIG);
      }
      document.body.classList.remove("no-charts");
    } catch {
      document.body.classList.add("no-charts");
    } finally {
      this.busy = false;
    }
    this.refresh(); // there may be something newer by now
  }
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.get(entry.target);
    chart.seen = entry.isIntersecting;
    chart.refresh();
  }
}, { rootMargin: "400px" });

/* Room can change without the window: a scroll bar appears. */
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const drawn = target._fullLayout;
    const { width, height } = target.getBoundingClientRect();
    if (drawn && width > 0 && (Math.abs(drawn.width - width) > 0.5 || Math.abs(drawn.height - height) > 0.5)) {
      window.Plotly.Plots.resize(target);
    }
  }
});

export function chart(div) {
  if (!charts.has(div)) charts.set(div, new Chart(div));
  return charts.get(div);
}

function redrawAll() {
  for (const one of charts.values()) {
    one.stale = one.make !== null;
    one.refresh();
  }
}

darkness.addEventListener("change", redrawAll);
window.addEventListener("beforeprint", () => {
  for (const one of charts.values()) one.seen = true;
  redrawAll();
});

/* --- what all charts have in common --- */

function axis({ muted, grid }, more) {
  return {
    fixedrange: true, zeroline: false, gridcolor: grid, linecolor: grid, tickcolor: grid, tickfont: { color: muted },
    automargin: true, ...more,
  };
}

function layout(c, { x = {}, y = {}, ...more }) {
  return {
    autosize: true, margin: { l: 44, r: 14, t: 10, b: 28 }, showlegend: false, dragmode: false, hovermode: "x unified",
    font: { family: c.font, size: 12, color: c.ink }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    hoverlabel: { bgcolor: c.ground, bordercolor: c.grid, font: { family: c.font, size: 12, color: c.ink } },
    xaxis: axis(c, { showgrid: false, showline: true, nticks: 4, tickangle: 0, ...x }), yaxis: axis(c, { nticks: 6, ...y }),
    ...more,
  };
}

/* The horizontal axis: times are dates, decisions are counted. */
const along = (kind, range) => (kind === "time"
  ? { type: "date", range, hoverformat: "%b %-d, %H:%M:%S" }
  : { type: "linear", range, tickformat: ",d", hoverformat: ",d", title: { text: "decisions", standoff: 4 } });

const level = (c, y, more = {}) => ({
  type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, layer: "below",
  line: { color: c.muted, width: 1.5, dash: "dash" }, ...more,
});

/* --- the charts --- */

export const rewardChart = ({ kind, range, x, means, counts, recent, overall }) => (c) => ({
  data: [
    {
      x, y: means, customdata: counts, mode: "markers", marker: { color: c.main, size: 5, opacity: 0.55 },
      hovertemplate: "%{y:.3~f} of %{customdata:,} rewards<extra></extra>",
    },
    {
      x, y: recent, mode: "lines", line: { color: c.main, width: 2.5 }, connectgaps: true,
      hovertemplate: "%{y:.3~f} on average<extra></extra>",
    },
  ],
  layout: layout(c, {
    x: along(kind, range), y: { rangemode: "tozero", tickformat: "~g" },
    shapes: overall === null ? [] : [level(c, overall)],
  }),
});

export const armsChart = ({ kind, range, x, arms }) => (c) => ({
  data: arms.map(({ name, slot, shares }) => ({
    x, y: shares.map((share) => 100 * share), mode: "lines", stackgroup: "all", name: plain(name, 30),
    line: { color: c.ground, width: 0.5 }, fillcolor: slot === null ? c.other : c.series[slot],
    text: shares.map(() => plain(name, 30)), hovertemplate: "%{text}: %{y:.1f} %<extra></extra>",
  })),
  layout: layout(c, { x: along(kind, range), y: { range: [0, 100], ticksuffix: " %", nticks: 5 } }),
});

export const normChart = ({ kind, range, x, norms, bound, ends, projected }) => (c) => {
  const strip = projected !== null;
  const top = 1.12 * Math.max(...norms, bound ?? 0, 1e-9);
  const ball = bound === null ? [] : [
    { type: "rect", xref: "paper", x0: 0, x1: 1, y0: 0, y1: bound, fillcolor: c.area, line: { width: 0 }, layer: "below" },
    level(c, bound),
  ];
  const data = [{
    x, y: norms, mode: norms.length > 1 ? "lines" : "markers", line: { color: c.main, width: 2.5 },
    marker: { color: c.main }, hovertemplate: "length %{y:.3~f}<extra></extra>",
  }];
  if (strip) {
    data.push({
      x: ends, y: projected.map((share) => (share === null ? null : 100 * share)), yaxis: "y2", mode: "lines",
      line: { color: c.second, width: 2, shape: "vh" }, fill: "tozeroy", hovertemplate: "projected %{y:.0f} %<extra></extra>",
    });
  }
  return {
    data,
    layout: layout(c, {
      x: { ...along(kind, range), anchor: strip ? "y2" : "y" },
      y: { range: [0, top], domain: [strip ? 0.36 : 0, 1], tickformat: "~g", nticks: 5 },
      ...(strip ? { yaxis2: axis(c, { range: [0, 105], domain: [0, 0.24], tickvals: [0, 100], ticktext: ["0 %", "100 %"] }) } : {}),
      shapes: ball,
      annotations: bound === null ? [] : [{
        text: `S = ${given(bound)}`, xref: "paper", x: 1, xanchor: "right", y: bound, yanchor: "bottom", showarrow: false,
        font: { color: c.muted, size: 12 },
      }],
    }),
  };
};

export const thetaChart = ({ names, values }) => (c) => {
  const places = values.map((_, i) => i);
  return {
    rows: values.length,
    data: [{
      type: "bar", orientation: "h", x: values, y: places, text: names.map((name) => plain(name, 60)), textposition: "none",
      marker: { color: values.map((value) => (value < 0 ? c.second : c.main)) },
      hovertemplate: "%{text}: %{x:.3~f}<extra></extra>",
    }],
    layout: layout(c, {
      bargap: 0.35, hovermode: "closest",
      x: { showgrid: true, showline: false, zeroline: true, zerolinecolor: c.muted, tickformat: "~g", nticks: 5 },
      y: {
        autorange: false, range: [values.length - 0.5, -0.5], showgrid: false, tickmode: "array", tickvals: places,
        ticktext: names.map((name) => plain(name, 18)), nticks: undefined,
      },
    }),
  };
};

const POWERS = Array.from({ length: 10 }, (_, i) => 10 ** i);
const SECONDS = [
  1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 4 * 3600, 12 * 3600,
  ...[1, 2, 4, 8, 15, 30, 60, 120, 240, 365].map((days) => 86400 * days),
];

export const memoryChart = ({ kind, range, x, memories, words, all, low, high, unit }) => (c) => {
  const least = Math.min(...memories, low ?? Infinity) / 2;
  const most = 2 * Math.max(...memories, high ?? 0);
  const seconds = unit === "seconds";
  const steps = most / least < 30 ? [1, 2, 5] : [1, 3];
  const ticks = (seconds ? SECONDS : POWERS.flatMap((ten) => steps.map((step) => step * ten)))
    .filter((tick) => tick >= least && tick <= most).filter((_, i, all) => i % Math.ceil(all.length / 7) === 0);
  const now = memories.length - 1;
  return {
    data: [
      { x, y: all, mode: "lines", line: { color: c.muted, width: 1.5, dash: "dot" }, hoverinfo: "skip" },
      {
        x, y: memories, text: words, mode: "lines", line: { color: c.main, width: 2.5, shape: "hv" },
        hovertemplate: "goes by %{text}<extra></extra>",
      },
      {
        x: [x[now]], y: [memories[now]], mode: "markers", marker: { color: c.main, size: 7 }, hoverinfo: "skip",
        cliponaxis: false,
        error_y: low === null ? undefined : {
          type: "data", symmetric: false, array: [(high ?? most) - memories[now]], arrayminus: [memories[now] - low], width: 4,
          thickness: 1.5, color: c.main,
        },
      },
    ],
    layout: layout(c, {
      x: along(kind, range),
      y: {
        type: "log", range: [Math.log10(least), Math.log10(most)], tickmode: "array", tickvals: ticks,
        ticktext: ticks.map((tick) => (seconds ? span(tick) : tick.toLocaleString("en"))),
      },
    }),
  };
};
