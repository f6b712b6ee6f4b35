// Chooses the view by the address, and holds what all views share: sign-in, state of the connection, shortcuts.

import { showComparison } from "./compare.js";
import { showCounts } from "./counts.js";
import { el, replace } from "./dom.js";
import { showJob } from "./job.js";
import { showNode } from "./node.js";
import { showOverview } from "./overview.js";
import { post, request, setUser, signedIn } from "./stream.js";

const RETRY_MS = 2000;
const view = document.getElementById("view");
const live = document.getElementById("live");
const loginDialog = document.getElementById("login-dialog");
const helpDialog = document.getElementById("help-dialog");
const shortcuts = document.getElementById("shortcuts");

// A view is {title, keys: {key: function}, close()}.
let current = null;

function setStatus(state, text) {
  live.textContent = text;
  live.className = { live: "ok", waiting: "warn", denied: "bad" }[state] ?? "";
  if (state === "denied" && signedIn()) restart();
}

function route() {
  const [, kind = "", rest = ""] = /^#\/(\w*)\/?(.*)$/.exec(location.hash) ?? [];
  current?.close();
  replace(view);
  const name = decodeURIComponent(rest);
  if (!signedIn()) current = showCounts(view, setStatus, restart);
  else if (kind === "job" && name) current = showJob(view, name, setStatus);
  else if (kind === "node" && name) current = showNode(view, name, setStatus);
  else if (kind === "compare" && name) current = showComparison(view, { jobs: name }, setStatus);
  else if (kind === "array" && name) current = showComparison(view, { array: name }, setStatus);
  else current = showOverview(view, setStatus);
  document.title = current.title ? `${current.title} – Muster` : "Muster";
}

// ---- Sign-in

function askForToken(reason = "") {
  if (loginDialog.open) return;
  document.getElementById("login-reason").textContent = reason;
  document.getElementById("token").value = "";
  loginDialog.returnValue = "";
  loginDialog.showModal();
}

async function signIn(authorization) {
  try {
    const response = await post("/api/login", authorization);
    if (!response.ok) askForToken((await response.json()).message);
  } catch {
    askForToken("The coordinator does not answer.");
  }
}

// Uses the login of `muster page` in the address, #/login/CODE or #/login/CODE/JOB, and removes it from there.
async function useLogin() {
  const [, code, job] = /^#\/login\/(\w+)\/?(.*)$/.exec(location.hash) ?? [];
  if (!code) return;
  history.replaceState(null, "", job ? `#/job/${job}` : "#/");
  await signIn(`Login ${code}`);
}

async function showSession() {
  const login = document.getElementById("login");
  try {
    const session = await (await request("/api/session")).json();
    setUser(session.user ?? "");
    login.textContent = signedIn() ? "Sign out" : "Sign in";
    document.getElementById("cluster").textContent =
      signedIn() ? `version ${session.version}, cluster ${session.cluster.slice(0, 8)}, signed in as ${session.user}` : "";
  } catch {
    setTimeout(restart, RETRY_MS);
  }
}

document.getElementById("login").addEventListener("click", async () => {
  if (!signedIn()) { askForToken(); return; }
  await post("/api/logout").catch(() => {});  // the streams report the lost connection
  restart();
});

loginDialog.addEventListener("close", async () => {
  const value = document.getElementById("token").value.trim();
  document.getElementById("token").value = "";
  if (loginDialog.returnValue !== "sign-in" || !value) return;
  await signIn(`Bearer ${value}`);
  restart();
});

async function restart() {
  await useLogin();
  await showSession();
  route();
}

// ---- Shortcuts

shortcuts.checked = localStorage.getItem("muster-shortcuts") !== "off";
shortcuts.addEventListener("change", () => {
  localStorage.setItem("muster-shortcuts", shortcuts.checked ? "on" : "off");
});
document.getElementById("help").addEventListener("click", () => helpDialog.showModal());

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !shortcuts.checked) return;
  const keys = { "?": () => helpDialog.showModal(), o: () => { location.hash = "#/"; }, ...current?.keys };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});

window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#/login/")) { restart(); return; }
  route();
  view.focus();
});
// An error must not leave a page that looks alive.
window.addEventListener("error", (event) => {
  view.prepend(el("p", { class: "bad", role: "alert" }, `error of the page: ${event.message}`));
});

restart();
