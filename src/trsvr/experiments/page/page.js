"use strict";
// The explorer: curves of one problem, with the axis, the methods and the seeds of the reader's choice.
(function () {
  const data = JSON.parse(document.getElementById("curves-data").textContent);
  const root = document.getElementById("explorer");
  if (!root) return;
  if (!data.studies.some((study) => study.problems.length)) {
    root.textContent = "There are no curves yet.";
    return;
  }

  const WIDTH = 1160, HEIGHT = 520, LEFT = 74, RIGHT = 16, TOP = 14, BOTTOM = 48;
  const POINTS = 300;
  const SHARES = [0.2, 0.5, 0.8];

  const state = { study: 0, problem: 0, axis: "", height: "gap", hidden: new Set(), seeds: new Set(), single: false,
                  view: null };

  // ---------------------------------------------------------------------------------------------- small helpers

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (key in made && key !== "list") made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  function shape(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const problem = () => data.studies[state.study].problems[state.problem];

  // Heights on a logarithmic scale, clipped to what a logarithm can take.
  function logs(values, floor) {
    return values.map((value) => Math.log10(Math.min(Math.max(value === null ? 1e300 : value, floor), 1e300)));
  }

  function between(place, xs, ys) {
    if (place <= xs[0]) return ys[0];
    if (place >= xs[xs.length - 1]) return ys[ys.length - 1];
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= place) low = middle; else high = middle;
    }
    const width = xs[high] - xs[low];
    return width > 0 ? ys[low] + (ys[high] - ys[low]) * (place - xs[low]) / width : ys[high];
  }

  function quantile(sorted, share) {
    const place = share * (sorted.length - 1), low = Math.floor(place);
    const next = sorted[Math.min(low + 1, sorted.length - 1)];
    return sorted[low] + (next - sorted[low]) * (place - low);
  }

  // ------------------------------------------------------------------------------------------------- the curves

  function chosenRuns(line) {
    return line.runs.filter((run) => state.seeds.has(run.seed));
  }

  // Median and band over the chosen seeds, as far as half of the runs go; a run that has ended keeps its last height.
  function curve(line) {
    const runs = chosenRuns(line);
    if (!runs.length) return null;
    const floor = problem().floor[state.height];
    const xs = runs.map((run) => run[state.axis]);
    const ys = runs.map((run) => logs(run[state.height], floor));
    const ends = xs.map((x) => x[x.length - 1]).sort((a, b) => a - b);
    const end = ends[Math.floor(ends.length / 2)];
    const found = { x: [], low: [], middle: [], high: [], singles: [] };
    for (let k = 0; k < POINTS; k++) {
      const place = end * k / (POINTS - 1);
      const heights = xs.map((x, run) => between(place, x, ys[run])).sort((a, b) => a - b);
      const [low, middle, high] = SHARES.map((share) => quantile(heights, share));
      found.x.push(place); found.low.push(low); found.middle.push(middle); found.high.push(high);
    }
    found.singles = xs.map((x, run) => ({ x, y: ys[run] }));
    return found;
  }

  function visible() {
    return problem().lines.filter((line) => !state.hidden.has(line.label))
      .map((line) => ({ line, curve: curve(line) })).filter((one) => one.curve);
  }

  function fullView(shown) {
    let right = 0, low = Infinity, high = -Infinity;
    for (const one of shown) {
      right = Math.max(right, one.curve.x[one.curve.x.length - 1]);
      // A run that diverged does not set the scale.
      for (const height of one.curve.middle) {
        low = Math.min(low, height);
        if (height < 12) high = Math.max(high, height);
      }
    }
    if (!(right > 0)) right = 1;
    if (!(low < high)) { low = Number.isFinite(low) ? low - 1 : -1; high = low + 2; }
    const room = 0.04 * (high - low);
    return { left: 0, right, low: low - room, high: high + room };
  }

  // --------------------------------------------------------------------------------------------------- drawing

  const plot = element("div", { className: "plot" });
  const tip = element("div", { className: "tip", hidden: true });
  let frame = null, shownCurves = [];

  const toX = (place) => LEFT + (place - frame.left) / (frame.right - frame.left) * (WIDTH - LEFT - RIGHT);
  const toY = (height) => TOP + (frame.high - height) / (frame.high - frame.low) * (HEIGHT - TOP - BOTTOM);
  const fromX = (pixel) => frame.left + (pixel - LEFT) / (WIDTH - LEFT - RIGHT) * (frame.right - frame.left);
  const fromY = (pixel) => frame.high - (pixel - TOP) / (HEIGHT - TOP - BOTTOM) * (frame.high - frame.low);

  function path(xs, ys) {
    return xs.map((x, k) => `${k ? "L" : "M"}${toX(x).toFixed(2)} ${toY(ys[k]).toFixed(2)}`).join("");
  }

  function steps(low, high, wanted) {
    const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= raw);
    const marks = [];
    for (let mark = Math.ceil(low / step) * step; mark <= high + step * 1e-9; mark += step) marks.push(mark);
    return marks;
  }

  // Marks on the logarithmic axis: whole decades, or 1, 2, 5 where there are few of them.
  function powers(low, high) {
    if (high - low > 4) return steps(low, high, 8).filter((mark) => Number.isInteger(mark));
    const marks = [];
    for (let decade = Math.floor(low); decade <= high; decade++) {
      for (const digit of [1, 2, 5]) marks.push(decade + Math.log10(digit));
    }
    const inside = marks.filter((mark) => mark >= low && mark <= high);
    return inside.length > 1 ? inside : steps(low, high, 6);
  }

  function powerText(mark) {
    const [digits, power] = (10 ** mark).toExponential(Math.abs(mark % 1) < 1e-9 || frame.high - frame.low > 0.6 ? 0 : 2).split("e");
    return `${digits}e${Number(power)}`;
  }

  function draw() {
    shownCurves = visible();
    frame = state.view || fullView(shownCurves);
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
      "aria-label": `${data.heights[state.height]} against ${data.axes[state.axis]}` });
    const clip = shape("clipPath", { id: "inside" });
    clip.append(shape("rect", { x: LEFT, y: TOP, width: WIDTH - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM }));
    svg.append(clip);
    for (const mark of steps(frame.left, frame.right, 8)) {
      svg.append(shape("line", { x1: toX(mark), x2: toX(mark), y1: TOP, y2: HEIGHT - BOTTOM, stroke: "#e4e4e4" }));
      svg.append(shape("text", { x: toX(mark), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" },
        String(Number(mark.toPrecision(6)))));
    }
    for (const mark of powers(frame.low, frame.high)) {
      svg.append(shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: toY(mark), y2: toY(mark), stroke: "#e4e4e4" }));
      svg.append(shape("text", { x: LEFT - 6, y: toY(mark) + 4, "text-anchor": "end" }, powerText(mark)));
    }
    svg.append(shape("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "xlabel" },
      data.axes[state.axis]));
    svg.append(shape("text", { x: 16, y: HEIGHT / 2, transform: `rotate(-90 16 ${HEIGHT / 2})`, "text-anchor": "middle",
      class: "ylabel" }, data.heights[state.height]));
    const inside = shape("g", { "clip-path": "url(#inside)" });
    for (const { line, curve: found } of shownCurves) {
      const group = shape("g", { class: "curve", "data-label": line.label });
      const area = path(found.x, found.high)
        + path([...found.x].reverse(), [...found.low].reverse()).replace("M", "L") + "Z";
      group.append(shape("path", { d: area, fill: line.colour, opacity: 0.16 }));
      if (state.single) {
        for (const single of found.singles) {
          group.append(shape("path", { d: path(single.x, single.y), fill: "none", stroke: line.colour, opacity: 0.45 }));
        }
      }
      group.append(shape("path", { d: path(found.x, found.middle), fill: "none", stroke: line.colour, "stroke-width": 2,
        "stroke-dasharray": line.dashes }));
      inside.append(group);
    }
    svg.append(inside);
    svg.append(shape("rect", { x: LEFT, y: TOP, width: WIDTH - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM, fill: "none",
      stroke: "#888" }));
    const dot = shape("circle", { r: 4.5, fill: "none", "stroke-width": 2, visibility: "hidden" });
    const zone = shape("rect", { fill: "#0072b2", opacity: 0.12, visibility: "hidden" });
    svg.append(dot, zone);
    watch(svg, dot, zone);
    plot.replaceChildren(svg, tip);
  }

  // --------------------------------------------------------------------------------- the pointer: hover and zoom

  function watch(svg, dot, zone) {
    let from = null;
    const spot = (event) => {
      const box = svg.getBoundingClientRect();
      return [(event.clientX - box.left) * WIDTH / box.width, (event.clientY - box.top) * HEIGHT / box.height];
    };
    const within = ([x, y]) => x >= LEFT && x <= WIDTH - RIGHT && y >= TOP && y <= HEIGHT - BOTTOM;
    svg.addEventListener("pointerdown", (event) => {
      if (within(spot(event))) { from = spot(event); svg.setPointerCapture(event.pointerId); }
    });
    svg.addEventListener("pointermove", (event) => {
      const [x, y] = spot(event);
      if (from) {
        const [a, b] = [Math.min(from[0], x), Math.min(from[1], y)];
        for (const [key, value] of Object.entries({ x: a, y: b, width: Math.abs(from[0] - x),
          height: Math.abs(from[1] - y), visibility: "visible" })) zone.setAttribute(key, value);
        return;
      }
      hover(svg, dot, x, y);
    });
    svg.addEventListener("pointerleave", () => { tip.hidden = true; dot.setAttribute("visibility", "hidden"); });
    svg.addEventListener("pointerup", (event) => {
      if (!from) return;
      const [x, y] = spot(event), begin = from;
      from = null;
      if (Math.abs(x - begin[0]) > 8 && Math.abs(y - begin[1]) > 8) {
        state.view = { left: Math.max(0, fromX(Math.min(x, begin[0]))), right: fromX(Math.max(x, begin[0])),
                       high: fromY(Math.min(y, begin[1])), low: fromY(Math.max(y, begin[1])) };
        draw();
      } else {
        zone.setAttribute("visibility", "hidden");
      }
    });
    svg.addEventListener("dblclick", () => { state.view = null; draw(); });
    svg.addEventListener("wheel", (event) => {
      const [x, y] = spot(event);
      if (!within([x, y]) || !(event.ctrlKey || event.shiftKey)) return;
      event.preventDefault();
      const factor = (event.deltaY || event.deltaX) < 0 ? 0.8 : 1.25, place = fromX(x), height = fromY(y);
      state.view = { left: Math.max(0, place - (place - frame.left) * factor), right: place + (frame.right - place) * factor,
                     low: height - (height - frame.low) * factor, high: height + (frame.high - height) * factor };
      draw();
    }, { passive: false });
  }

  function hover(svg, dot, x, y) {
    let best = null;
    for (const { line, curve: found } of shownCurves) {
      found.x.forEach((place, point) => {
        const distance = (toX(place) - x) ** 2 + (toY(found.middle[point]) - y) ** 2;
        if (distance < 900 && (!best || distance < best.distance)) best = { distance, line, found, point };
      });
    }
    tip.hidden = !best;
    dot.setAttribute("visibility", best ? "visible" : "hidden");
    if (!best) return;
    const { found, point } = best, px = toX(found.x[point]), py = toY(found.middle[point]);
    for (const [key, value] of Object.entries({ cx: px, cy: py, stroke: best.line.colour })) dot.setAttribute(key, value);
    const number = (height) => (10 ** height).toExponential(2);
    tip.replaceChildren(
      element("b", {}, best.line.label), element("br", {}), best.line.settings, element("br", {}),
      `${data.axes[state.axis]}: ${Number(found.x[point].toPrecision(4))}`, element("br", {}),
      `${data.heights[state.height]}: ${number(found.middle[point])} (${number(found.low[point])} … ${number(found.high[point])})`);
    const scale = svg.getBoundingClientRect().width / WIDTH;
    const right = px > WIDTH * 0.6;
    tip.style.left = right ? "auto" : `${px * scale + 14}px`;
    tip.style.right = right ? `${(WIDTH - px) * scale + 14}px` : "auto";
    tip.style.top = `${Math.max(0, py * scale - 30)}px`;
  }

  // ---------------------------------------------------------------------------------------------- the controls

  function select(id, label, options, value, onchange) {
    const made = element("select", { id, onchange: (event) => { onchange(event.target.value); } });
    for (const [key, text] of options) made.append(element("option", { value: key, selected: String(key) === String(value) }, text));
    return element("label", {}, `${label} `, made);
  }

  function swatch(line) {
    const svg = shape("svg", { width: 26, height: 8 });
    svg.append(shape("line", { x1: 0, x2: 26, y1: 4, y2: 4, stroke: line.colour, "stroke-width": 2.4,
      "stroke-dasharray": line.dashes }));
    return svg;
  }

  function box(name, value, checked, change, ...content) {
    return element("label", {}, element("input", { type: "checkbox", name, value, checked,
      onchange: (event) => { change(event.target.checked); state.view = null; draw(); } }), ...content);
  }

  function toggle(set, entry, present) {
    if (present) set.add(entry); else set.delete(entry);
  }

  function build() {
    const studies = data.studies.map((study, k) => [k, study.title]).filter(([k]) => data.studies[k].problems.length);
    const sets = data.studies[state.study].problems.map((one, k) => [k, one.title]);
    const controls = element("div", { className: "controls" },
      select("study", "study", studies, state.study, (value) => { state.study = Number(value); state.problem = 0; begin(); }),
      select("problem", "data", sets, state.problem, (value) => { state.problem = Number(value); begin(state.axis); }),
      select("axis", "against", Object.entries(data.axes), state.axis, (value) => { state.axis = value; state.view = null; draw(); }),
      select("height", "show", Object.entries(data.heights), state.height, (value) => { state.height = value; state.view = null; draw(); }),
      box("single", "single", state.single, (on) => { state.single = on; }, " single runs"),
      element("button", { id: "reset", type: "button", onclick: () => { state.view = null; draw(); } }, "whole picture"));
    const methods = element("div", { className: "choices", id: "methods" });
    problem().lines.forEach((line) => methods.append(box("method", line.label, !state.hidden.has(line.label),
      (on) => toggle(state.hidden, line.label, !on), swatch(line), line.label)));
    const seeds = element("div", { className: "choices", id: "seeds" }, "seeds");
    for (const seed of [...new Set(problem().lines.flatMap((line) => line.runs.map((run) => run.seed)))].sort((a, b) => a - b)) {
      seeds.append(box("seed", seed, state.seeds.has(seed), (on) => toggle(state.seeds, seed, on), ` ${seed}`));
    }
    const hint = element("div", { className: "hint" },
      "Drag over a part to look closer, or turn the wheel with Shift or Ctrl; a double click shows the whole. ",
      "Lines are medians over the chosen seeds, bands go from 20 to 80 %.");
    root.replaceChildren(controls, methods, seeds, plot, hint);
    draw();
  }

  function begin(axis) {
    state.axis = axis || data.studies[state.study].axis;
    state.view = null;
    state.hidden = new Set(problem().lines.filter((line) => line.hidden).map((line) => line.label));
    state.seeds = new Set(problem().lines.flatMap((line) => line.runs.map((run) => run.seed)));
    build();
  }

  state.study = data.studies.findIndex((study) => study.problems.length);
  begin();
})();
