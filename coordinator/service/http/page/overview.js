// The overview: jobs, queue and nodes.

import { ago, badge, el, jobLink, mark, nodeLink, number, replace, runTime } from "./dom.js";
import { EventStream } from "./stream.js";

const ROWS = 100;
const REFRESH_MS = 5000;
const GROUPS = [["", "all"], ["active", "active"], ["waiting", "waiting"], ["failed,timed_out", "failed"], ["succeeded", "succeeded"]];

export function showOverview(view, setStatus) {
  const jobs = new JobList();
  const nodes = new NodeGrid();
  const queue = el("section", { "aria-labelledby": "queue-title" });
  replace(view, el("h1", {}, "Cluster"), el("div", { class: "columns" }, nodes.element, queue), jobs.element);
  showQueue(queue, { total: 0, jobs: [] });
  let stream;
  const connect = () => {
    stream?.close();
    stream = new EventStream(`/api/overview?${jobs.query()}`, {
      open: () => nodes.clear(),
      jobs: (data) => jobs.update(data),
      nodes: (data) => nodes.update(data),
      queue: (data) => showQueue(queue, data),
    }, setStatus);
  };
  jobs.onQuery = connect;
  connect();
  const timer = setInterval(() => jobs.refreshTimes(), REFRESH_MS);
  return {
    keys: {
      "/": () => jobs.search.focus(),
      n: () => jobs.turn(1),
      p: () => jobs.turn(-1),
      c: () => jobs.compare(),
    },
    close: () => { stream.close(); clearInterval(timer); },
  };
}

// ---- Jobs

class JobList {
  constructor() {
    this.rows = new Map();  // by id: {data, element}
    this.order = [];
    this.offset = 0;
    this.total = 0;
    this.states = "";
    this.selected = new Set();
    this.search = el("input", {
      id: "search", type: "search", placeholder: "id, name, owner, array, reason", "aria-label": "Search jobs",
      class: "grow", oninput: () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.change(), 200); },
    });
    this.filters = GROUPS.map(([states, label]) => el("button", {
      type: "button", "aria-pressed": String(states === ""), onclick: () => this.filter(states),
    }, label));
    this.count = el("span", { class: "muted", role: "status" });
    this.previous = el("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.next = el("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.compareButton = el("button", { type: "button", disabled: true, onclick: () => this.compare() }, "Compare");
    this.body = el("tbody");
    this.summary = el("p", { class: "bar" });
    this.element = el("section", { "aria-labelledby": "jobs-title" },
      el("h2", { id: "jobs-title" }, "Jobs"), this.summary,
      el("div", { class: "bar" }, this.search, this.filters),
      el("table", { class: "cards" },
        el("thead", {}, el("tr", {}, ["", "Job", "State", "Progress", "Run time", "Submitted", "Note"].map(
          (title) => el("th", { scope: "col" }, title || el("span", { class: "muted" }, "✓"))))),
        this.body),
      el("div", { class: "bar" }, this.previous, this.next, this.count, this.compareButton));
  }

  query() {
    return new URLSearchParams({ search: this.search.value.trim(), states: this.states, offset: this.offset, limit: ROWS });
  }

  change() {
    this.offset = 0;
    this.onQuery();
  }

  filter(states) {
    this.states = states;
    this.filters.forEach((button, index) => button.setAttribute("aria-pressed", String(GROUPS[index][0] === states)));
    this.change();
  }

  turn(pages) {
    const offset = this.offset + pages * ROWS;
    if (offset < 0 || offset >= this.total) return;
    this.offset = offset;
    this.onQuery();
  }

  compare() {
    if (this.selected.size > 1) location.hash = `#/compare/${encodeURIComponent([...this.selected].join(","))}`;
  }

  update(data) {
    this.total = data.total;
    for (const job of data.rows) this.put(job);
    if (data.order) {
      this.order = data.order;
      const shown = new Set(this.order);
      for (const id of this.rows.keys()) if (!shown.has(id)) this.rows.delete(id);
      this.body.replaceChildren(...this.order.map((id) => this.rows.get(id).element));
    }
    if (this.order.length === 0) {
      const empty = this.search.value || this.states ? "No such jobs." : "No jobs yet. Submit one: muster submit job.yaml";
      replace(this.body, el("tr", {}, el("td", { colspan: "7" }, empty)));
    }
    const last = Math.min(this.offset + this.order.length, this.total);
    this.count.textContent = this.total ? `${this.offset + 1}–${last} of ${number(this.total)}` : "";
    this.previous.disabled = this.offset === 0;
    this.next.disabled = last >= this.total;
    replace(this.summary, Object.entries(data.states).map(([state, count]) => el("span", {}, badge(state), " ", number(count))));
  }

  put(job) {
    const row = this.rows.get(job.id) ?? { element: el("tr") };
    row.data = job;
    this.rows.set(job.id, row);
    this.render(row);
  }

  render({ data: job, element }) {
    const select = el("input", {
      type: "checkbox", "aria-label": `Select ${job.id}`, onchange: (event) => this.select(job.id, event.target.checked),
    });
    select.checked = this.selected.has(job.id);
    // The focus stays where it is when the row changes.
    const focused = element.contains(document.activeElement) ? document.activeElement.tagName : "";
    replace(element,
      el("td", { class: "select" }, select),
      el("td", { class: "wide", "data-label": "Job" }, jobLink(job.id),
        el("div", { class: "muted" }, [job.owner, job.array ? `array ${job.array}` : "", `${job.world ?? 1} ranks`].filter(Boolean).join(" · "))),
      el("td", { class: "fixed", "data-label": "State" }, badge(job.state)),
      el("td", { class: "wide", "data-label": "Progress" }, progress(job)),
      el("td", { class: "fixed", "data-label": "Run time" }, runTime(job)),
      el("td", { class: "fixed", "data-label": "Submitted" }, ago(job.submitted)),
      el("td", { class: "wide", "data-label": "Note" }, job.note ?? job.reason ?? ""));
    if (focused) element.querySelector(focused.toLowerCase())?.focus();
  }

  select(id, on) {
    if (on) this.selected.add(id); else this.selected.delete(id);
    this.compareButton.disabled = this.selected.size < 2;
    this.compareButton.textContent = this.selected.size ? `Compare ${this.selected.size}` : "Compare";
  }

  refreshTimes() {
    for (const { data: job, element } of this.rows.values()) {
      if (element.children.length < 6) continue;
      element.children[4].textContent = runTime(job);
      element.children[5].textContent = ago(job.submitted);
    }
  }
}

function progress(job) {
  const parts = [];
  if (job.steps) {
    const bar = el("progress", { max: job.steps, value: job.step ?? 0, "aria-label": "steps" });
    parts.push(bar, ` ${number(job.step ?? 0)}/${number(job.steps)} `);
  } else if (job.step) {
    parts.push(`step ${number(job.step)} `);
  }
  const values = [["loss", job.loss], ["accuracy", job.accuracy], ["images/s", job.rate]]
    .filter(([, value]) => value).map(([name, value]) => `${name} ${number(value)}`);
  if (job.position) values.push(`position ${job.position}`);
  if (job.slowdown > 1.1) values.push(`slowest rank ×${number(job.slowdown, 3)}`);
  return [...parts, el("div", { class: "muted" }, values.join(" · "))];
}

// ---- Queue

function showQueue(section, queue) {
  replace(section, el("h2", { id: "queue-title" }, `Queue (${number(queue.total)})`),
    queue.jobs.length === 0 ? el("p", { class: "muted" }, "No job waits.") : el("ol", {}, queue.jobs.map(queued)));
}

function queued(job) {
  const blockers = job.blockers ?? [];
  const more = (job.blocker_count ?? 0) - blockers.length;
  return el("li", {}, jobLink(job.id), el("span", { class: "muted" }, ` ${[job.owner, job.class].filter(Boolean).join(", ")}`),
    el("div", {}, job.waits_for ?? "", job.estimate ? `, starts in about ${ago(2 * Date.now() / 1000 - job.estimate).replace(" ago", "")}` : ""),
    job.reserved?.length ? el("div", { class: "muted" }, `reserved: ${job.reserved.slice(0, 8).join(", ")}`) : "",
    blockers.length ? el("ul", {}, blockers.map((one) => el("li", {}, one.node ? nodeLink(one.node) : "", one.node ? ": " : "", one.reason,
      one.remedy ? el("div", { class: "mono" }, one.remedy) : "")),
    more > 0 ? el("li", { class: "muted" }, `and ${more} more`) : "") : "");
}

// ---- Nodes

// The worst of what applies: [tone, text].
function condition(node) {
  if (node.s === "lost") return ["bad", "lost"];
  if (node.x) return ["bad", "conflict"];
  if (node.s === "suspect") return ["warn", "suspect"];
  if (node.d?.includes("!")) return ["bad", "device fault"];
  if (node.c) return ["warn", "cordoned"];
  if (node.l) return ["warn", "leaving"];
  if (node.f) return ["warn", "launch failed"];
  return node.d?.includes("#") ? ["info", "busy"] : ["ok", "free"];
}

class NodeGrid {
  constructor() {
    this.tiles = new Map();  // by name: {data, element}
    this.show = el("select", { "aria-label": "Nodes to show", onchange: () => this.arrange() },
      [["all", "all nodes"], ["problem", "with problems"], ["free", "with free slots"]].map(([value, text]) => el("option", { value }, text)));
    this.summary = el("p", { class: "bar", role: "status" });
    this.grid = el("div", { class: "grid", role: "group", "aria-label": "Nodes", onkeydown: (event) => this.move(event) });
    this.element = el("section", { "aria-labelledby": "nodes-title" }, el("h2", { id: "nodes-title" }, "Nodes"), this.summary,
      el("div", { class: "bar" }, this.show, el("span", { class: "muted" }, "slots: # busy · free ! unusable ~ returning")), this.grid);
    this.summarize();
  }

  clear() {
    this.tiles.clear();
    this.grid.replaceChildren();
  }

  update({ rows, gone }) {
    let added = gone.length > 0;
    for (const name of gone) this.tiles.delete(name);
    for (const node of rows) {
      const known = this.tiles.get(node.n);
      added ||= !known;
      const tile = known ?? { element: el("a", { href: `#/node/${encodeURIComponent(node.n)}`, tabindex: "-1" }) };
      tile.data = node;
      this.tiles.set(node.n, tile);
      this.render(tile);
    }
    this.summarize();
    if (added || this.show.value !== "all") this.arrange();
  }

  render({ data: node, element }) {
    const [tone, text] = condition(node);
    const slots = node.d ?? "";
    element.className = `tile t-${tone}`;
    element.title = `${node.n}: ${text}, ${[...slots].filter((one) => one === "#").length} of ${slots.length} slots busy`;
    replace(element, el("b", {}, node.n), el("span", {}, slots.replaceAll(".", "·").slice(0, 16)), el("span", { class: tone }, text));
  }

  arrange() {
    const wanted = (node) => this.show.value === "all" ||
      (this.show.value === "free" ? condition(node)[1] !== "lost" && node.d?.includes(".") : ["bad", "warn"].includes(condition(node)[0]));
    const shown = [...this.tiles.values()].filter(({ data }) => wanted(data))
      .sort((a, b) => a.data.n.localeCompare(b.data.n, "en", { numeric: true }));
    this.grid.replaceChildren(...shown.map(({ element }) => element));
    // The grid is one stop of the Tab key; the arrow keys move inside.
    if (!this.grid.querySelector("[tabindex='0']")) this.grid.firstChild?.setAttribute("tabindex", "0");
  }

  move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.perRow(), ArrowUp: -this.perRow() }[event.key];
    const tiles = [...this.grid.children];
    const target = tiles[tiles.indexOf(document.activeElement) + step];
    if (!step || !target) return;
    event.preventDefault();
    document.activeElement.setAttribute("tabindex", "-1");
    target.setAttribute("tabindex", "0");
    target.focus();
  }

  perRow() {
    return getComputedStyle(this.grid).gridTemplateColumns.split(" ").length;
  }

  summarize() {
    const counts = new Map();
    let slots = 0;
    let busy = 0;
    for (const { data } of this.tiles.values()) {
      const [tone, text] = condition(data);
      const key = `${tone} ${text}`;
      counts.set(key, (counts.get(key) ?? 0) + 1);
      for (const slot of data.d ?? "") { ++slots; busy += slot === "#"; }
    }
    const shapes = { ok: "check", info: "play", warn: "alert", bad: "cross" };
    replace(this.summary, this.tiles.size ? `${number(this.tiles.size)} nodes, ${number(busy)} of ${number(slots)} slots busy` : "No worker has connected yet.",
      [...counts].map(([key, count]) => { const [tone, ...words] = key.split(" "); return mark(tone, shapes[tone], `${number(count)} ${words.join(" ")}`); }));
  }
}
