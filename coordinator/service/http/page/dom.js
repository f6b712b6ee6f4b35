// Elements, icons and texts that all views use. Text is only ever set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

// el("td", {class: "wide", "data-label": "Job"}, child, "text", …); on… attributes are listeners.
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== ""));
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== undefined && child !== null && child !== ""));
}

// An icon has another shape for each meaning, so that colour is not the only signal.
const SHAPES = {
  play: "M3 1l11 7-11 7z",
  check: "M1 8l5 6L15 2",
  cross: "M2 2l12 12M14 2L2 14",
  clock: "M8 1a7 7 0 1 0 0 14A7 7 0 1 0 8 1M8 4v4l3 2",
  pause: "M4 2v12M12 2v12",
  square: "M2 2h12v12H2z",
  bar: "M2 8h12",
  alert: "M8 1l7 14H1zM8 6v4M8 12v1",
};

export function icon(shape) {
  const filled = shape === "play";
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" },
    svg("path", { d: SHAPES[shape], fill: filled ? "currentColor" : "none", stroke: "currentColor", "stroke-width": "2" }));
}

const STATES = {
  queued: ["idle", "clock"], held: ["idle", "pause"], starting: ["info", "clock"], running: ["info", "play"],
  stopping: ["warn", "square"], succeeded: ["ok", "check"], failed: ["bad", "cross"], cancelled: ["idle", "bar"],
  timed_out: ["bad", "clock"], ready: ["ok", "check"], suspect: ["warn", "alert"], lost: ["bad", "cross"],
};

// The state of a job or node.
export function badge(state = "") {
  const [tone, shape] = STATES[state] ?? ["idle", "bar"];
  return el("span", { class: `state ${tone}` }, icon(shape), state.replace("_", " "));
}

export function mark(tone, shape, text) {
  return el("span", { class: `mark ${tone}` }, icon(shape), text);
}

// Terms and values; leaves out values that are empty.
export function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [term, value] of pairs) {
    if (value === undefined || value === null || value === "") continue;
    list.append(el("dt", {}, term), el("dd", {}, value));
  }
  return list;
}

export function jobLink(id) {
  return el("a", { href: `#/job/${encodeURIComponent(id)}` }, id);
}

export function nodeLink(name) {
  return el("a", { href: `#/node/${encodeURIComponent(name)}` }, name);
}

// ---- Numbers

export function duration(seconds) {
  if (!(seconds >= 1)) return seconds > 0 ? `${seconds.toPrecision(2)} s` : "0 s";
  const s = Math.floor(seconds);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d`;
}

export function ago(time) {
  return time ? `${duration(Date.now() / 1000 - time)} ago` : "";
}

export function number(value, digits = 4) {
  if (value === undefined || value === null) return "";
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumSignificantDigits: digits });
}

export function bytes(value) {
  if (!value) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; ++unit; }
  return `${number(value, 3)} ${units[unit]}`;
}

export function percent(ratio) {
  return ratio === undefined ? "" : `${(100 * ratio).toFixed(1)} %`;
}

export function clock(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

// How long a job has run, until it ended or until now.
export function runTime(job) {
  return job.started ? duration((job.finished ?? Date.now() / 1000) - job.started) : "";
}
