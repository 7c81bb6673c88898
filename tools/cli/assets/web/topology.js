// Processes as boxes with their queue pairs, joined by what carries their messages; peers on other hosts at the right.
// The drawing is made anew only when processes, queue pairs or connections change; otherwise its texts and widths are.

import { el, label, pairKey, pairName, pathClass, pathName, say, short, stateClass } from "./dom.js";

const BOX = 236;
const HEAD = 34;
const ROW = 30;
const BETWEEN = 240;
const GAP = 22;
const MARGIN = 18;
// Queue pairs of a process that are drawn one by one.
const ROWS = 8;
// Processes that are drawn.
const BOXES = 48;

/** The host part of an address with a port. */
const hostOf = (address) => address.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");

/** What is drawn: boxes with rows, and edges between rows. */
function plan(processes) {
  const boxes = new Map();
  const wanted = new Set();
  for (const process of processes.slice(0, BOXES)) {
    const key = (pair) => pairKey(process.pid, pair.adapter, pair.number);
    let pairs = process.queue_pairs;
    if (pairs.length > ROWS) {
      // First the other ends of those that are drawn already, then by number: the choice does not change with the rates.
      const rank = (pair) => (wanted.has(key(pair)) ? 0 : 1);
      pairs = [...pairs].sort((a, b) => rank(a) - rank(b) || a.adapter - b.adapter || a.number - b.number).slice(0, ROWS);
      pairs.sort((a, b) => a.adapter - b.adapter || a.number - b.number);
    }
    for (const pair of pairs) if (pair.other?.length === 3) wanted.add(pairKey(...pair.other));
    const more = process.queue_pairs.length + process.left_out - pairs.length;
    const rows = pairs.map((pair) => ({ key: pairKey(process.pid, pair.adapter, pair.number), pair }));
    if (more) rows.push({ key: `${process.pid}/more`, more });
    boxes.set(process.pid, { process, rows, column: null, edges: [], remote: false });
  }
  // Rows of queue pairs that are not drawn one by one.
  const place = (pid, adapter, number) => {
    const box = boxes.get(pid);
    const key = pairKey(pid, adapter, number);
    // A process that does not answer has no rows.
    const row = box?.rows.find((r) => r.key === key) ?? box?.rows.find((r) => r.more) ?? (box && { key: `${pid}/head`, isHead: true });
    return row && { box, row };
  };
  const edges = new Map();
  const hosts = new Map();
  for (const { process } of boxes.values()) {
    for (const pair of process.queue_pairs) {
      const from = place(process.pid, pair.adapter, pair.number);
      if (!from || !pair.peer) continue;
      let to = pair.other && place(...pair.other);
      if (!to && pair.other) continue;
      // Each connection once, from the end that comes first.
      if (pair.other?.length === 3) {
        const own = [process.pid, pair.adapter, pair.number];
        const first = own.map((n, at) => n - pair.other[at]).find((n) => n !== 0) ?? 0;
        if (first > 0) continue;
      } else if (!pair.other) {
        const host = hostOf(pair.peer);
        if (!hosts.has(host)) hosts.set(host, { host, key: `host ${host}`, row: { key: `host ${host}` } });
        to = { host: hosts.get(host), row: hosts.get(host).row };
      }
      const key = `${from.row.key} ${to.row.key} ${pair.path}`;
      const edge = edges.get(key) ?? { key, from, to, path: pair.path, count: 0, out: 0, in: 0 };
      edge.count += 1;
      edge.out += pair.rates.bytes_out;
      edge.in += pair.rates.bytes_in;
      if (!edges.has(key)) {
        edges.set(key, edge);
        from.box.edges.push(edge);
        if (to.box && to.box !== from.box) to.box.edges.push(edge);
        if (to.host) from.box.remote = true;
      }
    }
  }
  return { boxes: [...boxes.values()], hosts: [...hosts.values()], edges: [...edges.values()] };
}

/** Gives each box a column and a height: connected ones beside each other, group by group. */
function arrange({ boxes, hosts, edges }) {
  const height = (box) => HEAD + box.rows.length * ROW + 6;
  const bottom = [MARGIN, MARGIN, MARGIN];
  for (const root of boxes) {
    if (root.column !== null) continue;
    // One without connections takes the shorter column; one with peers elsewhere is next to them.
    const isAlone = root.edges.every((edge) => !edge.to.box || edge.to.box === edge.from.box);
    root.column = root.remote && isAlone ? 1 : isAlone && bottom[1] < bottom[0] ? 1 : 0;
    if (!isAlone) bottom[0] = bottom[1] = Math.max(bottom[0], bottom[1]);
    const group = [root];
    for (let at = 0; at < group.length; at += 1) {
      const box = group[at];
      box.y = bottom[box.column];
      bottom[box.column] += height(box) + GAP;
      for (const edge of box.edges) {
        const other = edge.from.box === box ? edge.to.box : edge.from.box;
        if (other && other.column === null) {
          other.column = 1 - box.column;
          group.push(other);
        }
      }
    }
  }
  for (const host of hosts) {
    const of = edges.filter((edge) => edge.to.host === host).map((edge) => edge.from.box.y);
    host.y = Math.max(bottom[2], Math.min(...of));
    bottom[2] = host.y + HEAD + GAP;
  }
  const columns = hosts.length ? 3 : boxes.some((box) => box.column === 1) ? 2 : 1;
  return {
    width: 2 * MARGIN + columns * BOX + (columns - 1) * BETWEEN,
    height: Math.max(...bottom, MARGIN + GAP + HEAD) - GAP + MARGIN,
  };
}

const left = (column) => MARGIN + column * (BOX + BETWEEN);

/** Where an edge meets a row. */
function end({ box, host, row }) {
  if (host) return { x: left(2), y: host.y + HEAD / 2, column: 2 };
  if (row.isHead) return { x: left(box.column), y: box.y + HEAD / 2 + 3, column: box.column };
  const at = box.rows.indexOf(row);
  return { x: left(box.column), y: box.y + HEAD + at * ROW + ROW / 2, column: box.column };
}

function curve(edge) {
  const [a, b] = [end(edge.from), end(edge.to)];
  if (a.column === b.column) {
    // Beside the column, where the space between columns is.
    const x = a.column === 0 ? a.x + BOX : a.x;
    const out = a.column === 0 ? 90 : -90;
    const [from, to] = a.y === b.y ? [a.y - 8, b.y + 8] : [a.y, b.y];
    return { d: `M${x} ${from}C${x + out} ${from} ${x + out} ${to} ${x} ${to}`, x: x + out * 0.95, y: (from + to) / 2 };
  }
  const [first, second] = a.column < b.column ? [a, b] : [b, a];
  const [x1, x2] = [first.x + BOX, second.x];
  const middle = (x1 + x2) / 2;
  // The label is in the first space, so that none is behind a box.
  return {
    d: `M${x1} ${first.y}C${middle} ${first.y} ${middle} ${second.y} ${x2} ${second.y}`,
    x: x1 + BETWEEN / 2,
    y: x2 - x1 > BETWEEN ? first.y + (second.y - first.y) * 0.15 : (first.y + second.y) / 2,
  };
}

const causeClass = (cause) => (cause === "waits" ? "warn" : "bad");

export class Topology {
  constructor(svg, open) {
    this.svg = svg;
    this.open = open;
    this.shape = "";
    this.made = new Map();
  }

  /** `causes` has a word for each queue pair that failed or waits. */
  update(processes, causes) {
    this.causes = causes;
    const drawn = plan(processes);
    const size = arrange(drawn);
    const shape = JSON.stringify([
      drawn.boxes.map((box) => [box.process.pid, box.process.program, box.column, box.y, box.rows.map((row) => row.key)]),
      drawn.hosts.map((host) => [host.key, host.y]),
      drawn.edges.map((edge) => edge.key),
    ]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.draw(drawn, size);
    }
    this.refresh(drawn);
  }

  draw({ boxes, hosts, edges }, { width, height }) {
    const { svg } = this;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    this.made = new Map();
    const parts = [];
    for (const edge of edges) {
      const { d } = curve(edge);
      const path = el("path", { class: "edge", d }, el("title"));
      this.made.set(edge.key, { path });
      parts.push(path);
    }
    for (const box of boxes) parts.push(this.box(box));
    for (const host of hosts) {
      parts.push(el("g", { class: "host" },
        el("rect", { class: "box", x: left(2), y: host.y, width: BOX, height: HEAD, rx: 17 }),
        el("text", { class: "name", x: left(2) + BOX / 2, y: host.y + 22, "text-anchor": "middle" }, host.host)));
    }
    // Labels are in front of everything.
    for (const edge of edges) {
      const { x, y } = curve(edge);
      // Above the line.
      const text = label(x, y - 6);
      this.made.get(edge.key).text = text;
      parts.push(...text.nodes);
    }
    svg.replaceChildren(...parts);
  }

  box({ process, rows, column, y }) {
    const x = left(column);
    const height = HEAD + rows.length * ROW + 6;
    const rate = el("text", { class: "muted", x: x + BOX - 12, y: y + 22, "text-anchor": "end" });
    this.made.set(`p${process.pid}`, { rate });
    const children = [
      el("rect", { class: "box", x, y, width: BOX, height, rx: 9 }),
      el("text", { class: "name", x: x + 12, y: y + 22 }, process.program, el("tspan", { class: "pid", "font-weight": "400", dx: "6" }, String(process.pid))),
      rate,
    ];
    rows.forEach((row, at) => {
      const top = y + HEAD + at * ROW;
      if (row.more) {
        children.push(el("text", { class: "muted", x: x + 28, y: top + 19 }, `${row.more} more`));
        return;
      }
      const dot = el("circle", { class: "dot", cx: x + 17, cy: top + ROW / 2, r: 4 });
      const state = el("text", { class: "muted", x: x + BOX - 12, y: top + 19, "text-anchor": "end" });
      this.made.set(row.key, { dot, state });
      children.push(el("g", { class: "row", onclick: () => this.open(row.key) },
        el("rect", { class: "hit", x: x + 4, y: top, width: BOX - 8, height: ROW, rx: 6 }),
        dot, el("text", { x: x + 28, y: top + 19 }, pairName(row.pair)), state));
    });
    return el("g", { class: "process" }, ...children);
  }

  refresh({ boxes, edges }) {
    for (const { process, rows } of boxes) {
      const moved = process.rates.bytes_out + process.rates.bytes_in;
      say(this.made.get(`p${process.pid}`).rate, process.answers ? short(moved, "B/s") : "silent");
      for (const row of rows.filter((r) => r.pair)) {
        const { dot, state } = this.made.get(row.key);
        const { pair } = row;
        const cause = this.causes.get(row.key);
        dot.setAttribute("class", `dot ${cause ? causeClass(cause) : stateClass(pair.state)}`);
        state.setAttribute("class", cause ? causeClass(cause) : "muted");
        const waiting = cause ? `${cause} · ` : pair.outstanding ? `${pair.outstanding} outstanding · ` : "";
        say(state, `${waiting}${pair.type && pair.type !== "Rc" ? `${pair.type.toUpperCase()} ` : ""}${pair.state.toUpperCase()}`);
      }
    }
    for (const edge of edges) {
      const { path, text: shown } = this.made.get(edge.key);
      const { from, to } = edge;
      // As the picture has it: the first column is at the left.
      const turned = to.box && to.box.column < from.box.column;
      const [right, back] = turned ? [edge.in, edge.out] : [edge.out, edge.in];
      const rate = right + back;
      const kind = pathClass(edge.path);
      path.setAttribute("class", `edge ${kind} ${rate ? "" : "idle"}`);
      // A step of width for each factor of ten above 1 kB/s.
      path.setAttribute("stroke-width", (1.3 + Math.max(0, Math.log10(rate / 1e3)) * 0.55).toFixed(1));
      const many = edge.count > 1 ? `${edge.count} × ` : "";
      const text = `${many}${pathName(edge.path)}${rate ? ` → ${short(right, "B/s")} ← ${short(back, "B/s")}` : ""}`;
      shown.update(text, kind);
      say(path.firstChild, text);
    }
  }
}
