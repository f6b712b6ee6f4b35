// One job: state, curves, ranks, events, logs.

import { Chart } from "./chart.js";
import { ago, badge, bytes, clock, duration, el, facts, mark, nodeLink, number, percent, replace, runTime } from "./dom.js";
import { LogPanel } from "./logs.js";
import { EventStream, applyDelta } from "./stream.js";

export function showJob(view, id, setStatus) {
  const page = new JobPage(id);
  replace(view, page.element);
  const stream = new EventStream(`/api/job?${new URLSearchParams({ id })}`, {
    open: () => { page.points.length = 0; page.eventList.length = 0; },
    job: ({ job, ranks }) => page.setJob(job, ranks),
    curves: (delta) => { applyDelta(page.points, delta); page.drawCurves(); },
    events: (delta) => { applyDelta(page.eventList, delta); page.showEvents(); },
    environment: (data) => page.showEnvironment(data),
    spec: (data) => page.showSpec(data),
    problem: ({ message }) => page.showProblem(message),
  }, setStatus);
  return { title: id, keys: { l: () => page.logs.focus() }, close: () => { stream.close(); page.close(); } };
}

function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), ...children);
}

class JobPage {
  constructor(id) {
    this.points = [];  // [step, seconds, loss, training accuracy, test accuracy, images/s]
    this.eventList = [];
    this.heading = el("h1", {}, id);
    this.alert = el("div", { role: "status" });
    this.facts = el("div");
    this.goodput = el("section", { hidden: true });
    this.ranks = el("section");
    this.events = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Events" });
    this.environment = el("section", { hidden: true });
    this.spec = el("section", { hidden: true });
    this.charts = { loss: new Chart("Loss", "step"), accuracy: new Chart("Accuracy", "step"), rate: new Chart("Images per second", "step") };
    this.logs = new LogPanel(id);
    this.element = el("div", {}, this.heading, this.alert,
      el("div", { class: "columns" }, section("Loss", this.charts.loss.element),
        section("Accuracy", this.charts.accuracy.element), section("Images per second", this.charts.rate.element)),
      this.goodput, el("div", { class: "columns" }, section("State", this.facts), this.ranks), this.logs.element,
      el("div", { class: "columns" }, section("Events", this.events), this.environment, this.spec));
  }

  close() {
    this.logs.close();
    for (const chart of Object.values(this.charts)) chart.close();
  }

  showProblem(message) {
    replace(this.alert, el("p", { class: "bad" }, message));
  }

  setJob(job, ranks) {
    replace(this.heading, job.id, " ", badge(job.state));
    replace(this.alert, alerts(job));
    replace(this.facts, facts([
      ["Name", job.name], ["Owner", job.owner], ["Reason", job.reason], ["Message", job.message],
      ["Array", job.array ? el("a", { href: `#/array/${encodeURIComponent(job.array)}` }, job.array) : ""],
      ...(job.values ?? []).map(({ field, value }) => [field, value]),
      ["Phase", job.phase], ["Step", job.steps ? `${number(job.step ?? 0)} of ${number(job.steps)}` : number(job.step)],
      ["Epoch", number(job.epoch)], ["Loss", number(job.loss, 5)], ["Test accuracy", number(job.accuracy)],
      ["Images/s", number(job.rate)], ["Time left", job.time_left ? duration(job.time_left) : ""],
      ["Run time", runTime(job)], ["Submitted", ago(job.submitted)], ["Finished", ago(job.finished)],
      ["Ranks", number(job.world)], ["Generation", number(job.generation)], ["Restarts", number(job.restarts)],
      ["Preemptions", number(job.preemptions)], ["Queue position", number(job.position)],
      ["Exit code", job.finished ? String(job.exit_code) : ""], ["Checkpoint", job.checkpoint],
      ...Object.entries(job.summary ?? {}).map(([term, value]) => [`Summary: ${term}`, typeof value === "number" ? number(value, 5) : value]),
    ]));
    this.showGoodput(job.goodput);
    this.showRanks(job, ranks);
    this.logs.setJob(job, ranks.total);
  }

  drawCurves() {
    const column = (index) => this.points.map((point) => [point[0], point[index] ?? NaN]);
    this.charts.loss.set([{ name: "loss", points: column(2) }]);
    this.charts.accuracy.set([{ name: "training", points: column(3) }, { name: "test", points: column(4) }]
      .filter(({ points }) => points.some(([, value]) => Number.isFinite(value))));
    this.charts.rate.set([{ name: "images/s", points: column(5) }]);
  }

  showGoodput(goodput) {
    this.goodput.hidden = !goodput;
    if (!goodput) return;
    const total = goodput.causes.reduce((sum, one) => sum + (one.seconds ?? 0), 0) || 1;
    const named = goodput.causes.filter((one) => one.seconds > 0).map((one) => ({
      tone: `cause-${one.cause}`, seconds: one.seconds,
      text: one.cause === "lost_to_node" ? `lost to ${one.node ?? "other nodes"}` : one.cause.replace("_", " "),
    }));
    const bar = el("div", { class: "goodput", role: "img", "aria-label": named.map(({ text, seconds }) => `${text} ${percent(seconds / total)}`).join(", ") },
      named.map(({ tone, seconds }) => { const part = el("div", { class: tone }); part.style.flexGrow = seconds; return part; }));
    replace(this.goodput, el("h2", {}, `Goodput ${percent(goodput.ratio ?? 0)}`), bar,
      el("ul", { class: "goodput-list" }, named.map(({ tone, text, seconds }) =>
        el("li", {}, el("span", { class: `swatch ${tone}` }), `${text}: ${duration(seconds)} (${percent(seconds / total)})`))));
  }

  showRanks(job, { total, slowest, ranks }) {
    const rows = ranks.map((rank) => el("tr", { class: rank.failed || rank.unkillable ? "bad" : "" },
      el("td", { class: "fixed", "data-label": "Rank" }, String(rank.rank)),
      el("td", { "data-label": "Node" }, rank.node ? nodeLink(rank.node) : "", rank.slots?.length ? ` slot ${rank.slots.join(", ")}` : ""),
      el("td", { "data-label": "State" }, rank.failed ? mark("bad", "cross", rank.exit) : rank.exit ? mark("ok", "check", rank.exit) : rank.state,
        rank.unkillable ? mark("bad", "alert", "unkillable") : ""),
      el("td", { "data-label": "Phase" }, rank.phase ?? ""),
      el("td", { class: "fixed", "data-label": "Step" }, number(rank.step)),
      el("td", { class: "fixed", "data-label": "Slowdown" }, rank.slowdown ? `×${number(rank.slowdown, 3)} ` : "",
        rank.rank === slowest ? mark("warn", "alert", "slowest") : ""),
      el("td", { class: "fixed", "data-label": "Memory" }, bytes(rank.memory))));
    const scrolled = this.ranks.querySelector(".scroll")?.scrollTop ?? 0;
    const table = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ranks" }, el("table", { class: "cards" },
      el("thead", {}, el("tr", {}, ["Rank", "Node", "State", "Phase", "Step", "Slowdown", "Memory"].map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, rows)));
    const focused = this.ranks.contains(document.activeElement);
    replace(this.ranks, el("h2", {}, `Ranks of generation ${job.generation ?? 0} (${number(total)})`),
      total > ranks.length ? el("p", { class: "muted" }, `The ${ranks.length} that failed, lag or are slow are shown.`) : "",
      total ? table : el("p", { class: "muted" }, "The job has not started."));
    table.scrollTop = scrolled;
    if (focused) table.focus();
  }

  showEvents() {
    const earlier = (this.eventList[0]?.sequence ?? 1) - 1;
    replace(this.events, earlier ? el("p", { class: "muted" }, `${number(earlier)} earlier events are not shown; see muster describe --events.`) : "",
      el("table", { class: "cards" }, el("tbody", {}, [...this.eventList].reverse().map((event) => el("tr", {},
        el("td", { class: "fixed muted" }, clock(event.time)), el("td", { class: "fixed" }, event.type), el("td", {}, event.message ?? ""))))));
  }

  showEnvironment({ coordinator, count, nodes }) {
    this.environment.hidden = !nodes?.length;
    replace(this.environment, el("h2", {}, "Environment"),
      facts([["Coordinator", coordinator], ["Nodes", number(count)]]),
      count > 16 ? el("p", { class: "muted" }, "The first 16 nodes are shown.") : "",
      el("table", { class: "cards" }, el("tbody", {}, (nodes ?? []).slice(0, 16).map((node) => el("tr", {},
        el("td", {}, node.node ? nodeLink(node.node) : ""), el("td", {}, [node.version ? `version ${node.version}` : "",
          node.cpus ? `${node.cpus} CPUs` : "", bytes(node.memory), node.devices, node.driver ? `driver ${node.driver}` : ""].filter(Boolean).join(", ")))))));
  }

  showSpec({ spec, private: complete }) {
    this.spec.hidden = false;
    replace(this.spec, el("h2", {}, "Spec"),
      complete ? "" : el("p", { class: "muted" }, "Sign in with the token of the job's owner to see its command and environment."),
      el("pre", { class: "scroll", tabindex: "0" }, JSON.stringify(spec, null, 2)));
  }
}

// Failure, waits and warnings.
function alerts(job) {
  const list = [];
  if (job.failure) {
    const place = [job.failure.rank === undefined ? "" : `rank ${job.failure.rank}`, job.failure.node ? `on ${job.failure.node}` : ""].filter(Boolean).join(" ");
    list.push(section("First failure", el("p", {}, mark("bad", "cross", `${job.failure.reason} in generation ${job.failure.generation ?? 0} ${place}`)),
      el("p", {}, job.failure.message ?? "")));
  }
  if (job.waits?.length) {
    list.push(section("Waits for", job.waits.map((wait) => el("div", {}, `${wait.what}, for ${duration(wait.since ?? 0)}`,
      el("ul", {}, wait.missing.slice(0, 12).map((one) => el("li", {}, one.rank === undefined ? "" : `rank ${one.rank} `, one.node ? nodeLink(one.node) : "",
        one.node ? ": " : "", one.reason ?? "", one.remedy ? el("div", { class: "mono" }, one.remedy) : "")),
      wait.missing.length > 12 ? el("li", { class: "muted" }, `and ${wait.missing.length - 12} more`) : "")))));
  }
  const notes = [job.unplaceable, job.hang, job.checkpoint_failures, ...(job.stragglers ?? []), ...(job.warnings ?? [])].filter(Boolean);
  if (notes.length) list.push(section("Warnings", el("ul", {}, notes.map((note) => el("li", {}, mark("warn", "alert", note))))));
  return list;
}
