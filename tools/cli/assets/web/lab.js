// Labs: hosts, switches and routers in rows, their links with traffic and state.

import { el, keyed, label, say, short } from "./dom.js";

const WIDTH = 150;
const HEIGHT = 48;
const COLUMN = 196;
const ROW = 150;

export class Labs {
  constructor(parent) {
    this.parent = parent;
  }

  update(labs) {
    const key = (lab) => lab.name ?? lab.error;
    const create = () => {
      const svg = el("svg", { role: "img", "aria-label": "Hosts, switches and links" });
      const heading = el("h2");
      return { node: el("div", {}, heading, el("div", { class: "scroll" }, svg)), heading, svg, before: null, shape: "" };
    };
    keyed(this.parent, labs, key, create, (made, lab) => {
      if (lab.error) {
        say(made.heading, `${lab.name ?? "A lab"}: ${lab.error}`);
        return;
      }
      say(made.heading, `Lab ${lab.name}, running for ${Math.round(lab.age)} s`);
      draw(made, lab);
    });
  }
}

/** Places of the nodes: hosts in the lowest row. */
function places(lab) {
  const rows = new Map();
  lab.nodes.forEach((node, at) => rows.set(node.level, [...(rows.get(node.level) ?? []), at]));
  const levels = [...rows.keys()].sort((a, b) => b - a);
  const width = Math.max(2, ...[...rows.values()].map((row) => row.length)) * COLUMN;
  const place = [];
  levels.forEach((level, row) => {
    const nodes = rows.get(level);
    nodes.forEach((node, at) => { place[node] = { x: ((2 * at + 1) * width) / (2 * nodes.length), y: 80 + row * ROW }; });
  });
  return { place, width, height: 130 + (levels.length - 1) * ROW };
}

function draw(made, lab) {
  const { place, width, height } = places(lab);
  const shape = JSON.stringify([lab.nodes, lab.links.map((link) => [link.name, link.ends])]);
  if (shape !== made.shape) {
    made.shape = shape;
    made.before = null;
    made.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    made.svg.setAttribute("width", width);
    made.svg.setAttribute("height", height);
    // Several links between the same nodes lie beside each other.
    const beside = new Map();
    made.links = lab.links.map((link) => {
      const ends = [...link.ends].sort().join(" ");
      const nth = beside.get(ends) ?? 0;
      beside.set(ends, nth + 1);
      const [a, b] = link.ends.map((node) => place[node]);
      const off = (nth % 2 ? -1 : 1) * Math.ceil(nth / 2) * 92;
      // Over the nodes between two of one row.
      const over = a.y === b.y && Math.abs(a.x - b.x) > 1.5 * COLUMN ? -90 : 0;
      const [x, y] = [(a.x + b.x) / 2 + (a.y === b.y ? 0 : off), (a.y + b.y) / 2 + over + (a.y === b.y ? off : 0)];
      const path = el("path", { class: "edge link", d: `M${a.x} ${a.y}Q${x} ${y} ${b.x} ${b.y}` }, el("title", {}, link.name));
      // Half way, which is half as far from the straight line as the control point.
      const middle = [(a.x + 2 * x + b.x) / 4, (a.y + 2 * y + b.y) / 4];
      return { path, rate: label(middle[0], middle[1] - 5), state: label(middle[0], middle[1] + 14) };
    });
    const nodes = lab.nodes.map((node, at) => {
      const { x, y } = place[at];
      return el("g", {},
        el("rect", { class: node.kind === "host" ? "box" : "box head", x: x - WIDTH / 2, y: y - HEIGHT / 2, width: WIDTH, height: HEIGHT, rx: node.kind === "host" ? 9 : 20 }),
        el("text", { class: "name", x, y: y - 3, "text-anchor": "middle" }, node.name),
        el("text", { class: "muted", x, y: y + 14, "text-anchor": "middle" }, node.kind === "host" ? node.addresses[0] ?? "" : node.kind),
        el("title", {}, [node.kind, node.name, ...node.addresses].join(" ")));
    });
    const of = (get) => made.links.map(get);
    made.svg.replaceChildren(...of((l) => l.path), ...nodes, ...of((l) => [...l.rate.nodes, ...l.state.nodes]).flat());
  }
  // The state of one moment is given to several requests.
  if (made.before && lab.age <= made.before.age) return;
  const seconds = made.before ? lab.age - made.before.age : 0;
  lab.links.forEach((link, at) => {
    const { path, rate, state } = made.links[at];
    const bits = link.bytes.map((bytes, to) => (seconds > 0 ? ((bytes - made.before.links[at].bytes[to]) * 8) / seconds : 0));
    const kind = !link.up ? "cut" : link.blocked ? "idle" : link.faulty ? "faulty" : "";
    path.setAttribute("class", `edge link ${kind}`);
    path.setAttribute("stroke-width", (1.5 + Math.max(0, Math.log10((bits[0] + bits[1]) / 1e3)) * 0.6).toFixed(1));
    const [a, b] = link.ends.map((node) => lab.nodes[node].name);
    say(path.firstChild, `${link.name}: ${a} → ${b} ${short(bits[0], "bit/s")}, ${b} → ${a} ${short(bits[1], "bit/s")}${link.state ? `, ${link.state}` : ""}`);
    rate.update(bits[0] + bits[1] > 0 ? `${short(bits[0], "bit/s")} / ${short(bits[1], "bit/s")}` : "", kind);
    state.update(link.state, kind);
  });
  made.before = lab;
}
