"use strict";
// The explorer: curves of one problem, with the axis, the methods and the seeds of the reader's choice. uPlot draws.
(function () {
  const data = JSON.parse(document.getElementById("curves-data").textContent);
  const root = document.getElementById("explorer");
  if (!root) return;
  const begun = data.studies.map((study, k) => [k, study.title]).filter(([k]) => data.studies[k].problems.length);
  if (!begun.length) {
    root.textContent = "There are no curves yet.";
    return;
  }

  const POINTS = 600, SHARES = [0.2, 0.5, 0.8];
  const state = { study: begun[0][0], problem: 0, axis: "", height: "gap", hidden: new Set(), seeds: new Set(), single: false };
  const problem = () => data.studies[state.study].problems[state.problem];

  function element(name, attributes, ...children) {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(...children);
    return made;
  }

  // ------------------------------------------------------------------------------------------------- the curves

  // The logarithm of a run's height at a place; a run that has ended keeps its last height.
  function heightAt(place, xs, ys) {
    const next = xs.findIndex((x) => x > place);
    if (next < 1) return ys.at(next);
    return ys[next - 1] + (ys[next] - ys[next - 1]) * (place - xs[next - 1]) / (xs[next] - xs[next - 1]);
  }

  function quantile(sorted, share) {
    const place = share * (sorted.length - 1), low = Math.floor(place);
    return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (place - low);
  }

  // The chosen runs of a line with logarithmic heights, and where half of them have ended. A run that diverges is drawn
  // up to a thousand times the first height.
  function prepared(line) {
    const floor = problem().floor[state.height], runs = line.runs.filter((run) => state.seeds.has(run.seed));
    const logarithm = (y) => Math.log10(y === null ? 1e300 : Math.max(y, floor));
    const top = 3 + Math.max(...runs.map((run) => logarithm(run[state.height][0])));
    const ends = runs.map((run) => run[state.axis].at(-1)).sort((a, b) => a - b);
    return { line, end: ends[Math.floor(ends.length / 2)], runs: runs.map((run) => ({
      seed: run.seed, x: run[state.axis], y: run[state.height].map((y) => Math.min(logarithm(y), top)) })) };
  }

  // What uPlot draws: for every line the band's edges, the median and, if wanted, single runs, all on one grid of places.
  function drawn() {
    const lines = problem().lines.map(prepared).filter((one) => one.runs.length);
    const right = Math.max(0, ...lines.map((one) => one.end)) || 1;
    const places = Array.from({ length: POINTS }, (_, k) => right * k / (POINTS - 1));
    const columns = [places], bands = [];
    const series = [{ label: data.axes[state.axis], value: (_, x) => (x === null ? "" : shown(x)) }];
    const number = (_, y) => (y === null ? "" : y.toExponential(2));
    const upTo = (end, height) => places.map((place, k) => (place > end * (1 + 1e-12) ? null : 10 ** height(place, k)));
    for (const { line, runs, end } of lines) {
      const heights = places.map((place) => runs.map((run) => heightAt(place, run.x, run.y)).sort((a, b) => a - b));
      const [low, middle, high] = SHARES.map((share) => upTo(end, (_, k) => quantile(heights[k], share)));
      const common = { show: !state.hidden.has(line.label), stroke: line.colour, method: line.label, value: number,
                       points: { show: false } };
      const minor = { ...common, class: "minor", width: 0 };
      bands.push({ series: [series.length + 2, series.length + 1], fill: `${line.colour}2a` });
      columns.push(middle, low, high);
      series.push({ ...common, label: line.label, width: 2, dash: line.dashes },
        { ...minor, label: `${line.label}, 20 %` }, { ...minor, label: `${line.label}, 80 %` });
      for (const run of state.single ? runs : []) {
        columns.push(upTo(run.x.at(-1), (place) => heightAt(place, run.x, run.y)));
        series.push({ ...minor, width: 1, label: `${line.label}, seed ${run.seed}` });
      }
    }
    return { columns, series, bands };
  }

  const shown = (x) => String(Number(x.toPrecision(4)));

  // --------------------------------------------------------------------------------------------------- drawing

  const plot = element("div", { className: "plot" });
  let chart = null;

  // Marks on the logarithmic axis: whole decades, at most a dozen, unless there are hardly any.
  function decades(_, marks) {
    const powers = marks.map((mark) => Math.log10(mark)), whole = (power) => Math.abs(power - Math.round(power)) < 1e-6;
    const count = powers.filter(whole).length, every = Math.ceil(count / 12);
    return count < 3 ? marks : marks.map((mark, k) => (whole(powers[k]) && Math.round(powers[k]) % every === 0 ? mark : null));
  }

  const size = () => ({ width: plot.clientWidth, height: Math.min(520, Math.max(320, plot.clientWidth / 2)) });

  function draw() {
    const { columns, series, bands } = drawn();
    if (chart) chart.destroy();
    chart = root.chart = new uPlot({
      ...size(), series, bands,
      scales: { x: { time: false }, y: { distr: 3 } },
      axes: [{ label: data.axes[state.axis], values: (_, marks) => marks.map(shown) },
             { label: data.heights[state.height], size: 64,
               filter: decades, grid: { filter: decades }, ticks: { filter: decades },
               values: (_, marks) => marks.map((mark) => (mark === null ? "" : Number(mark.toPrecision(2)).toExponential())) }],
      cursor: { drag: { x: true, y: true, uni: 20 }, points: { size: (u, k) => (u.series[k].class ? 0 : 7) } },
      hooks: { ready: [makeReachable], setSeries: [(_, k, options) => { if (k && "show" in options) toggle(k); }] },
    }, columns, plot);
  }

  // The rows of uPlot's legend are switches that a keyboard reaches too, and show a line's dashes.
  function makeReachable(made) {
    const words = `${data.heights[state.height]} against ${data.axes[state.axis]}`;
    Object.assign(made.root.querySelector("canvas"), { role: "img", ariaLabel: words });
    const rows = made.root.querySelectorAll(".u-series");
    problem().lines.forEach((line) => {
      const k = made.series.findIndex((one) => one.label === line.label);
      if (k < 0) return;
      const head = rows[k].querySelector("th");
      Object.assign(head, { tabIndex: 0, title: line.settings, role: "switch", ariaChecked: String(made.series[k].show) });
      head.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); head.click(); } };
      rows[k].querySelector(".u-marker").outerHTML =
        `<svg width="28" height="8" aria-hidden="true"><path d="M0 4H28" stroke="${line.colour}" stroke-width="2.4" ` +
        `stroke-dasharray="${line.dashes.join(" ")}"/></svg>`;
    });
  }

  // The band and the single runs of a line come and go with it.
  function toggle(k) {
    const { method, show, class: minor } = chart.series[k];
    if (minor) return;
    if (show) state.hidden.delete(method); else state.hidden.add(method);
    chart.root.querySelectorAll(".u-series")[k].querySelector("th").ariaChecked = String(show);
    chart.series.forEach((one, other) => { if (one.method === method && one.show !== show) chart.setSeries(other, { show }); });
  }

  // ------------------------------------------------------------------------------------------ picture and numbers

  function save(blob, name) {
    const link = element("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // The chart on white, its legend below.
  function savePicture() {
    const ratio = devicePixelRatio, source = chart.ctx.canvas;
    const shownLines = chart.series.filter((one) => one.method && !one.class && one.show);
    const canvas = element("canvas", { width: source.width, height: source.height + (shownLines.length * 20 + 10) * ratio });
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(source, 0, 0);
    Object.assign(pen, { font: `${13 * ratio}px sans-serif`, textBaseline: "middle", lineWidth: 2 * ratio });
    shownLines.forEach(({ label, dash }, k) => {
      const line = problem().lines.find((one) => one.label === label), y = source.height + (k * 20 + 10) * ratio;
      pen.strokeStyle = line.colour;
      pen.setLineDash(line.dashes.map((length) => length * ratio));
      pen.stroke(new Path2D(`M${64 * ratio} ${y}h${36 * ratio}`));
      pen.fillStyle = "#1c1c1c";
      pen.fillText(label, 108 * ratio, y);
    });
    canvas.toBlob((blob) => save(blob, "curves.png"));
  }

  function saveNumbers() {
    const kept = chart.series.map((_, k) => k).filter((k) => chart.series[k].show);
    const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
    const rows = chart.data[0].map((_, row) => kept.map((k) => chart.data[k][row] ?? "").join(","));
    const text = [kept.map((k) => quoted(chart.series[k].label)).join(","), ...rows, ""].join("\n");
    save(new Blob([text], { type: "text/csv" }), "curves.csv");
  }

  // ---------------------------------------------------------------------------------------------- the controls

  function select(id, label, options, change) {
    const made = element("select", { id, onchange: () => change(made.value) });
    for (const [key, text] of options) {
      made.append(element("option", { value: key, selected: String(key) === String(state[id]) }, text));
    }
    return element("label", {}, `${label} `, made);
  }

  function box(name, value, checked, change, text) {
    return element("label", {}, element("input", { type: "checkbox", name, value, checked,
      onchange: (event) => { change(event.target.checked); draw(); } }), text);
  }

  const button = (id, text, onclick) => element("button", { id, type: "button", onclick }, text);

  function begin(axis) {
    const seeds = [...new Set(problem().lines.flatMap((line) => line.runs.map((run) => run.seed)))].sort((a, b) => a - b);
    state.axis = axis || data.studies[state.study].axis;
    state.hidden = new Set(problem().lines.filter((line) => line.hidden).map((line) => line.label));
    state.seeds = new Set(seeds);
    const controls = element("div", { className: "controls" },
      select("study", "study", begun, (value) => { state.study = Number(value); state.problem = 0; begin(); }),
      select("problem", "data", data.studies[state.study].problems.map((one, k) => [k, one.title]),
        (value) => { state.problem = Number(value); begin(state.axis); }),
      select("axis", "against", Object.entries(data.axes), (value) => { state.axis = value; draw(); }),
      select("height", "show", Object.entries(data.heights), (value) => { state.height = value; draw(); }));
    const choices = element("div", { className: "controls", id: "seeds" }, "seeds",
      ...seeds.map((seed) => box("seed", seed, true, (on) => state.seeds[on ? "add" : "delete"](seed), ` ${seed}`)),
      box("single", "single", state.single, (on) => { state.single = on; }, " single runs"),
      button("reset", "whole picture", () => chart.setData(chart.data)),
      button("picture", "save picture", savePicture), button("numbers", "save numbers", saveNumbers));
    const hint = element("div", { className: "hint" },
      "Drag over a part to look closer; a double click shows the whole. A method's name below the picture shows or hides it. ",
      "Lines are medians over the chosen seeds, bands go from 20 to 80 %.");
    root.replaceChildren(controls, choices, plot, hint);
    draw();
  }

  begin();
  window.addEventListener("resize", () => chart.setSize(size()));
})();
