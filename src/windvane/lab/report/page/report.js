"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const darkness = window.matchMedia("(prefers-color-scheme: dark)");
  const THEMES = {
    light: { ink: "#1d2127", muted: "#565d66", grid: "#e3e6ea", ground: "#ffffff" },
    dark: { ink: "#e6e9ee", muted: "#a5adb8", grid: "#313945", ground: "#1e242c" },
  };
  const CONFIG = {
    responsive: true, displaylogo: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
  };
  const PRINT_WIDTH = 660;
  const drawn = new Set();
  let printing = false;

  const theme = () => THEMES[darkness.matches && !printing ? "dark" : "light"];

  /* The page's colours, as changes of a layout with these annotations. */
  function colours(annotations = []) {
    const { ink, muted, grid, ground } = theme();
    const changes = {
      "font.color": ink, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      "modebar.bgcolor": "rgba(0,0,0,0)", "modebar.color": muted, "modebar.activecolor": ink,
      "hoverlabel.bgcolor": ground, "hoverlabel.font.color": ink, "hoverlabel.bordercolor": muted,
    };
    for (const axis of ["xaxis", "yaxis"]) {
      Object.assign(changes, { [`${axis}.gridcolor`]: grid, [`${axis}.linecolor`]: muted });
    }
    annotations.forEach((_, i) => { changes[`annotations[${i}].arrowcolor`] = ink; });
    return changes;
  }

  function set(object, path, value) {
    const steps = path.split(/[.[\]]+/);
    const last = steps.pop();
    let place = object;
    for (const step of steps) place = place[step] ??= {};
    place[last] = value;
  }

  function draw(div, chart) {
    const layout = structuredClone(chart.layout);
    const data = structuredClone(chart.data);
    for (const [path, value] of Object.entries(colours(layout.annotations))) set(layout, path, value);
    layout.font.family = getComputedStyle(document.body).fontFamily;
    layout.font.size = 13;
    layout.hoverlabel.font.family = layout.font.family;
    layout.margin = { l: 56, r: 24, t: 28, b: 48 };
    layout.hovermode = "closest";
    layout.legend = { orientation: "h", y: 1.02, yanchor: "bottom", traceorder: "normal" };
    for (const axis of [layout.xaxis, layout.yaxis]) Object.assign(axis, { automargin: true, zeroline: false });
    layout.autosize = true;
    for (const trace of data) if (trace.meta?.ink) trace.line.color = theme().ink;
    const title = div.previousElementSibling;
    title.textContent = chart.title;
    title.hidden = !chart.title;
    div.parentElement.hidden = false;
    if (chart.layout.height) div.style.height = `${chart.layout.height}px`;
    drawn.add(div);
    return Plotly.react(div, data, layout, CONFIG);
  }

  function repaint() {
    for (const div of drawn) {
      if (div.parentElement.hidden) continue;
      const width = printing ? { width: PRINT_WIDTH, autosize: false } : { width: null, autosize: true };
      const inked = div.data.map((trace, i) => (trace.meta?.ink ? i : -1)).filter((i) => i >= 0);
      if (inked.length) Plotly.restyle(div, { "line.color": theme().ink }, inked);
      Plotly.relayout(div, { ...colours(div.layout.annotations), ...width });
    }
  }

  /* A piece of a line, for a legend. */
  function sample(colour, dash) {
    const [svg, line] = ["svg", "line"].map((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
    const look = { x2: "100%", y1: "50%", y2: "50%", stroke: colour, "stroke-width": 3, "stroke-dasharray": dash };
    for (const [name, value] of Object.entries(look)) line.setAttribute(name, value);
    svg.setAttribute("aria-hidden", "true");
    svg.append(line);
    return svg;
  }

  /* --- regret: boxes that hide curves, buttons for the axes --- */

  function regret(figure, chart) {
    const div = figure.querySelector(".chart");
    const legend = figure.querySelector(".legend");
    const bands = figure.querySelector("input.bands");
    const low = chart.data.map((trace) => (trace.meta.kind === "low" ? trace.y : null));
    const boxes = chart.legend.map(({ label, colour, dash }) => {
      const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: true });
      const swatch = sample(colour, dash);
      const row = document.createElement("label");
      row.append(box, swatch, document.createTextNode(label));
      legend.append(row);
      box.addEventListener("change", show);
      return box;
    });

    function show() {
      const visible = chart.data.map(({ meta }) => {
        const banded = meta.kind !== "low" && meta.kind !== "high";
        return boxes[meta.entry].checked && (banded || bands.checked);
      });
      Plotly.restyle(div, { visible });
    }

    bands.checked = chart.banded;
    bands.addEventListener("change", show);
    figure.querySelectorAll("button[data-show]").forEach((button) => {
      button.addEventListener("click", () => {
        for (const box of boxes) box.checked = button.dataset.show === "all";
        show();
      });
    });
    figure.querySelectorAll("button[data-axis]").forEach((button) => {
      button.addEventListener("click", () => {
        const { axis, type } = button.dataset;
        figure.querySelectorAll(`button[data-axis="${axis}"]`).forEach((other) => {
          other.setAttribute("aria-pressed", String(other === button));
        });
        if (axis === "yaxis") {
          // a logarithm has no room for a band that reaches below zero: its edge stops short of it
          low.forEach((y, i) => {
            if (y === null) return;
            const high = chart.data[i + 1].y;
            const edge = type === "log" ? y.map((v, k) => Math.max(v, 0.05 * high[k])) : y;
            Plotly.restyle(div, { y: [edge] }, [i]);
          });
        }
        Plotly.relayout(div, { [`${axis}.type`]: type, [`${axis}.autorange`]: true });
      });
    });
    draw(div, chart);
  }

  /* --- charts of one policy, chosen from a list --- */

  function chosen(figure, options) {
    const select = figure.querySelector("select");
    const panels = [...figure.querySelectorAll(".chart")];
    const show = () => {
      const list = options[Number(select.value)];
      panels.forEach((div, i) => {
        if (i < list.length) draw(div, list[i]);
        else div.parentElement.hidden = true;
      });
    };
    select.addEventListener("change", show);
    show();
  }

  /* --- tables --- */

  function sortable(table) {
    const body = table.tBodies[0];
    table.querySelectorAll("thead button").forEach((button) => {
      const head = button.closest("th");
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        table.querySelectorAll("th[aria-sort]").forEach((th) => th.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => ({ row, cell: row.cells[head.cellIndex] }));
        rows.sort((a, b) => compared(a.cell, b.cell, up));
        body.append(...rows.map(({ row }) => row));
      });
    });
  }

  function compared(a, b, up) {
    const sign = up ? 1 : -1;
    if (a.dataset.value === undefined) return sign * a.textContent.localeCompare(b.textContent);
    const [x, y] = [a, b].map((cell) => (cell.dataset.value === "" ? NaN : Number(cell.dataset.value)));
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y); // unknown goes last
    return sign * (x - y);
  }

  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("figure[data-chart]").forEach((figure) => {
    const chart = charts[figure.dataset.chart];
    if (chart.options) chosen(figure, chart.options);
    else if (chart.legend.length) regret(figure, chart);
    else draw(figure.querySelector(".chart"), chart);
  });
  darkness.addEventListener("change", repaint);
  window.addEventListener("beforeprint", () => { printing = true; repaint(); });
  window.addEventListener("afterprint", () => { printing = false; repaint(); });
})();
