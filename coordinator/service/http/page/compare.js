// Several jobs side by side: their curves in one plot, their values in one table.

import { Chart } from "./chart.js";
import { badge, el, jobLink, number, replace, runTime } from "./dom.js";
import { EventStream } from "./stream.js";

const VALUES = [["Loss", 2], ["Training accuracy", 3], ["Test accuracy", 4], ["Images per second", 5]];
const PLOTTED = 12;  // more lines cannot be told apart

export function showComparison(view, { jobs = "", array = "" }, setStatus) {
  const heading = el("h1", {}, array ? `Array ${array}` : "Comparison");
  const problem = el("p", { class: "bad", role: "status" });
  const note = el("p", { class: "muted" });
  const table = el("div");
  const chart = new Chart("Loss", "step");
  let compared = [];
  const value = el("select", { id: "value", onchange: draw }, VALUES.map(([name], index) => el("option", { value: index }, name)));
  const axis = el("select", { id: "axis", onchange: draw }, el("option", { value: "0" }, "step"), el("option", { value: "1" }, "time since start"));

  function draw() {
    const [name, index] = VALUES[value.value];
    const byTime = axis.value === "1";
    chart.label = name;
    chart.set(compared.slice(0, PLOTTED).map(({ job, curve }) => {
      const start = byTime && job.started ? job.started - job.submitted : 0;
      return { name: job.id, points: curve.map((point) => [byTime ? point[1] - start : point[0], point[index] ?? NaN]) };
    }), byTime ? "seconds" : "step");
  }

  replace(view, heading, problem, el("section", {}, el("div", { class: "bar" },
    el("label", { for: "value" }, "Show"), value, el("label", { for: "axis" }, "by"), axis), chart.element, note),
  el("section", {}, el("h2", {}, "Results"), table));
  const stream = new EventStream(`/api/comparison?${new URLSearchParams({ jobs, array })}`, {
    comparison: (data) => {
      problem.textContent = "";
      compared = data.jobs;
      heading.textContent = data.title;
      const limits = [];
      if (data.total > data.jobs.length) limits.push(`the first ${data.jobs.length} of ${number(data.total)} jobs are shown`);
      if (data.jobs.length > PLOTTED) limits.push(`the first ${PLOTTED} are plotted`);
      note.textContent = limits.join("; ");
      draw();
      replace(table, results(data.jobs));
    },
    problem: ({ message }) => { problem.textContent = message; },
  }, setStatus);
  return { title: heading.textContent, close: () => { stream.close(); chart.close(); } };
}

// One column per value in which tasks of an array differ.
function results(compared) {
  const fields = [...new Set(compared.flatMap(({ job }) => (job.values ?? []).map(({ field }) => field)))];
  const titles = ["Job", "State", ...fields, "Steps", "Loss", "Test accuracy", "Images/s", "Run time"];
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results" }, el("table", { class: "cards" },
    el("thead", {}, el("tr", {}, titles.map((title) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, compared.map(({ job }) => el("tr", {},
      el("td", { "data-label": "Job" }, jobLink(job.id)),
      el("td", { class: "fixed", "data-label": "State" }, badge(job.state)),
      fields.map((field) => el("td", { "data-label": field }, (job.values ?? []).find((one) => one.field === field)?.value ?? "")),
      el("td", { class: "fixed", "data-label": "Steps" }, number(job.step)),
      el("td", { class: "fixed", "data-label": "Loss" }, number(job.summary?.["final loss"] ?? job.loss, 5)),
      el("td", { class: "fixed", "data-label": "Test accuracy" }, number(job.summary?.["test accuracy"] ?? job.accuracy)),
      el("td", { class: "fixed", "data-label": "Images/s" }, number(job.summary?.["images/s"] ?? job.rate)),
      el("td", { class: "fixed", "data-label": "Run time" }, runTime(job)))))));
}
