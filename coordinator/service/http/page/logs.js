// The log of a rank, following.

import { el, replace } from "./dom.js";
import { EventStream } from "./stream.js";

const LONGEST = 400_000;  // characters kept

export class LogPanel {
  constructor(id) {
    this.id = id;
    this.rank = el("input", { type: "number", min: "0", value: "0", id: "log-rank", onchange: () => this.open() });
    this.source = el("select", { id: "log-stream", onchange: () => this.open() }, el("option", { value: "stderr" }, "stderr"), el("option", { value: "stdout" }, "stdout"));
    this.follow = el("input", { type: "checkbox", id: "log-follow", checked: true });
    this.state = el("span", { class: "muted", role: "status" });
    this.text = el("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "Log", "aria-live": "off" });
    this.toggle = el("button", { type: "button", onclick: () => (this.stream ? this.close() : this.open()) }, "Show");
    this.body = el("div", { hidden: true }, this.text);
    this.element = el("section", {}, el("h2", {}, "Logs"), el("div", { class: "bar" },
      el("label", { for: "log-rank" }, "Rank"), this.rank, el("label", { for: "log-stream" }, "of"), this.source,
      el("label", {}, this.follow, " follow"), this.toggle, this.state), this.body);
  }

  focus() {
    if (!this.stream) this.open();
    if (!this.body.hidden) this.text.focus();
  }

  // A new generation has a log of its own.
  setJob(job, ranks) {
    if (this.generation === undefined && job.output === "joined") this.source.value = "stdout";
    this.rank.max = Math.max(0, ranks - 1);
    const restarted = this.generation !== undefined && job.generation > this.generation;
    this.generation = job.generation;
    if (restarted && this.stream) this.open();
  }

  open() {
    this.close();
    this.body.hidden = false;
    this.toggle.textContent = "Stop";
    const query = new URLSearchParams({ job: this.id, rank: this.rank.value || "0", stream: this.source.value });
    const stream = new EventStream(`/api/log?${query}`, {
      open: () => replace(this.text),
      log: (chunk) => this.append(chunk),
      end: () => { this.state.textContent = "complete"; stream.close(); this.stream = null; this.toggle.textContent = "Show"; },
      problem: ({ message }) => { this.state.textContent = message; stream.close(); this.stream = null; this.toggle.textContent = "Show"; },
    }, (state, text) => { this.state.textContent = state === "live" ? "following" : text; });
    this.stream = stream;
  }

  append({ text = "", notice = "" }) {
    if (notice) this.text.append(el("span", { class: "notice" }, `${notice}\n`));
    this.text.append(text);
    while (this.text.textContent.length > LONGEST && this.text.childNodes.length > 1) this.text.firstChild.remove();
    if (this.follow.checked) this.text.scrollTop = this.text.scrollHeight;
  }

  close() {
    this.stream?.close();
    this.stream = null;
    this.toggle.textContent = "Show";
    this.state.textContent = "";
  }
}
