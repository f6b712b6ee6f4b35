// The page before a sign-in: numbers of jobs, nodes and slots, and how to sign in.

import { badge, el, facts, number, replace } from "./dom.js";
import { request } from "./stream.js";

const REFRESH_MS = 2000;

export function showCounts(view, setStatus, onSignIn) {
  const list = el("section");
  replace(view, el("h1", {}, "Cluster"), list, el("p", {}, "Run ", el("kbd", {}, "muster page"),
    " to open this page signed in, or sign in with a token: jobs and nodes are shown to users of the cluster."));
  const update = async () => {
    if (document.hidden) return;
    try {
      const response = await request("/api/session");
      const { counts, user, message } = await response.json();
      if (user) onSignIn();  // in another tab
      if (counts) replace(list, facts([["Jobs", states(counts.jobs)], ["Nodes", states(counts.nodes)], ["Slots", `${number(counts.busy)} of ${number(counts.slots)} busy`]]));
      setStatus(response.ok ? "live" : "denied", message ?? "live");
    } catch {
      setStatus("waiting", "connection lost, retrying");
    }
  };
  update();
  const timer = setInterval(update, REFRESH_MS);
  return { close: () => clearInterval(timer) };
}

function states(counts) {
  const found = Object.entries(counts).map(([state, count]) => el("span", {}, badge(state), ` ${number(count)}  `));
  return found.length ? el("span", { class: "bar" }, found) : "none";
}
