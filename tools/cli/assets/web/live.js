// Processes and queue pairs: totals, the table with sparklines, and the attributes of one queue pair.

import { $, ask, el, keyed, pairKey, pairName, pathName, say, short, stateClass } from "./dom.js";
import { Topology } from "./topology.js";

const KINDS = new Map([["qp", "Queue pair"], ["cq", "Completion queue"], ["srq", "Shared receive queue"], ["wait", "Waits"]]);
// Samples of a sparkline, one a second.
const SAMPLES = 90;
export class Live {
  constructor() {
    this.history = new Map();
    this.processes = [];
    this.findings = [];
    this.open = null;
    this.topology = new Topology($("topology"), (key) => this.show(key));
    $("filter").addEventListener("input", () => this.draw());
    $("sort").addEventListener("change", () => this.draw());
    $("detail-close").addEventListener("click", () => $("detail").close());
    $("detail").addEventListener("close", () => { this.open = null; });
  }

  update(processes, findings) {
    this.processes = processes;
    this.findings = findings;
    const seen = new Map();
    for (const process of processes) {
      const add = (key, rates) => {
        const samples = this.history.get(key) ?? { out: [], in: [] };
        samples.out.push(rates.bytes_out);
        samples.in.push(rates.bytes_in);
        if (samples.out.length > SAMPLES) { samples.out.shift(); samples.in.shift(); }
        seen.set(key, samples);
      };
      add(String(process.pid), process.rates);
      for (const pair of process.queue_pairs) add(pairKey(process.pid, pair.adapter, pair.number), pair.rates);
    }
    this.history = seen;
    this.draw();
    if (this.open) this.fill();
  }

  draw() {
    const text = $("filter").value.trim().toLowerCase();
    const has = (...texts) => texts.some((t) => String(t ?? "").toLowerCase().includes(text));
    const whole = (p) => !text || has(p.program, p.pid);
    const matches = (pair) => has(pair.state, pair.path, pathName(pair.path), pair.peer, pair.type);
    const shown = this.processes
      .map((process) => (whole(process) ? process : { ...process, queue_pairs: process.queue_pairs.filter(matches) }))
      .filter((process) => whole(process) || process.queue_pairs.length);
    const value = {
      pid: () => 0,
      program: () => 0,
      bytes: (p) => p.rates.bytes_out + p.rates.bytes_in,
      messages: (p) => p.rates.messages_out + p.rates.messages_in,
      outstanding: (p) => p.outstanding,
    }[$("sort").value];
    const byName = $("sort").value === "program";
    shown.sort((a, b) => (byName && a.program.localeCompare(b.program)) || value(b) - value(a) || a.pid - b.pid);
    this.drawTotals(shown);
    const found = this.findings.filter((finding) => finding.verdict === "waits" || finding.verdict === "failed");
    this.topology.update(shown, new Map(found.map((finding) => [pairKey(finding.pid, finding.adapter, finding.number), finding.verdict])));
    keyed($("pairs"), shown, (p) => `p${p.pid}`, () => this.block(), (made, process) => this.fillBlock(made, process));
    $("live-empty").hidden = this.processes.length > 0;
    $("pairs").parentElement.hidden = this.processes.length === 0;
    $("topology").parentElement.hidden = this.processes.length === 0;
  }

  drawTotals(shown) {
    const sum = (get) => shown.reduce((total, process) => total + get(process), 0);
    const totals = [
      ["Programs", String(shown.length)],
      ["Queue pairs", String(sum((p) => p.queue_pairs.length))],
      ["Sent", short(sum((p) => p.rates.bytes_out), "B/s")],
      ["Received", short(sum((p) => p.rates.bytes_in), "B/s")],
      ["Messages sent", short(sum((p) => p.rates.messages_out), "/s")],
      ["Outstanding", short(sum((p) => p.outstanding))],
      ["RNR", short(sum((p) => p.rates.rnr), "/s")],
      ["Retries", short(sum((p) => p.rates.retries), "/s")],
    ];
    const create = ([name]) => ({ node: el("div", {}, el("dt", {}, name), el("dd")) });
    keyed($("totals"), totals, ([name]) => name, create, (made, [, text]) => say(made.node.lastChild, text));
  }

  block() {
    return { node: el("tbody") };
  }

  fillBlock(made, process) {
    const rows = [{ process }, ...process.queue_pairs.map((pair) => ({ process, pair }))];
    if (process.left_out) rows.push({ process, more: process.left_out });
    const key = ({ pair, more }) => (more ? "more" : pair ? `${pair.adapter}/${pair.number}` : "process");
    keyed(made.node, rows, key, (row) => this.row(row), (row, item) => this.fillRow(row, item));
  }

  row({ process, pair, more }) {
    const cells = Array.from({ length: 14 }, () => el("td"));
    const node = el("tr", {}, ...cells);
    const spark = el("svg", { class: "spark", viewBox: "0 0 100 22", preserveAspectRatio: "none", "aria-hidden": "true" },
      el("polyline", { class: "in" }), el("polyline", { class: "out" }));
    if (more) cells[0].className = "muted";
    else cells[3].append(spark);
    if (pair) {
      const key = pairKey(process.pid, pair.adapter, pair.number);
      cells[0].append(el("button", { type: "button", onclick: () => this.show(key) }, pairName(pair)));
    } else if (!more) {
      cells[0].append(el("bdi", {}), " ", el("span", { class: "pid" }));
    }
    return { node, cells, spark };
  }

  fillRow({ cells, spark }, { process, pair, more }) {
    if (more) {
      say(cells[0], `${more} more, which move less`);
      return;
    }
    const of = pair ?? process;
    const rates = of.rates;
    if (!pair) {
      say(cells[0].firstChild, process.program);
      say(cells[0].lastChild, String(process.pid));
      say(cells[1], process.answers ? "" : "silent");
      cells[1].className = process.answers ? "" : "warn";
      say(cells[13], process.answers ? `${short(process.wakeups, "/s")} wake-ups` : "does not answer");
      cells[13].className = "pid";
    } else {
      say(cells[1], pair.state.toUpperCase());
      cells[1].className = stateClass(pair.state);
      say(cells[2], pathName(pair.path) || pair.type?.toUpperCase() || "");
      say(cells[9], String(pair.receives));
      say(cells[13], pair.peer ?? "not connected");
      cells[13].className = pair.peer ? "" : "muted";
    }
    say(cells[4], short(rates.bytes_out));
    say(cells[5], short(rates.bytes_in));
    say(cells[6], short(rates.messages_out));
    say(cells[7], short(rates.messages_in));
    say(cells[8], String(of.outstanding));
    say(cells[10], short(rates.rnr));
    cells[10].className = rates.rnr > 0 ? "warn" : "";
    say(cells[11], short(rates.retries));
    cells[11].className = rates.retries > 0 ? "warn" : "";
    say(cells[12], `${Math.round(rates.stalled * 100)}%`);
    const key = pair ? pairKey(process.pid, pair.adapter, pair.number) : String(process.pid);
    const samples = this.history.get(key);
    if (!samples) return;
    const most = Math.max(1, ...samples.out, ...samples.in);
    const line = (values) => values
      .map((value, at) => `${(((SAMPLES - values.length + at) / (SAMPLES - 1)) * 100).toFixed(1)},${(21 - (value / most) * 20).toFixed(1)}`)
      .join(" ");
    spark.firstChild.setAttribute("points", line(samples.in));
    spark.lastChild.setAttribute("points", line(samples.out));
  }

  /** Shows the attributes of a queue pair, by its key. */
  show(key) {
    this.open = key;
    $("detail-body").replaceChildren();
    this.fill();
    if (!$("detail").open) $("detail").showModal();
  }

  async fill() {
    const key = this.open;
    const [pid, adapter, number] = key.split("/");
    const process = this.processes.find((p) => p.pid === Number(pid));
    say($("detail-title"), `${process?.program ?? "?"} ${pid}, queue pair ${adapter === "0" ? "" : `${adapter}/`}${number}`);
    let parts;
    try {
      const objects = await (await ask(`/api/object/${key}`)).json();
      parts = objects.flatMap(([kind, fields]) => [
        el("h3", {}, KINDS.get(kind) ?? kind),
        el("dl", { class: "rows" }, ...fields.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
      ]);
    } catch (error) {
      parts = [el("p", { class: "empty" }, error.message)];
    }
    if (this.open !== key) return;
    const about = this.findings.filter((f) => String(f.pid) === pid && String(f.number) === number);
    const causes = about.map((f) => el("article", { class: "failed" }, el("h2", {}, f.heading),
      el("dl", { class: "rows" }, ...f.rows.map(([label, text]) => el("div", {}, el("dt", {}, label), el("dd", {}, text))))));
    $("detail-body").replaceChildren(...causes, ...parts);
  }
}
