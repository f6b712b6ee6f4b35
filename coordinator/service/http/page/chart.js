// A line chart in SVG: series over a common axis, with a readout at the pointer.

import { el, number, replace, svg } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 208;
const LEFT = 52;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 24;
const COLOURS = 6;
// Each series has another dash pattern as well as another colour.
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2"];

function ticks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}

export class Chart {
  // `label` names the values, `xLabel` the axis below.
  constructor(label, xLabel) {
    this.label = label;
    this.xLabel = xLabel;
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", preserveAspectRatio: "none" });
    this.legend = el("div", { class: "legend" });
    this.element = el("div", { class: "chart" }, this.picture, this.legend);
    this.series = [];
    this.picture.addEventListener("pointermove", (event) => this.showAt(event));
    this.picture.addEventListener("pointerleave", () => this.draw());
    this.size = new ResizeObserver(() => this.resize());
    this.size.observe(this.picture);
    this.width = WIDTH;
    this.height = HEIGHT;
  }

  close() { this.size.disconnect(); }

  resize() {
    const box = this.picture.getBoundingClientRect();
    if (box.width < 1) return;
    this.width = box.width;
    this.height = box.height;
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.draw();
  }

  // Series are {name, points: [[x, y], …]}; points without a finite y interrupt the line.
  set(series, xLabel = this.xLabel) {
    this.series = series;
    this.xLabel = xLabel;
    this.draw();
  }

  draw(cursor) {
    const all = this.series.flatMap((one) => one.points).filter(([, y]) => Number.isFinite(y));
    if (all.length === 0) {
      this.picture.setAttribute("aria-label", `${this.label}: no values yet`);
      replace(this.picture, svg("text", { x: LEFT, y: this.height / 2 }, "no values yet"));
      replace(this.legend);
      return;
    }
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const [x, y] of all) {
      x0 = Math.min(x0, x); x1 = Math.max(x1, x); y0 = Math.min(y0, y); y1 = Math.max(y1, y);
    }
    if (x0 === x1) x1 = x0 + 1;
    const margin = (y1 - y0) * 0.06 || Math.abs(y1) * 0.1 || 1;
    if (y0 < 0 || y0 - margin > 0) y0 -= margin; else y0 = 0;
    y1 += margin;
    this.toX = (x) => LEFT + ((x - x0) / (x1 - x0)) * (this.width - LEFT - RIGHT);
    this.toY = (y) => this.height - BOTTOM - ((y - y0) / (y1 - y0)) * (this.height - TOP - BOTTOM);
    this.fromX = (px) => x0 + ((px - LEFT) / (this.width - LEFT - RIGHT)) * (x1 - x0);
    replace(this.picture, this.axes(x0, x1, y0, y1), this.series.map((one, index) => this.line(one, index)),
      cursor === undefined ? "" : svg("path", { class: "cursor", d: `M${this.toX(cursor)} ${TOP}V${this.height - BOTTOM}` }));
    this.showLegend(cursor);
  }

  axes(x0, x1, y0, y1) {
    const bottom = this.height - BOTTOM;
    const parts = [svg("path", { class: "axis", d: `M${LEFT} ${TOP}V${bottom}H${this.width - RIGHT}` })];
    for (const y of ticks(y0, y1, 4)) {
      parts.push(svg("path", { class: "axis", d: `M${LEFT} ${this.toY(y)}H${this.width - RIGHT}` }),
        svg("text", { x: LEFT - 6, y: this.toY(y) + 4, "text-anchor": "end" }, number(y, 3)));
    }
    for (const x of ticks(x0, x1, Math.max(2, this.width / 120))) {
      parts.push(svg("text", { x: this.toX(x), y: this.height - 8, "text-anchor": "middle" }, number(x, 5)));
    }
    parts.push(svg("text", { x: this.width - RIGHT, y: this.height - BOTTOM - 6, "text-anchor": "end" }, this.xLabel));
    return svg("g", {}, parts);
  }

  line(series, index) {
    let path = "";
    let pen = "M";
    for (const [x, y] of series.points) {
      if (!Number.isFinite(y)) { pen = "M"; continue; }
      path += `${pen}${this.toX(x).toFixed(1)} ${this.toY(y).toFixed(1)}`;
      pen = "L";
    }
    // A single point is not visible as a line.
    if (series.points.length === 1) path += "h2";
    const line = svg("path", { class: "line", d: path, "stroke-dasharray": DASHES[index % DASHES.length] });
    line.style.stroke = `var(--c${(index % COLOURS) + 1})`;
    return line;
  }

  // The value of each series at the position, or its newest one.
  showLegend(cursor) {
    const texts = [];
    replace(this.legend, this.series.map((one, index) => {
      const points = one.points.filter(([, y]) => Number.isFinite(y));
      if (points.length === 0) return "";
      const at = cursor === undefined ? points[points.length - 1]
        : points.reduce((best, point) => (Math.abs(point[0] - cursor) < Math.abs(best[0] - cursor) ? point : best));
      const sample = svg("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" },
        svg("path", { class: "line", d: "M0 4H28", "stroke-dasharray": DASHES[index % DASHES.length] }));
      sample.firstChild.style.stroke = `var(--c${(index % COLOURS) + 1})`;
      const text = `${one.name} ${number(at[1], 5)} at ${this.xLabel} ${number(at[0], 6)}`;
      texts.push(text);
      return el("span", {}, sample, text);
    }));
    this.picture.setAttribute("aria-label", `${this.label}: ${texts.join("; ")}`);
  }

  showAt(event) {
    if (!this.fromX) return;
    const box = this.picture.getBoundingClientRect();
    this.draw(this.fromX(event.clientX - box.left));
  }
}
