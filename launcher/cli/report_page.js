// Draws the figures of a report from the JSON in its element "data". A figure has `points` (one curve: step, lowest
// and highest of each run of steps), `curves` (those of several runs), `values` (a curve per name), `bars` (name, value, limit), `rows` (a table), `nodes`
// and `edges` (a map) or `measured` and `predicted` (a step as a timeline).
const data = JSON.parse(document.getElementById("data").textContent);
const kHeight = 220, kLeft = 58, kRight = 12, kTop = 12, kBottom = 34, kColours = 8, kTableRows = 400;
const controls = { smooth: 0, log: false, axis: "step" };
const redraws = [];

function element(name, attributes, parent, text) {
  const svg = ["svg", "path", "rect", "text", "title", "circle"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return parent ? parent.appendChild(made) : made;
}

function nice(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(1).replace("e+", "e");
  return String(+value.toPrecision(3));
}

// With the unit, as people write it: "1.2 MB", "34 %", "5 s".
function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit.startsWith("bytes")) {
    const power = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1) / 3)));
    return `${+(value / 1000 ** power).toPrecision(3)} ${["B", "kB", "MB", "GB", "TB"][power]}${unit.slice(5)}`;
  }
  if (unit.startsWith("share")) return `${+(value * 100).toPrecision(3)} %`;
  return unit ? `${nice(value)} ${unit}` : nice(value);
}

const clock = (s) => s < 60 ? `${+s.toPrecision(3)} s` : s < 3600 ? `${(s / 60).toFixed(1)} min` : `${(s / 3600).toFixed(2)} h`;
const axisText = (v) => controls.axis === "seconds" ? clock(v) : controls.axis === "bytes" ? shown(v, "bytes") :
  controls.axis === "tokens" && v >= 1e4 ? shown(v, "bytes").replace(/B$/, "").replace("G", "B") : nice(v);
const colour = (i, count) => count < 2 ? "var(--line)" : `hsl(${Math.round(i * 360 / Math.min(count, 24) + 215) % 360} 65% ${i % 2 ? 45 : 58}%)`;

// The position of a step of a run on the chosen axis, between those that are known.
function position(step, progress = data.progress) {
  if (controls.axis === "step") return step;
  const { steps, names, values } = progress, at = values[names.indexOf(controls.axis)];
  if (!at) return step;
  let low = 0, high = steps.length - 1;
  if (high < 1 || step >= steps[high]) return at[Math.max(high, 0)];
  while (high - low > 1) { const middle = (low + high) >> 1; if (steps[middle] <= step) low = middle; else high = middle; }
  const share = Math.min(1, Math.max(0, (step - steps[low]) / (steps[high] - steps[low])));
  return at[low] + share * (at[high] - at[low]);
}

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough), list = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) list.push(Math.abs(t) < step * 1e-6 ? 0 : t);
  return list;
}

// [[step, lowest, highest]] of each curve, and the progress of its run if the page has several.
function curvesOf(figure) {
  if (figure.curves) return figure.curves.map((curve) => ({ ...curve, progress: data.runs[curve.run] }));
  if (figure.points) return [{ name: "", points: figure.points }];
  return figure.names.map((name, i) => ({ name, points: figure.steps.map((s, j) => [s, figure.values[i][j], figure.values[i][j]])
    .filter((p) => p[1] !== null && p[1] !== undefined) })).filter((curve) => curve.points.length);
}

function drawCurves(figure, box, caption, all) {
  const curves = curvesOf(figure), width = box.clientWidth, keep = controls.smooth / 100;
  const every = curves.flatMap((c) => c.points);
  const logarithmic = controls.log && every.every((p) => p[1] > 0), scale = logarithmic ? Math.log10 : (v) => v;
  let low = Infinity, high = -Infinity, first = Infinity, last = -Infinity;
  for (const { points, progress } of curves) for (const p of points) {
    low = Math.min(low, scale(p[1])); high = Math.max(high, scale(p[2]));
    first = Math.min(first, position(p[0], progress)); last = Math.max(last, position(p[0], progress));
  }
  if (low === high) { low -= Math.abs(low) / 2 || 1; high += Math.abs(high) / 2 || 1; }
  const single = first === last;  // a point, in the middle
  if (single) { first -= 1; last += 1; }
  const x = (step, progress) => kLeft + (position(step, progress) - first) / (last - first) * (width - kLeft - kRight);
  const y = (v) => kTop + (high - v) / (high - low) * (kHeight - kTop - kBottom);
  box.textContent = "";
  const svg = element("svg", { viewBox: `0 0 ${width} ${kHeight}`, height: kHeight, role: "img",
    "aria-label": `${figure.title} by ${controls.axis}. ${all}` }, box);
  for (const t of ticks(low, high, 4)) {
    element("path", { d: `M${kLeft} ${y(t)}H${width - kRight}`, stroke: "currentColor", opacity: .15 }, svg);
    const text = logarithmic ? nice(10 ** t) : figure.unit.startsWith("bytes") ? shown(t, "bytes") : figure.unit.startsWith("share") ? shown(t, "share") : nice(t);
    element("text", { x: kLeft - 6, y: y(t) + 4, "text-anchor": "end" }, svg, text);
  }
  for (const t of single ? [last - 1] : ticks(first, last, Math.max(3, width / 120))) {
    const at = kLeft + (t - first) / (last - first) * (width - kLeft - kRight);
    element("text", { x: at, y: kHeight - 17, "text-anchor": at > width - 40 ? "end" : "middle" }, svg, axisText(t));
  }
  element("text", { x: kLeft + (width - kLeft - kRight) / 2, y: kHeight - 4, "text-anchor": "middle" }, svg, controls.axis === "seconds" ? "time" : controls.axis);
  for (const [step, kind, text] of data.marks) {
    if (position(step) < first || position(step) > last) continue;
    const fill = kind === "fault" ? "var(--bad)" : kind === "member" ? "var(--good)" : "var(--soft)";
    const mark = element("path", { d: `M${x(step)} ${kHeight - kBottom}l-3.5 6h7z`, fill }, svg);
    if (kind !== "checkpoint") element("path", { d: `M${x(step)} ${kTop}V${kHeight - kBottom}`, stroke: fill, "stroke-dasharray": "3 3" }, svg);
    element("title", {}, mark, `step ${step}: ${text}`);
  }
  const pathOf = (list, progress) => list.map(([s, v], i) => `${i ? "L" : "M"}${x(s, progress).toFixed(1)} ${y(v).toFixed(1)}`).join("");
  const lines = curves.map((curve, i) => {
    const { points, progress } = curve, path = (list) => pathOf(list, progress), line = { fill: "none", stroke: colour(i, curves.length), "stroke-width": 1.5 };
    if (points.length === 1) return element("circle", { cx: x(points[0][0], progress), cy: y(scale(points[0][1])), r: 3, fill: line.stroke }, svg);
    const raw = element("path", { ...line, d: path(points.flatMap((p) => p[1] === p[2] ? [[p[0], scale(p[1])]] : [[p[0], scale(p[1])], [p[0], scale(p[2])]])), opacity: keep ? .3 : 1 }, svg);
    if (!keep) return raw;
    let mean = (scale(points[0][1]) + scale(points[0][2])) / 2;
    return element("path", { ...line, d: path(points.map((p) => {
      mean = keep * mean + (1 - keep) * (scale(p[1]) + scale(p[2])) / 2;
      return [p[0], mean];
    })) }, svg);
  });
  const mark = element("path", { stroke: "currentColor", opacity: .4 }, svg);
  svg.onmousemove = (event) => {
    const at = svg.getBoundingClientRect(), px = event.clientX - at.left, py = event.clientY - at.top;
    let best = null;
    curves.forEach((curve, i) => {
      const away = (p) => Math.abs(x(p[0], curve.progress) - px);
      const near = curve.points.reduce((a, b) => away(b) < away(a) ? b : a);
      const far = Math.abs(y(scale((near[1] + near[2]) / 2)) - py);
      if (!best || far < best.far) best = { far, near, curve, i };
    });
    lines.forEach((line, i) => { line.style.strokeOpacity = curves.length > 1 && i !== best.i ? .25 : 1; });
    mark.setAttribute("d", `M${x(best.near[0], best.curve.progress)} ${kTop}V${kHeight - kBottom}`);
    const [step, one, other] = best.near, unit = figure.unit;
    caption.textContent = `step ${step}${controls.axis === "step" ? "" : `, ${axisText(position(step, best.curve.progress))}`}: ${best.curve.name} ` +
      (one === other ? shown(one, unit) : `${shown(one, unit)} to ${shown(other, unit)}`);
  };
  svg.onmouseleave = () => { mark.removeAttribute("d"); lines.forEach((line) => { line.style.strokeOpacity = 1; }); caption.textContent = all; };
}

function table(columns, rows, parent) {
  const scroll = element("div", { class: "scroll", tabindex: 0 }, parent);
  const made = element("table", {}, scroll), isText = columns.map((_, i) => rows.some((row) => row[i]?.length > 24));
  const head = element("tr", {}, element("thead", {}, made)), body = element("tbody", {}, made);
  columns.forEach((column, i) => element("th", { scope: "col", ...(isText[i] && { class: "text" }) }, head, column));
  for (const row of rows) {
    const line = element("tr", {}, body);
    row.forEach((cell, i) => element("td", isText[i] ? { class: "text" } : {}, line).append(cell ?? "–"));
  }
  return made;
}

// Made when it is opened, so that a page with many figures opens at once.
function foldedTable(parent, columns, rowsOf) {
  const fold = element("details", {}, parent);
  element("summary", {}, fold, "Table");
  fold.addEventListener("toggle", () => { if (fold.open && !fold.querySelector("table")) table(columns, rowsOf(), fold); });
}

function thinned(list) {
  const step = Math.ceil(list.length / kTableRows);
  return list.filter((_, i) => i % step === 0 || i === list.length - 1);
}

function curveFigure(figure, parent) {
  const curves = curvesOf(figure), box = element("div", {}, parent), unit = figure.unit;
  const all = figure.points
    ? `From ${shown(figure.first[1], unit)} (step ${figure.first[0]}) to ${shown(figure.last[1], unit)} (step ${figure.last[0]}); ` +
      `lowest ${shown(figure.lowest[1], unit)} (step ${figure.lowest[0]}), highest ${shown(figure.highest[1], unit)} (step ${figure.highest[0]}).`
    : curves.length === 1 ? `${curves[0].name}: last ${shown(curves[0].points.at(-1)[1], unit)}.`
    : `${curves.length} curves; the last values are ${shown(Math.min(...curves.map((c) => c.points.at(-1)[1])), unit)} to ${shown(Math.max(...curves.map((c) => c.points.at(-1)[1])), unit)}.`;
  if (curves.length > 1 && curves.length <= kColours) {
    const names = element("div", { class: "names" }, parent);
    curves.forEach((curve, i) => {
      const name = element("span", {}, names);
      element("i", { style: `background:${colour(i, curves.length)}` }, name);
      name.append(curve.name);
    });
  }
  const caption = element("figcaption", {}, parent, all);
  redraws.push(() => drawCurves(figure, box, caption, all));
  const raw = (v) => v === null || v === undefined ? null : String(v);
  if (figure.points) {
    foldedTable(parent, ["step", "lowest", "highest"], () => thinned(figure.points).map((p) => p.map(raw)));
  } else if (figure.curves) {
    foldedTable(parent, ["", "step", "lowest", "highest"], () => curves.flatMap((curve) => thinned(curve.points).map((p) => [curve.name, ...p.map(raw)])));
  } else {
    foldedTable(parent, ["step", ...figure.names], () => thinned(figure.steps.map((s, j) => [s, j]))
      .map(([s, j]) => [raw(s), ...figure.values.map((v) => raw(v[j]))]));
  }
}

function barsFigure(figure, parent) {
  const rows = figure.bars.map(([name, value, limit]) => {
    if (limit === null) return [name, shown(value, figure.unit), "unknown", ""];
    const bar = element("span", { class: "bar" }), share = value / limit;
    element("i", { style: `width:${Math.min(100, share * 100)}%`, ...(share > 1 && { class: "over" }) }, bar);
    const cell = document.createDocumentFragment();
    cell.append(`${Math.round(share * 100)} %`, bar);
    return [name, shown(value, figure.unit), shown(limit, figure.unit), cell];
  });
  table(["", figure.unit === "bytes" ? "peak" : "mean", figure.limit, "share"], rows, parent).className = "bars";
}

const kBoxWidth = 128, kBoxHeight = 42, kGap = 100, kRowGap = 56, kBoxLetters = 16;

// A mean rate of 0 or more, of what the link can carry: 3 levels, and none if that is not known.
const loadColour = (rate, capacity) => rate === null || !capacity ? "var(--soft)" : rate / capacity > .9 ? "var(--bad)" : rate / capacity > .5 ? "var(--warn)" : "var(--good)";
const megabits = (bytes) => bytes === null ? "?" : nice(bytes * 8 / 1e6);
const shortened = (text) => text.length <= kBoxLetters ? text : `${text.slice(0, kBoxLetters - 7)}…${text.slice(-6)}`;

// Both directions between two nodes, with all that crosses: [{from, to, there, back}], each {rate, capacity, what}.
function pairsOf(edges) {
  const pairs = new Map();
  for (const [from, to, what, rate, capacity] of edges) {
    const key = `${Math.min(from, to)} ${Math.max(from, to)}`;
    if (!pairs.has(key)) pairs.set(key, { from: Math.min(from, to), to: Math.max(from, to), there: null, back: null });
    const pair = pairs.get(key), side = from < to ? "there" : "back";
    pair[side] ??= { rate: null, capacity, what: [] };
    if (rate !== null) pair[side].rate = (pair[side].rate ?? 0) + rate;
    pair[side].what.push(what);
  }
  return [...pairs.values()];
}

// Each replica's pipeline runs to the right and, where that is too long, back in the next line.
function drawMap(figure, pairs, box) {
  const width = box.clientWidth, across = Math.max(1, Math.floor((width - kBoxWidth - 16) / (kBoxWidth + kGap)) + 1);
  const cells = [];
  let line = -1, replica = null, inReplica = 0;
  figure.nodes.forEach((node) => {
    if (node[2] !== replica) { replica = node[2]; inReplica = 0; }
    if (inReplica % across === 0) ++line;
    const column = inReplica % across, backwards = Math.floor(inReplica / across) % 2 === 1;
    cells.push({ column: backwards ? across - 1 - column : column, line });
    ++inReplica;
  });
  const height = (line + 1) * (kBoxHeight + kRowGap) - kRowGap + 16;
  const x = (cell) => 8 + cell.column * (kBoxWidth + kGap), y = (cell) => 8 + cell.line * (kBoxHeight + kRowGap);
  box.textContent = "";
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": `${figure.nodes.length} boxes and ${pairs.length} links between them; the table has them all` }, box);
  const label = (left, top, anchor, arrow, way) => way && element("text", { x: left, y: top, "text-anchor": anchor }, svg, `${arrow} ${megabits(way.rate)}/${megabits(way.capacity)}`);
  for (const { from, to, there, back } of pairs) {
    const a = cells[from], b = cells[to], beside = a.line === b.line && Math.abs(a.column - b.column) === 1;
    const below = a.column === b.column && Math.abs(a.line - b.line) === 1, [left, right] = x(a) < x(b) ? [a, b] : [b, a];
    const busier = (there?.rate ?? -1) / (there?.capacity || 1) >= (back?.rate ?? -1) / (back?.capacity || 1) ? there : back;
    const line = { fill: "none", stroke: loadColour(busier.rate, busier.capacity), "stroke-width": 2 };
    const middleX = (cell) => x(cell) + kBoxWidth / 2, middleY = (cell) => y(cell) + kBoxHeight / 2;
    if (beside) {
      element("path", { ...line, d: `M${x(left) + kBoxWidth} ${middleY(a)}H${x(right)}` }, svg);
      const forth = left === a ? there : back, returns = left === a ? back : there, at = x(left) + kBoxWidth + kGap / 2;
      label(at, middleY(a) - 6, "middle", "→", forth);
      label(at, middleY(a) + 15, "middle", "←", returns);
    } else if (below) {
      element("path", { ...line, d: `M${middleX(a)} ${y(a) + kBoxHeight}V${y(b)}` }, svg);
      const rightmost = a.column > 0 && a.column === across - 1, [by, anchor] = rightmost ? [-6, "end"] : [6, "start"];
      label(middleX(a) + by, y(a) + kBoxHeight + kRowGap / 2 - 4, anchor, "↓", there);
      label(middleX(a) + by, y(a) + kBoxHeight + kRowGap / 2 + 12, anchor, "↑", back);
    } else {
      const bend = Math.min(72, 24 + 8 * Math.abs(a.line - b.line));
      element("path", { ...line, "stroke-width": 1, opacity: .45, d: `M${middleX(a)} ${middleY(a)}C${middleX(a) + bend} ${middleY(a) + bend} ${middleX(b) + bend} ${middleY(b) - bend} ${middleX(b)} ${middleY(b)}` }, svg);
    }
  }
  figure.nodes.forEach(([name, content], i) => {
    const rect = element("rect", { x: x(cells[i]), y: y(cells[i]), width: kBoxWidth, height: kBoxHeight, rx: 5, fill: "var(--back)", stroke: "var(--soft)" }, svg);
    element("title", {}, rect, `${name}: ${content}`);
    const text = (line, value, more) => element("text", { x: x(cells[i]) + kBoxWidth / 2, y: y(cells[i]) + line, "text-anchor": "middle", ...more }, svg, shortened(value));
    text(17, name, { class: "name" });
    text(33, content, {});
  });
}

function mapFigure(figure, parent) {
  parent.className = "wide";
  const box = element("div", {}, parent), pairs = pairsOf(figure.edges);
  element("figcaption", {}, parent, "Between boxes: mean rate/capacity in Mbit/s (?: not known). Green: up to half of it, red: above 90 %. Links without figures are in the table.");
  redraws.push(() => drawMap(figure, pairs, box));
  foldedTable(parent, ["from", "to", "carries", "mean Mbit/s", "capacity", "share"], () => figure.edges.map(([from, to, what, rate, capacity]) =>
    [figure.nodes[from][0], figure.nodes[to][0], what, megabits(rate), megabits(capacity), rate !== null && capacity ? `${Math.round(rate / capacity * 100)} %` : null]));
}

const kLanes = ["compute", "encode", "send", "link", "receive", "decode", "sync"], kLaneHeight = 14;
const kSpanColours = { forward: "#3b82f6", backward: "#8b5cf6", "weight gradient": "#a78bfa", update: "#0d9488", wait: "#a1a1aa",
  activation: "#f59e0b", gradient: "#ef4444", note: "#84cc16", round: "#ec4899", evaluating: "#06b6d4" };

function timelineFigure(figure, parent) {
  parent.className = "wide";
  const longest = Math.max(figure.measured.seconds, figure.predicted.seconds) * 1e6 || 1;
  const view = { from: 0, to: longest }, parts = [], grid = ticks(0, longest, 8).slice(1);
  const form = element("form", { "aria-label": "time shown" }, parent);
  form.onsubmit = (event) => event.preventDefault();
  const caption = element("figcaption", {}, null);
  function show(from, to) {
    const span = Math.min(longest, Math.max(longest / 5000, to - from));
    view.from = Math.min(longest - span, Math.max(0, from)); view.to = view.from + span;
    for (const { svg, height } of parts) svg.setAttribute("viewBox", `${view.from} 0 ${span} ${height}`);
    range.textContent = `${clock(view.from / 1e6)} to ${clock(view.to / 1e6)} of the step; a line every ${clock(grid[0] / 1e6)}`;
  }
  const zoom = (factor, at = .5) => {
    const span = view.to - view.from, middle = view.from + at * span;
    show(middle - at * span * factor, middle + (1 - at) * span * factor);
  };
  const move = (share) => show(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));
  for (const [text, label, act] of [["+", "zoom in", () => zoom(.5)], ["−", "zoom out", () => zoom(2)], ["←", "earlier", () => move(-.5)],
    ["→", "later", () => move(.5)], ["whole step", "whole step", () => show(0, longest)]])
    element("button", { type: "button", "aria-label": label }, form, text).onclick = act;
  const range = element("span", { class: "note", "aria-live": "polite" }, form);
  const names = element("div", { class: "names" }, parent);
  for (const name of Object.keys(kSpanColours)) {
    if (![figure.measured, figure.predicted].some((t) => t.names.includes(name))) continue;
    const entry = element("span", {}, names);
    element("i", { style: `background:${kSpanColours[name]}` }, entry);
    entry.append(name);
  }
  for (const [title, timeline] of [["Measured", figure.measured], ["Predicted by the plan", figure.predicted]]) {
    if (!timeline.rows.length) {
      if (title === "Measured") element("p", { class: "note" }, parent, "Measured: no step yet that all processes have recorded; it comes at a checkpoint or at the end.");
      continue;
    }
    const of = timeline.step ? `step ${timeline.step}, ` : "";
    element("h3", {}, parent, `${title}: ${of}${clock(timeline.seconds)}` + (timeline.left_out ? `; ${timeline.left_out} short spans are left out` : ""));
    const lanes = element("div", { class: "lanes", tabindex: 0 }, parent), labels = element("div", { class: "labels" }, lanes);
    const drawn = timeline.rows.flatMap((row) => kLanes.filter((lane) => row.lanes[lane]).map((lane, i) => ({ row, lane, first: i === 0 })));
    const height = drawn.length * kLaneHeight;
    const svg = element("svg", { preserveAspectRatio: "none", height, role: "img",
      "aria-label": `${title}, a row per process and lane; the table has the sums` }, lanes);
    parts.push({ svg, height });
    for (const t of grid) element("path", { d: `M${t} 0V${height}`, stroke: "currentColor", opacity: .12, "vector-effect": "non-scaling-stroke" }, svg);
    drawn.forEach(({ row, lane, first }, i) => {
      element("div", { style: `height:${kLaneHeight}px;line-height:${kLaneHeight}px` }, labels, `${first ? row.process.replace("stage ", "") + " " : ""}${lane}`);
      if (first) element("path", { d: `M0 ${i * kLaneHeight}H${longest}`, stroke: "var(--rule)", "vector-effect": "non-scaling-stroke" }, svg);
      for (const [start, duration, name, microBatch] of row.lanes[lane]) {
        const what = timeline.names[name];
        const rect = element("rect", { x: start, y: i * kLaneHeight + 1, width: duration, height: kLaneHeight - 2,
          fill: kSpanColours[what] ?? "#71717a", opacity: what === "wait" ? .35 : .9, "vector-effect": "non-scaling-stroke",
          stroke: kSpanColours[what] ?? "#71717a", "stroke-width": .8 }, svg);
        rect.dataset.text = `${row.process}, ${lane}: ${what}${microBatch < 0 ? "" : ` of micro-batch ${microBatch}`}, ${clock(duration / 1e6)} from ${clock(start / 1e6)} on`;
      }
    });
    svg.onmousemove = (event) => { caption.textContent = event.target.dataset.text ?? ""; };
    svg.onwheel = (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const box = svg.getBoundingClientRect();
      zoom(event.deltaY + event.deltaX > 0 ? 1.25 : .8, (event.clientX - box.left) / box.width);
    };
    svg.onpointerdown = (event) => {
      const start = event.clientX, from = view.from, span = view.to - view.from, width = svg.getBoundingClientRect().width;
      svg.setPointerCapture(event.pointerId);
      svg.onpointermove = (now) => { const by = (start - now.clientX) / width * span; show(from + by, from + by + span); };
      svg.onpointerup = () => { svg.onpointermove = null; };
    };
  }
  parent.append(caption);
  element("p", { class: "note" }, parent, "Drag to move; Ctrl or Shift with the wheel, or the buttons, to zoom.");
  const sums = (timeline, row, lane) => clock((row.lanes[lane] ?? []).filter((s) => timeline.names[s[2]] !== "wait").reduce((sum, s) => sum + s[1], 0) / 1e6);
  foldedTable(parent, ["", ...kLanes], () => [["measured", figure.measured], ["predicted", figure.predicted]].flatMap(([title, timeline]) =>
    timeline.rows.map((row) => [`${title} ${row.process}`, ...kLanes.map((lane) => row.lanes[lane] ? sums(timeline, row, lane) : null)])));
  show(0, longest);
}

function controlsForm(parent) {
  const form = element("form", { "aria-label": "all charts" }, parent);
  form.onsubmit = (event) => event.preventDefault();
  const add = (text, control, read) => {
    const label = element("label", {}, form, text);
    label.append(control);
    control.addEventListener("input", () => { read(control); drawAll(); });
  };
  const axis = element("select", {});
  for (const name of ["step", "tokens", "seconds", "bytes"]) element("option", { value: name }, axis, name === "seconds" ? "time" : name);
  add("by", axis, (c) => { controls.axis = c.value; });
  add("smoothing", element("input", { type: "range", min: 0, max: 98, value: 0 }), (c) => { controls.smooth = +c.value; });
  add("logarithmic", element("input", { type: "checkbox" }), (c) => { controls.log = c.checked; });
}

const drawAll = () => redraws.forEach((draw) => draw());
const main = document.querySelector("main");
const isCurve = (figure) => figure.points || figure.curves || figure.values;
if (data.sections.some((s) => s.figures.some(isCurve))) controlsForm(main);
for (const { title, figures } of data.sections) {
  const section = element("section", {}, main);
  if (figures.length > 1 || figures[0].title !== title) element("h2", {}, section, title);
  const grid = element("div", { class: "figures" }, section);
  for (const figure of figures) {
    const one = element("figure", {}, grid);
    element(figures.length === 1 && figure.title === title ? "h2" : "h3", {}, one, figure.title + (figure.unit && !figure.bars ? ` (${figure.unit})` : ""));
    if (isCurve(figure)) curveFigure(figure, one);
    else if (figure.measured) timelineFigure(figure, one);
    else if (figure.bars) barsFigure(figure, one);
    else if (figure.nodes) mapFigure(figure, one);
    else { one.className = "wide"; table(figure.columns, figure.rows, one); }
  }
}
addEventListener("resize", drawAll);
drawAll();
