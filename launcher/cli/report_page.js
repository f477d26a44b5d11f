// Draws the charts of a report: each figure has [step, lowest, highest] of each run of steps in its
// data-points.
const kHeight = 240, kLeft = 58, kRight = 12, kTop = 12, kBottom = 24;
const smooth = document.getElementById("smooth"), log = document.getElementById("log");

function nice(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1).replace("e+", "e");
  return String(+value.toPrecision(3));
}

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const list = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) list.push(t);
  return list;
}

function element(name, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
}

function draw(figure) {
  const points = JSON.parse(figure.dataset.points);
  const logarithmic = log.checked && points.every((p) => p[1] > 0);
  const scale = logarithmic ? Math.log10 : (v) => v;
  const width = figure.clientWidth, keep = smooth.value / 100;
  const values = points.flatMap((p) => [scale(p[1]), scale(p[2])]);
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  if (low === high) { low -= Math.abs(low) / 2 || 1; high += Math.abs(high) / 2 || 1; }
  const first = points[0][0], last = Math.max(points[points.length - 1][0], first + 1);
  const x = (step) => kLeft + (step - first) / (last - first) * (width - kLeft - kRight);
  const y = (v) => kTop + (high - v) / (high - low) * (kHeight - kTop - kBottom);
  figure.querySelector("svg")?.remove();
  const svg = element("svg", { viewBox: `0 0 ${width} ${kHeight}`, height: kHeight, role: "img",
    "aria-label": figure.dataset.title }, figure);
  figure.prepend(svg);
  for (const t of ticks(low, high, 5)) {
    element("path", { d: `M${kLeft} ${y(t)}H${width - kRight}`, stroke: "currentColor", opacity: .15 }, svg);
    element("text", { x: kLeft - 6, y: y(t) + 4, "text-anchor": "end" }, svg, nice(logarithmic ? 10 ** t : t));
  }
  for (const t of ticks(first, last, Math.max(2, width / 120)))
    element("text", { x: x(t), y: kHeight - 7, "text-anchor": x(t) > width - 40 ? "end" : "middle" }, svg, nice(t));
  const path = (list) => list.map(([s, v], i) => `${i ? "L" : "M"}${x(s).toFixed(1)} ${y(v).toFixed(1)}`).join("");
  const raw = points.flatMap((p) => [[p[0], scale(p[1])], [p[0], scale(p[2])]]);
  let mean = (raw[0][1] + raw[1][1]) / 2;
  const soft = points.map((p) => {
    mean = keep * mean + (1 - keep) * (scale(p[1]) + scale(p[2])) / 2;
    return [p[0], mean];
  });
  const line = { fill: "none", stroke: "var(--line)", "stroke-width": 1.5 };
  element("path", { ...line, d: path(raw), opacity: keep ? .3 : 1 }, svg);
  if (keep) element("path", { ...line, d: path(soft) }, svg);
  const mark = element("path", { stroke: "currentColor", opacity: .4 }, svg);
  const caption = figure.querySelector("figcaption");
  caption.dataset.all ??= caption.textContent;
  svg.onmousemove = (event) => {
    const box = svg.getBoundingClientRect();
    const at = first + ((event.clientX - box.left) - kLeft) / (width - kLeft - kRight) * (last - first);
    const near = points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
    mark.setAttribute("d", `M${x(near[0])} ${kTop}V${kHeight - kBottom}`);
    const range = near[1] === near[2] ? nice(near[1]) : `${nice(near[1])} to ${nice(near[2])}`;
    caption.textContent = `step ${near[0]}: ${range}`;
  };
  svg.onmouseleave = () => { mark.removeAttribute("d"); caption.textContent = caption.dataset.all; };
}

const drawAll = () => document.querySelectorAll("figure").forEach(draw);
for (const event of ["input", "change"]) { smooth.addEventListener(event, drawAll); log.addEventListener(event, drawAll); }
addEventListener("resize", drawAll);
drawAll();
