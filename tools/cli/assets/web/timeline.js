// The timeline of a trace on a canvas: zoom, pan, flows, the event that is selected, and what is in view by name.
// A lane draws at most one slice for each pixel, found by binary search, so that the time for a picture does not grow with the trace.

import { $, ask, el, say } from "./dom.js";
import { Trace, firstInstant } from "./trace.js";

const RULER = 26;
const HEAD = 22;
const LANE = 19;
const INSTANTS = 17;
const SPACE = 7;
// With more flows in view only those of the selected event are drawn: the picture would be a surface.
const FLOWS = 1200;
// The shortest time that can fill the view, in microseconds.
const SHORTEST = 0.005;
const NAMES = 14;
const FONT = "12px system-ui, sans-serif";

/** A time in a unit that is easy to read; `step` says how fine. */
export function time(micros, step = Math.abs(micros) / 1000) {
  const units = [["s", 1e6], ["ms", 1e3], ["µs", 1], ["ns", 1e-3]];
  const [unit, size] = units.find(([, s]) => Math.abs(micros) >= s) ?? units[3];
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / size) - 1e-9)));
  const text = (micros / size).toFixed(micros === 0 ? 0 : digits);
  return `${text.includes(".") ? text.replace(/\.?0+$/, "") : text}\u202f${unit}`;
}

/** A number of the hue circle from a name. */
function hue(name) {
  let sum = 7;
  for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) % 100_003;
  return (sum * 137.508) % 360;
}

export class Timeline {
  constructor() {
    this.canvas = $("trace");
    this.pen = this.canvas.getContext("2d");
    this.trace = null;
    this.selected = null;
    this.scroll = 0;
    this.closed = new Set();
    this.pointers = new Map();
    this.colours = new Map();
    this.widths = new Map();
    this.listen();
  }

  listen() {
    const { canvas } = this;
    new ResizeObserver(() => this.resize()).observe(canvas);
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => this.release(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    $("zoom-in").addEventListener("click", () => this.zoom(0.5));
    $("zoom-out").addEventListener("click", () => this.zoom(2));
    $("zoom-fit").addEventListener("click", () => this.fit());
    $("trace-file").addEventListener("change", (event) => {
      const [file] = event.target.files;
      if (file) this.loadFile(file);
      // The same file can be chosen again.
      event.target.value = "";
    });
    $("trace-list").addEventListener("change", (event) => this.fetch(event.target.value));
    $("trace-search").addEventListener("keydown", (event) => { if (event.key === "Enter") this.find(event.target.value, event.shiftKey ? -1 : 1); });
    addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
    addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
    addEventListener("drop", (event) => {
      event.preventDefault();
      document.body.classList.remove("dropping");
      const [file] = event.dataTransfer.files;
      if (file) {
        document.querySelector("[data-view=timeline]").click();
        this.loadFile(file);
      }
    });
  }

  /** Offers the traces that the command was started with, and shows the first. */
  offer(names) {
    $("trace-list").replaceChildren(...names.map((name, at) => el("option", { value: at }, name)));
    $("trace-choice").hidden = names.length < 2;
    this.names = names;
    this.fetch(0);
  }

  async fetch(number) {
    await this.load(this.names[number], async () => (await ask(`/api/trace/${number}`)).text());
  }

  async loadFile(file) {
    await this.load(file.name, () => file.text());
  }

  async load(name, read) {
    say($("trace-info"), `reading ${name} …`);
    try {
      const text = await read();
      const trace = new Trace(text);
      this.show(name, trace);
    } catch (error) {
      say($("trace-info"), `${name}: ${error.message}`);
    }
  }

  show(name, trace) {
    this.trace = trace;
    this.name = name;
    this.selected = null;
    this.scroll = 0;
    this.closed.clear();
    for (const id of ["trace", "trace-keys", "in-view"]) $(id).hidden = false;
    this.layout();
    this.fit();
    this.resize();
    const threads = trace.order.reduce((sum, process) => sum + process.rows.length, 0);
    const many = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
    const parts = [
      `${many(trace.count, "event")} in ${time(trace.end - trace.start)}`,
      `${trace.order.length} ${trace.order.length === 1 ? "process" : "processes"}`,
      many(threads, "thread"),
      many(trace.chains, "flow"),
    ];
    if (trace.lost) parts.push(`${trace.lost.toLocaleString("en")} lost when it was recorded`);
    if (trace.left) parts.push(`${trace.left.toLocaleString("en")} without a form that is known, left out`);
    say($("trace-info"), `${name}: ${parts.join(", ")}`);
    this.describe();
  }

  /** Rows and their heights. */
  layout() {
    this.rows = [];
    let y = 0;
    for (const process of this.trace.order) {
      this.rows.push({ process, y, height: HEAD });
      y += HEAD;
      if (this.closed.has(process.pid)) continue;
      for (const thread of process.rows) {
        const instants = thread.instants.length ? INSTANTS : 0;
        const height = instants + thread.lanes.length * LANE + SPACE;
        this.rows.push({ thread, y, height, instants });
        thread.y = y;
        thread.lanesAt = y + instants;
        y += height;
      }
    }
    this.height = y;
  }

  resize() {
    const { canvas } = this;
    // As high as it needs to be, within what the style sheet allows.
    if (this.trace) canvas.style.height = `min(66vh, ${Math.max(300, this.height + RULER + 12)}px)`;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !this.trace) return;
    const ratio = Math.min(devicePixelRatio || 1, 3);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.gutter = width < 640 ? 92 : 176;
    this.width = width;
    this.view = height;
    this.later();
  }

  recolour() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    this.theme = Object.fromEntries(["panel", "raised", "line", "text", "muted", "accent", "bad", "slice-text", "flow", "slice-s", "slice-l"]
      .map((name) => [name, get(`--${name}`)]));
    this.colours.clear();
    this.later();
  }

  colour(name) {
    let found = this.colours.get(name);
    if (!found) {
      found = `hsl(${hue(name).toFixed(0)} ${this.theme["slice-s"]} ${this.theme["slice-l"]})`;
      if (this.colours.size < 10_000) this.colours.set(name, found);
    }
    return found;
  }

  // The view.

  fit() {
    const margin = (this.trace.end - this.trace.start) * 0.01;
    this.to(this.trace.start - margin, this.trace.end + margin);
  }

  /** Shows this time, within bounds. */
  to(from, until) {
    const { start, end } = this.trace;
    const length = end - start;
    const span = Math.min(Math.max(until - from, SHORTEST), length * 1.4);
    const middle = (from + until) / 2;
    const first = Math.min(Math.max(middle - span / 2, start - length * 0.2 - span * 0.3), end + length * 0.2 + span * 0.3 - span);
    [this.from, this.until] = [first, first + span];
    this.later();
  }

  zoom(factor, x = this.gutter + (this.width - this.gutter) / 2) {
    if (!this.trace) return;
    const at = this.timeAt(x);
    this.to(at - (at - this.from) * factor, at + (this.until - at) * factor);
  }

  pan(pixels) {
    const by = (pixels * (this.until - this.from)) / (this.width - this.gutter);
    this.to(this.from + by, this.until + by);
  }

  scrollBy(pixels) {
    const most = Math.max(0, this.height + RULER + 10 - this.view);
    this.scroll = Math.min(Math.max(this.scroll + pixels, 0), most);
    this.later();
  }

  timeAt(x) {
    return this.from + ((x - this.gutter) * (this.until - this.from)) / (this.width - this.gutter);
  }

  xOf(micros) {
    return this.gutter + ((micros - this.from) * (this.width - this.gutter)) / (this.until - this.from);
  }

  later() {
    if (this.frame || !this.trace) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
    clearTimeout(this.counting);
    this.counting = setTimeout(() => this.count(), 150);
  }

  // Input.

  wheel(event) {
    if (!this.trace) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? this.view : 1;
    const [x, y] = [event.deltaX * unit, event.deltaY * unit];
    if (event.ctrlKey || event.metaKey || event.offsetY < RULER) this.zoom(Math.exp(Math.max(-1, Math.min(1, y / 240))), event.offsetX);
    else if (event.shiftKey) this.pan(y || x);
    else {
      this.pan(x);
      this.scrollBy(y);
    }
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.moved = this.pointers.size > 1;
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before || !this.trace) return;
    const now = { x: event.offsetX, y: event.offsetY };
    const [x, y] = [before.x - now.x, before.y - now.y];
    if (this.pointers.size === 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
      const [old, wide] = [before, now].map((p) => Math.max(20, Math.abs(p.x - other.x)));
      this.zoom(old / wide, (now.x + other.x) / 2);
    } else if (this.moved || Math.hypot(x, y) > 4) {
      this.moved = true;
      this.canvas.classList.add("drag");
      this.pan(x);
      this.scrollBy(y);
    } else {
      return;
    }
    this.pointers.set(event.pointerId, now);
  }

  release(event) {
    const was = this.pointers.delete(event.pointerId);
    this.canvas.classList.remove("drag");
    if (!was || this.moved || !this.trace || event.type === "pointercancel") return;
    const row = this.rowAt(event.offsetY);
    if (row?.process) {
      if (!this.closed.delete(row.process.pid)) this.closed.add(row.process.pid);
      this.layout();
      this.resize();
      this.scrollBy(0);
    } else {
      this.select(this.eventAt(event.offsetX, event.offsetY));
    }
  }

  key(event) {
    if (!this.trace || event.ctrlKey || event.metaKey || event.altKey) return;
    const sixth = (this.width - this.gutter) / 6;
    const actions = {
      w: () => this.zoom(0.7), "+": () => this.zoom(0.7), "=": () => this.zoom(0.7),
      s: () => this.zoom(1 / 0.7), "-": () => this.zoom(1 / 0.7),
      a: () => this.pan(-sixth), d: () => this.pan(sixth),
      0: () => this.fit(), Home: () => this.fit(),
      ArrowUp: () => this.scrollBy(-3 * LANE), ArrowDown: () => this.scrollBy(3 * LANE),
      PageUp: () => this.scrollBy(-this.view / 2), PageDown: () => this.scrollBy(this.view / 2),
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      Enter: () => this.zoomToSelected(),
      Escape: () => this.select(null),
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  rowAt(y) {
    if (y < RULER) return undefined;
    const at = y - RULER + this.scroll;
    return this.rows.find((row) => at >= row.y && at < row.y + row.height);
  }

  eventAt(x, y) {
    const row = this.rowAt(y);
    if (!row?.thread || x < this.gutter) return null;
    const { thread } = row;
    const at = y - RULER + this.scroll - row.y;
    const near = (4 * (this.until - this.from)) / (this.width - this.gutter);
    const moment = this.timeAt(x);
    const distance = (event) => Math.max(event.ts - moment, moment - event.end, 0);
    let found;
    if (at < row.instants) {
      const first = firstInstant(thread.instants, moment);
      found = [thread.instants[first - 1], thread.instants[first]];
    } else {
      const lane = thread.lanes[Math.floor((at - row.instants) / LANE)];
      if (!lane) return null;
      const first = lane.first(moment);
      found = [lane.slices[first - 1], lane.slices[first]];
    }
    found = found.filter((event) => event && distance(event) <= near);
    return found.sort((a, b) => distance(a) - distance(b))[0] ?? null;
  }

  /** The event before or after the one that is selected, in its lane; without one, the first in view. */
  step(by) {
    const { selected } = this;
    if (!selected) {
      for (const { thread } of this.rows) {
        const lane = thread?.lanes[0];
        const slice = lane?.slices[lane.first(this.from)] ?? thread?.instants[firstInstant(thread.instants, this.from)];
        if (slice) {
          this.select(slice, true);
          return;
        }
      }
      return;
    }
    const beside = selected.isInstant ? selected.thread.instants : selected.thread.lanes[selected.depth].slices;
    const next = beside[selected.at + by];
    if (next) this.select(next, true);
  }

  find(text, by) {
    const wanted = text.trim().toLowerCase();
    if (!this.trace || !wanted) return;
    const all = [...this.trace.threads()].flatMap((thread) => [...thread.slices, ...thread.instants])
      .filter((event) => event.name.toLowerCase().includes(wanted) || JSON.stringify(event.args ?? "").toLowerCase().includes(wanted))
      .sort((a, b) => a.ts - b.ts);
    if (!all.length) {
      say($("trace-info"), `${this.name}: no event has “${text.trim()}”`);
      return;
    }
    const at = all.indexOf(this.selected);
    const next = (at + by + all.length) % all.length;
    say($("trace-info"), `${this.name}: event ${next + 1} of ${all.length.toLocaleString("en")} with “${text.trim()}”`);
    this.select(all[at < 0 && by < 0 ? all.length - 1 : next], true);
  }

  select(event, intoView = false) {
    this.selected = event;
    if (event && intoView) {
      if (this.closed.delete(event.thread.process.pid)) this.layout();
      const span = this.until - this.from;
      if (event.end < this.from || event.ts > this.until) this.to(event.ts - span / 2, event.ts + span / 2);
      const y = event.thread.lanesAt + (event.depth ?? 0) * LANE;
      if (y < this.scroll || y > this.scroll + this.view - RULER - 2 * LANE) this.scrollBy(y - this.scroll - this.view / 3);
    }
    this.describe();
    this.later();
  }

  zoomToSelected() {
    const { selected } = this;
    if (!selected) return;
    const length = Math.max(selected.end - selected.ts, (this.until - this.from) / 50);
    this.to(selected.ts - length * 0.3, selected.end + length * 0.3);
  }

  /** What is known of the selected event, below the picture. */
  describe() {
    const { selected } = this;
    $("event").hidden = !selected;
    if (!selected) return;
    const { thread } = selected;
    const rows = [
      ["where", `${thread.process.name || "process"} ${thread.process.pid}, ${thread.label}`],
      ["begins", `${time(selected.ts - this.trace.start, 0.001)} after the start`],
    ];
    if (!selected.isInstant) rows.push(["takes", time(selected.end - selected.ts, 0.001)]);
    if (selected.cat) rows.push(["category", selected.cat]);
    if (selected.id !== undefined) rows.push(["id", String(selected.id)]);
    const args = selected.args && typeof selected.args === "object" ? Object.entries(selected.args).slice(0, 64) : [];
    for (const [name, value] of args) rows.push([name, typeof value === "object" ? JSON.stringify(value) : String(value)]);
    // Where its flows come from and lead to.
    const flows = (selected.flows ?? []).slice(0, 16).map((flow) => {
      const own = flow.points.find((point) => point.event === selected);
      const others = flow.points.filter((point) => point.event !== selected).slice(0, 16).map((point) => {
        const by = point.ts - own.ts;
        const text = `${point.event?.name ?? "a point"} (${point.thread.process.name || "process"} ${point.thread.process.pid}, ${point.thread.label}), ${time(Math.abs(by), 0.001)} ${by < 0 ? "before" : "later"}`;
        return el("button", { type: "button", onclick: () => point.event && this.select(point.event, true) }, text);
      });
      return [flow.name || "flow", el("span", { class: "points" }, ...others)];
    });
    $("event").replaceChildren(el("h2", {}, selected.name || "(no name)"),
      el("dl", { class: "rows" }, ...[...rows, ...flows].flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, value)])));
  }

  /** How often and how long, by name, for what is in view. */
  count() {
    const names = new Map();
    for (const thread of this.trace.threads()) {
      const add = (event) => {
        if (event.end < this.from || event.ts > this.until) return;
        const entry = names.get(event.name) ?? { count: 0, timed: 0, total: 0, most: 0 };
        entry.count += 1;
        if (!event.isInstant) {
          const length = event.end - event.ts;
          entry.timed += 1;
          entry.total += length;
          entry.most = Math.max(entry.most, length);
        }
        names.set(event.name, entry);
      };
      thread.slices.forEach(add);
      thread.instants.forEach(add);
    }
    const all = [...names].sort(([, a], [, b]) => b.total - a.total || b.count - a.count);
    const rows = all.slice(0, NAMES).map(([name, entry]) => el("tr", {},
      el("td", {}, name || "(no name)"),
      el("td", {}, entry.count.toLocaleString("en")),
      ...(entry.timed ? [time(entry.total), time(entry.total / entry.timed), time(entry.most)] : ["", "", ""]).map((text) => el("td", {}, text))));
    const more = all.length > NAMES ? [el("p", { class: "muted" }, `${all.length - NAMES} more names`)] : [];
    if (this.hidden) more.push(el("p", { class: "muted" }, `${this.hidden.toLocaleString("en")} steps of flows are in view; they are drawn when there are at most ${FLOWS.toLocaleString("en")}.`));
    const heading = ["Name", "Count", "Total", "Mean", "Longest"].map((text) => el("th", { scope: "col" }, text));
    $("in-view").replaceChildren(el("h2", {}, `In view: ${time(this.until - this.from)}`),
      el("table", {}, el("thead", {}, el("tr", {}, ...heading)), el("tbody", {}, ...rows)), ...more);
  }

  // The picture.

  draw() {
    const { pen, width, view, theme } = this;
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.fillStyle = theme.panel;
    pen.fillRect(0, 0, width, view);
    pen.save();
    pen.beginPath();
    pen.rect(0, RULER, width, view - RULER);
    pen.clip();
    pen.translate(0, RULER - this.scroll);
    this.grid(0, Math.max(this.height, view), theme.line);
    const visible = this.rows.filter((row) => row.y + row.height > this.scroll && row.y < this.scroll + view);
    for (const row of visible) if (row.thread) this.drawThread(row);
    for (const row of visible) if (row.process) this.drawLabel(row);
    this.drawFlows();
    for (const row of visible) if (row.thread) this.drawLabel(row);
    pen.restore();
    this.drawRuler();
  }

  /** The distance of lines, and the first one. */
  ticks() {
    const rough = ((this.until - this.from) * 110) / (this.width - this.gutter);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const { start } = this.trace;
    return { step, first: Math.ceil((this.from - start) / step) * step };
  }

  grid(top, bottom, colour) {
    const { step, first } = this.ticks();
    this.pen.fillStyle = colour;
    for (let at = first; at + this.trace.start <= this.until; at += step) {
      const x = Math.round(this.xOf(at + this.trace.start));
      if (x >= this.gutter) this.pen.fillRect(x, top, 1, bottom - top);
    }
  }

  drawRuler() {
    const { pen, theme } = this;
    pen.fillStyle = theme.raised;
    pen.fillRect(0, 0, this.width, RULER);
    const { step, first } = this.ticks();
    pen.fillStyle = theme.muted;
    for (let at = first; at + this.trace.start <= this.until; at += step) {
      const x = this.xOf(at + this.trace.start);
      if (x < this.gutter) continue;
      pen.fillRect(Math.round(x), RULER - 6, 1, 6);
      pen.fillText(Math.abs(at) < step / 1e6 ? "0" : time(at, step), x + 4, RULER / 2);
    }
    pen.fillText(time(this.until - this.from), 10, RULER / 2);
  }

  drawThread({ thread, y, instants, height }) {
    const { pen, theme } = this;
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, y, this.width - this.gutter, height);
    pen.clip();
    thread.lanes.forEach((lane, depth) => this.drawLane(lane, y + instants + depth * LANE));
    if (instants) this.drawInstants(thread.instants, y);
    pen.restore();
    pen.fillStyle = theme.line;
    pen.fillRect(0, y + height - 1, this.width, 1);
  }

  drawLane(lane, y) {
    const { pen, theme } = this;
    const { slices } = lane;
    const pixel = (this.until - this.from) / (this.width - this.gutter);
    for (let at = lane.first(this.from); at < slices.length; at += 1) {
      const slice = slices[at];
      if (slice.ts > this.until) break;
      const x = Math.max(this.xOf(slice.ts), this.gutter - 2);
      const end = Math.min(this.xOf(slice.end), this.width + 2);
      const wide = end - x;
      pen.fillStyle = this.colour(slice.name);
      if (wide < 1.5) {
        // Many in one pixel are one bar; the next one drawn is behind it.
        pen.fillRect(x, y, 1.3, LANE - 2);
        const next = lane.first(slice.ts + pixel * 1.3);
        if (next > at + 1) at = next - 1;
        continue;
      }
      pen.fillRect(x, y, Math.max(1.5, wide - 0.6), LANE - 2);
      if (wide > 26) this.text(slice.name, x + 4, y + (LANE - 2) / 2, wide - 8, theme["slice-text"]);
    }
    const { selected } = this;
    if (selected && slices[selected.at] === selected) {
      pen.strokeStyle = theme.text;
      pen.lineWidth = 2;
      const x = this.xOf(selected.ts);
      pen.strokeRect(x - 1, y - 1, Math.max(3, this.xOf(selected.end) - x + 1), LANE);
    }
  }

  drawInstants(instants, y) {
    const { pen, theme } = this;
    const pixel = (this.until - this.from) / (this.width - this.gutter);
    let at = firstInstant(instants, this.from - 6 * pixel);
    while (at < instants.length && instants[at].ts <= this.until + 6 * pixel) {
      const instant = instants[at];
      const x = this.xOf(instant.ts);
      pen.fillStyle = this.colour(instant.name);
      pen.strokeStyle = instant === this.selected ? theme.text : theme.muted;
      pen.lineWidth = instant === this.selected ? 2 : 0.7;
      pen.beginPath();
      pen.moveTo(x - 4.5, y + 4);
      pen.lineTo(x + 4.5, y + 4);
      pen.lineTo(x, y + 13);
      pen.closePath();
      pen.fill();
      pen.stroke();
      const next = firstInstant(instants, instant.ts + pixel * 2);
      const room = (next < instants.length ? this.xOf(instants[next].ts) : this.width) - x - 14;
      if (next === at + 1 && room > 40) this.text(instant.name, x + 8, y + 9, room, theme.muted);
      at = Math.max(next, at + 1);
    }
    // In front of those beside it.
    const { selected } = this;
    if (selected?.isInstant && instants[selected.at] === selected) {
      pen.fillStyle = theme.text;
      pen.fillRect(this.xOf(selected.ts) - 1, y, 2, INSTANTS);
    }
  }

  /** Text that fits, or its beginning. */
  text(text, x, y, room, colour) {
    const { pen } = this;
    let wide = this.widths.get(text);
    if (wide === undefined) {
      wide = pen.measureText(text.slice(0, 200)).width;
      if (this.widths.size < 10_000) this.widths.set(text, wide);
    }
    let shown = text.slice(0, 200);
    if (wide > room) {
      const fits = Math.floor((room / wide) * shown.length) - 1;
      if (fits < 3) return;
      shown = `${shown.slice(0, fits)}…`;
    }
    pen.fillStyle = colour;
    pen.fillText(shown, x, y);
  }

  drawFlows() {
    const { pen, theme, selected } = this;
    const shown = [];
    for (const flow of this.trace.flows) {
      if (flow.from.ts > this.until) break;
      if (flow.to.ts < this.from || this.closed.has(flow.from.thread.process.pid) || this.closed.has(flow.to.thread.process.pid)) continue;
      shown.push(flow);
    }
    this.hidden = shown.length > FLOWS ? shown.length : 0;
    const y = ({ thread, depth }) => (depth < 0 ? thread.y + 9 : thread.lanesAt + depth * LANE + LANE / 2 - 1);
    const line = (flow) => {
      const [x1, y1, x2, y2] = [this.xOf(flow.from.ts), y(flow.from), this.xOf(flow.to.ts), y(flow.to)];
      const bend = Math.max(18, Math.min(120, Math.abs(x2 - x1) / 2));
      pen.moveTo(x1, y1);
      pen.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      return [x2, y2];
    };
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, this.scroll, this.width - this.gutter, this.view);
    pen.clip();
    pen.strokeStyle = theme.flow;
    pen.lineWidth = 1;
    pen.globalAlpha = shown.length > 300 ? 0.3 : 0.6;
    pen.beginPath();
    if (!this.hidden) shown.forEach(line);
    pen.stroke();
    pen.globalAlpha = 1;
    const own = (selected?.flows ?? []).flatMap((flow) => flow.points.slice(1).map((to, at) => ({ from: flow.points[at], to })));
    for (const step of own.slice(0, 256)) {
      pen.lineWidth = 2.2;
      pen.beginPath();
      const [x, end] = line(step);
      pen.stroke();
      pen.fillStyle = theme.flow;
      pen.beginPath();
      pen.moveTo(x, end);
      pen.lineTo(x - 8, end - 4.5);
      pen.lineTo(x - 8, end + 4.5);
      pen.fill();
    }
    pen.restore();
  }

  drawLabel({ process, thread, y, height, instants }) {
    const { pen, theme } = this;
    if (process) {
      pen.fillStyle = theme.raised;
      pen.fillRect(0, y, this.width, height);
      pen.font = `600 ${FONT}`;
      const mark = this.closed.has(process.pid) ? "▸" : "▾";
      // Measured with another font than the names of slices.
      pen.fillStyle = theme.text;
      pen.fillText(`${mark} ${(process.name || "process").slice(0, 80)} ${process.pid}`, 8, y + height / 2);
      pen.font = FONT;
      return;
    }
    pen.fillStyle = theme.panel;
    pen.fillRect(0, y, this.gutter - 1, height - 1);
    pen.fillStyle = theme.line;
    pen.fillRect(this.gutter - 1, y, 1, height);
    this.text(thread.label, 16, y + Math.min(height / 2, instants + LANE / 2), this.gutter - 24, theme.muted);
  }
}
