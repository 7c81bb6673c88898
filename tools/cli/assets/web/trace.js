// A trace in memory: Chrome's trace-event JSON as threads with lanes of slices, instants, and flows between them.
// Files of other programs are taken as they are: what has no time is left out and counted, and a file that ends in the middle is cut there.

// Rows of slices that overlap in one thread; further ones are drawn over the last.
const LANES = 48;

/** The value of the file; one that was cut off is ended behind its last whole event. */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    const end = text.lastIndexOf("}");
    const closing = text.trimStart().startsWith("[") ? "]" : "]}";
    for (let at = end, tries = 0; at > 0 && tries < 4; at = text.lastIndexOf("}", at - 1), tries += 1) {
      try {
        return JSON.parse(text.slice(0, at + 1) + closing);
      } catch { /* the next one */ }
    }
    throw error;
  }
}

class Thread {
  constructor(process, tid) {
    this.process = process;
    this.tid = tid;
    this.name = "";
    this.order = 0;
    this.slices = [];
    this.instants = [];
    this.lanes = [];
  }

  get label() {
    // Threads of a program often have one name.
    if (this.name) return `${this.name} ${this.tid}`;
    return typeof this.tid === "number" ? `thread ${this.tid}` : String(this.tid);
  }
}

/** Slices in lanes without overlaps, which are searched by time. */
class Lane {
  constructor() {
    this.slices = [];
    this.end = -Infinity;
  }

  /** The first slice that ends behind a time. */
  first(time) {
    let [low, high] = [0, this.slices.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.slices[middle].end <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** The first of these instants at or behind a time. */
export function firstInstant(instants, time) {
  let [low, high] = [0, instants.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (instants[middle].ts < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class Trace {
  constructor(text) {
    const file = parse(text);
    const events = Array.isArray(file) ? file : file?.traceEvents;
    if (!Array.isArray(events)) throw new Error("the file has no array `traceEvents`");
    // What `verbena trace` had no room for.
    this.lost = Number(file.otherData?.lost) || 0;
    this.processes = new Map();
    this.left = 0;
    this.count = 0;
    const flows = new Map();
    const open = new Map();
    for (const event of events) this.take(event, flows, open);
    // What has begun and not ended is shown until the end.
    for (const stack of open.values()) for (const slice of stack) slice.end = Infinity;
    this.finish(flows);
  }

  thread(pid, tid) {
    let process = this.processes.get(pid);
    if (!process) {
      process = { pid, name: "", order: 0, threads: new Map() };
      this.processes.set(pid, process);
    }
    let thread = process.threads.get(tid);
    if (!thread) {
      thread = new Thread(process, tid);
      process.threads.set(tid, thread);
    }
    return thread;
  }

  take(event, flows, open) {
    if (typeof event !== "object" || event === null) {
      this.left += 1;
      return;
    }
    const { ph, pid = 0, tid = 0 } = event;
    const ts = Number(event.ts);
    if (ph === "M") {
      this.metadata(event);
      return;
    }
    if (!Number.isFinite(ts)) {
      this.left += 1;
      return;
    }
    const text = (value) => (value === undefined ? "" : String(value));
    const slice = (thread, end) => {
      const made = { name: text(event.name), cat: text(event.cat), ts, end, args: event.args, id: event.id, thread };
      thread.slices.push(made);
      this.count += 1;
      return made;
    };
    const isAsync = ph === "b" || ph === "e" || ph === "n";
    const thread = this.thread(pid, isAsync ? `${text(event.cat)} (asynchronous)` : tid);
    // Which begin an end belongs to.
    const key = isAsync ? `a${pid}/${text(event.cat)}/${text(event.id)}` : `d${pid}/${tid}`;
    switch (ph) {
      case "X":
        slice(thread, ts + Math.max(0, Number(event.dur) || 0));
        break;
      case "B":
      case "b":
        if (!open.has(key)) open.set(key, []);
        open.get(key).push(slice(thread, ts));
        break;
      case "E":
      case "e": {
        const begun = open.get(key)?.pop();
        if (begun) begun.end = Math.max(begun.ts, ts);
        else this.left += 1;
        break;
      }
      case "i":
      case "I":
      case "n":
      case "R":
        thread.instants.push({ name: text(event.name), cat: text(event.cat), ts, end: ts, args: event.args, id: event.id, thread, isInstant: true });
        this.count += 1;
        break;
      case "s":
      case "t":
      case "f": {
        const name = `${text(event.cat)}/${text(event.id)}`;
        if (!flows.has(name)) flows.set(name, []);
        flows.get(name).push({ ts, thread, name: text(event.name), id: event.id, ph });
        break;
      }
      default:
        this.left += 1;
    }
  }

  metadata({ name, pid = 0, tid = 0, args }) {
    const thread = () => this.thread(pid, tid);
    switch (name) {
      case "process_name":
        thread().process.name = String(args?.name ?? "");
        break;
      case "thread_name":
        thread().name = String(args?.name ?? "");
        break;
      case "process_sort_index":
        thread().process.order = Number(args?.sort_index) || 0;
        break;
      case "thread_sort_index":
        thread().order = Number(args?.sort_index) || 0;
        break;
      default:
    }
  }

  finish(flows) {
    this.start = Infinity;
    this.end = -Infinity;
    const span = (event) => {
      this.start = Math.min(this.start, event.ts);
      this.end = Math.max(this.end, event.ts, Number.isFinite(event.end) ? event.end : event.ts);
    };
    for (const thread of this.threads()) {
      thread.slices.forEach(span);
      thread.instants.forEach(span);
    }
    if (this.start > this.end) [this.start, this.end] = [0, 1];
    if (this.end === this.start) this.end = this.start + 1;
    for (const thread of this.threads()) {
      for (const slice of thread.slices) slice.end = Math.min(slice.end, this.end);
      thread.slices.sort((a, b) => a.ts - b.ts || b.end - a.end);
      thread.instants.sort((a, b) => a.ts - b.ts);
      for (const slice of thread.slices) {
        let depth = thread.lanes.findIndex((lane) => lane.end <= slice.ts);
        if (depth < 0) depth = Math.min(thread.lanes.length, LANES - 1);
        if (depth === thread.lanes.length) thread.lanes.push(new Lane());
        const lane = thread.lanes[depth];
        slice.depth = depth;
        slice.at = lane.slices.push(slice) - 1;
        lane.end = Math.max(lane.end, slice.end);
      }
      thread.instants.forEach((instant, at) => { instant.at = at; });
    }
    for (const process of this.processes.values()) {
      // Names without events are no rows.
      const used = [...process.threads.values()].filter((thread) => thread.slices.length || thread.instants.length);
      process.rows = used.sort((a, b) => a.order - b.order || String(a.tid).localeCompare(String(b.tid), "en", { numeric: true }));
    }
    this.order = [...this.processes.values()].filter((process) => process.rows.length);
    this.order.sort((a, b) => a.order - b.order || String(a.pid).localeCompare(String(b.pid), "en", { numeric: true }));
    // Lines from one point of a flow to the next; how many flows they belong to.
    this.flows = [];
    this.chains = 0;
    for (const points of flows.values()) {
      points.sort((a, b) => a.ts - b.ts || "stf".indexOf(a.ph) - "stf".indexOf(b.ph));
      if (points.length < 2) continue;
      const flow = { name: points[0].name, points: points.map((point) => this.bind(point)) };
      this.chains += 1;
      flow.points.forEach((point, at) => {
        if (at > 0) this.flows.push({ from: flow.points[at - 1], to: point });
        const { event } = point;
        if (event && event.flows?.at(-1) !== flow) (event.flows ??= []).push(flow);
      });
    }
    this.flows.sort((a, b) => a.from.ts - b.from.ts);
  }

  /** The innermost slice around a point of a flow, or the instant of that time. */
  bind({ ts, thread }) {
    for (let depth = thread.lanes.length - 1; depth >= 0; depth -= 1) {
      const { slices } = thread.lanes[depth];
      // The last one that begins at or before the time.
      let [low, high] = [0, slices.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (slices[middle].ts <= ts) low = middle + 1;
        else high = middle;
      }
      const slice = slices[low - 1];
      if (slice && slice.end >= ts) return { ts, thread, depth, event: slice };
    }
    const instant = thread.instants[firstInstant(thread.instants, ts)];
    return { ts, thread, depth: -1, event: instant?.ts === ts ? instant : undefined };
  }

  * threads() {
    for (const process of this.processes.values()) yield* process.threads.values();
  }
}
