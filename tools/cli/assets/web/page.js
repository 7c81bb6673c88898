// The page: views, theme, and the requests that keep it up to date.
// It asks about once a second while it is seen, and for nothing while it is not.

import { $, ask, el, hasToken, keyed, renewToken, rich, say } from "./dom.js";
import { Live } from "./live.js";
import { Labs } from "./lab.js";
import { Timeline } from "./timeline.js";

const VIEWS = ["live", "causes", "lab", "timeline"];
let shown = "";
function show(view) {
  if (!VIEWS.includes(view) || view === shown) return;
  shown = view;
  for (const name of VIEWS) $(name).hidden = name !== view;
  for (const button of document.querySelectorAll("nav button")) {
    if (button.dataset.view === view) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  if (location.hash.slice(1) !== view) history.replaceState(null, "", `#${view}`);
  if (view === "timeline") timeline.resize();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  timeline.recolour();
}
const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => localStorage.getItem("verbena-theme");

function notice(text) {
  $("notice").hidden = !text;
  say($("notice"), text);
}

function status(text, isBad) {
  say($("status"), text);
  $("status").classList.toggle("bad", Boolean(isBad));
}

function showFindings(found) {
  const list = found?.list ?? [];
  $("causes-count").hidden = list.length === 0;
  say($("causes-count"), String(list.length));
  $("causes-more").hidden = !found?.left_out;
  say($("causes-more"), `${found?.left_out ?? 0} more: verbena why lists all.`);
  $("causes-empty").hidden = !found || list.length > 0;
  // Running ones first, then the latest.
  const rank = (finding) => (finding.verdict === "waits" || finding.verdict === "silent" ? Infinity : finding.at_ms ?? 0);
  const ordered = [...list].sort((a, b) => rank(b) - rank(a) || a.pid - b.pid);
  const key = (f) => [f.pid, f.adapter, f.number, f.verdict, f.at_ms].join("/");
  const create = (finding) => {
    const node = el("article", { class: finding.verdict }, el("h2"), el("dl", { class: "rows" }));
    return { node, rows: "" };
  };
  keyed($("findings"), ordered, key, create, (made, finding) => {
    say(made.node.firstChild, finding.heading);
    const rows = JSON.stringify(finding.rows);
    if (made.rows === rows) return;
    made.rows = rows;
    made.node.lastChild.replaceChildren(...finding.rows.flatMap(([label, text]) => [el("dt", {}, label), el("dd", {}, ...rich(text))]));
  });
}

const live = new Live();
const labs = new Labs($("labs"));
const timeline = new Timeline();

function showState(state) {
  const processes = state.processes?.list ?? [];
  live.update(processes, state.findings?.list ?? []);
  showFindings(state.findings);
  const running = state.labs?.list ?? [];
  labs.update(running);
  $("lab-button").hidden = running.length === 0;
  if (running.length === 0 && shown === "lab") show("live");
  const errors = [state.processes, state.findings, state.labs].map((part) => part?.error).filter(Boolean);
  const pairs = processes.reduce((sum, process) => sum + process.queue_pairs.length + process.left_out, 0);
  const many = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  // A program that answers slowly delays what is known of the others.
  if (state.age_ms > 5000) errors.push(`not renewed for ${Math.round(state.age_ms / 1000)} s: a program answers slowly`);
  if (errors.length) status(errors.join("; "), true);
  else status(`${many(processes.length, "program")}, ${many(pairs, "queue pair")} · ${new Date().toLocaleTimeString()}`);
}

let timer = 0;
let interval = 1000;
let failures = 0;
async function poll() {
  clearTimeout(timer);
  // A page that is not seen asks for nothing.
  if (document.hidden) return;
  try {
    showState(await (await ask("/api/state")).json());
    failures = 0;
    notice("");
  } catch (error) {
    failures += 1;
    if (error.status === 403) {
      refused();
      return;
    }
    status("no answer", true);
    if (failures > 2) notice("No answer. `verbena web` may have ended; this page goes on when it answers again.");
  }
  timer = setTimeout(poll, interval * Math.min(1 + failures, 5));
}

function refused() {
  status("not allowed", true);
  notice(hasToken()
    ? "The token of this tab is not that of the running `verbena web`: open the address that it printed."
    : "This page needs its token: open the address that `verbena web` printed, with what follows #.");
}

async function start() {
  for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => show(button.dataset.view));
  setTheme(chosen() ?? (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => chosen() ?? setTheme(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("verbena-theme", theme);
    setTheme(theme);
  });
  addEventListener("hashchange", () => {
    // The address of another run, pasted into this tab.
    if (renewToken()) location.reload();
    else show(location.hash.slice(1));
  });
  document.addEventListener("visibilitychange", () => { if (hasToken()) poll(); });
  const wanted = location.hash.slice(1);
  show(VIEWS.includes(wanted) && wanted !== "lab" ? wanted : "live");
  if (!hasToken()) {
    refused();
    return;
  }
  try {
    const hello = await (await ask("/api/hello")).json();
    interval = hello.interval_ms;
    if (hello.traces.length) {
      if (!wanted) show("timeline");
      timeline.offer(hello.traces);
    }
  } catch (error) {
    if (error.status === 403) {
      refused();
      return;
    }
  }
  poll();
}
start();
