// One node: health, slots and devices, and the jobs on it.

import { badge, bytes, duration, el, facts, jobLink, mark, number, replace } from "./dom.js";
import { EventStream } from "./stream.js";

export function showNode(view, name, setStatus) {
  const heading = el("h1", {}, name);
  const health = el("div");
  const slots = el("div");
  const problem = el("p", { class: "bad", role: "status" });
  replace(view, heading, problem, el("div", { class: "columns" },
    el("section", {}, el("h2", {}, "Health"), health), el("section", {}, el("h2", {}, "Slots"), slots)));
  const stream = new EventStream(`/api/node?${new URLSearchParams({ name })}`, {
    node: (node) => {
      problem.textContent = "";
      replace(heading, node.name, " ", badge(node.state));
      replace(health, problems(node), facts([
        ["Address", node.address], ["Metrics", node.metrics], ["Version", node.version], ["GPU driver", node.driver],
        ["CPUs", number(node.cpus)], ["Memory", bytes(node.memory)], ["Self-test", node.self_test],
      ]));
      replace(slots, slotTable(node.slots));
    },
    problem: ({ message }) => { problem.textContent = message; },
  }, setStatus);
  return { title: name, close: () => stream.close() };
}

function problems(node) {
  const texts = [];
  if (node.heartbeat_age) texts.push(`no heartbeat for ${duration(node.heartbeat_age)}`);
  if (node.cordoned) texts.push(`cordoned${node.cordon_reason ? `: ${node.cordon_reason}` : ""}`);
  if (node.leaving) texts.push("its worker is shutting down");
  if (node.conflict) texts.push(`in conflict: ${node.conflict}`);
  if (node.failed_launches) texts.push(`${node.failed_launches} failed launches${node.launch_failure ? `, the last: ${node.launch_failure}` : ""}`);
  if (node.cool_down) texts.push(`no ranks are placed for ${duration(node.cool_down)}`);
  for (const slot of node.slots) if (slot.unavailable) texts.push(`slot ${slot.index}: ${slot.unavailable}`);
  if (texts.length === 0) return mark("ok", "check", "no problems");
  return el("ul", {}, texts.map((text) => el("li", {}, mark("warn", "alert", text))));
}

function slotTable(slots) {
  return el("table", { class: "cards" },
    el("thead", {}, el("tr", {}, ["Slot", "Device", "Use"].map((title) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, slots.map((slot) => el("tr", {},
      el("td", { class: "fixed", "data-label": "Slot" }, String(slot.index)),
      el("td", { "data-label": "Device" }, [slot.device ?? slot.kind ?? "cpu", bytes(slot.memory)].filter(Boolean).join(", ")),
      el("td", { "data-label": "Use" }, use(slot))))));
}

function use(slot) {
  if (slot.unavailable) return mark("bad", slot.returning ? "clock" : "cross", slot.returning ? "returning" : "unusable");
  if (!slot.job) return mark("ok", "check", "free");
  return [mark("info", "play", `rank ${slot.rank} of `), jobLink(slot.job)];
}
