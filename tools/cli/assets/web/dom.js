// What all parts of the page use: elements, numbers, and requests with the token.
// Text of programs reaches the document as text only (`textContent`, attributes of SVG); the server's policy forbids anything else.

export const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
// Elements of SVG that are used here.
const DRAWN = new Set(["svg", "g", "rect", "path", "circle", "text", "tspan", "polyline", "title"]);

/** An element with attributes (`class`, `onclick` and so on) and children, which are elements or text. */
export function el(tag, attributes = {}, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** A text of a drawing that stays readable over lines, as two elements: of several fonts in one, the outline of one would cover the end of another. */
export function label(x, y) {
  const part = (name) => el("text", { class: `label ${name}`, "aria-hidden": name === "halo" ? "true" : null, x, y });
  const [halo, fill] = [part("halo"), part("fill")];
  const update = (text, kind = "") => {
    say(halo, text);
    say(fill, text);
    fill.setAttribute("class", `label fill ${kind}`);
  };
  return { nodes: [halo, fill], update };
}

/** Sets the text of an element if it is another one: what is selected stays selected. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Text in which `commands` stand between backticks. */
export function rich(text) {
  const parts = String(text).split("`");
  // One without another is a backtick.
  if (parts.length % 2 === 0) return [String(text)];
  return parts.map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

/** Makes the children of `parent` those of `items`: existing ones are updated, and stay in the document. */
export function keyed(parent, items, keyOf, create, update) {
  const before = parent.keyed ?? new Map();
  const now = new Map();
  let place = parent.firstElementChild;
  const own = new Set([...before.values()].map((made) => made.node));
  // What is in front was not made here.
  while (place && !own.has(place)) place = place.nextElementSibling;
  for (const item of items) {
    const key = keyOf(item);
    if (now.has(key)) continue;
    const made = before.get(key) ?? create(item);
    before.delete(key);
    now.set(key, made);
    update(made, item);
    if (made.node === place) place = place.nextElementSibling;
    else parent.insertBefore(made.node, place);
  }
  for (const gone of before.values()) {
    if (gone.node === place) place = place.nextElementSibling;
    gone.node.remove();
  }
  parent.keyed = now;
}

const UNITS = ["", "k", "M", "G", "T", "P", "E"];
/** Three digits and a unit. */
export function short(value, unit = "") {
  let rest = Number(value) || 0;
  let at = 0;
  while (Math.abs(rest) >= 999.5 && at + 1 < UNITS.length) {
    rest /= 1000;
    at += 1;
  }
  const digits = rest === 0 || (at === 0 && Number.isInteger(rest)) ? 0 : rest < 9.995 ? 2 : rest < 99.95 ? 1 : 0;
  const space = unit || UNITS[at] ? "\u202f" : "";
  return `${rest.toFixed(digits)}${space}${UNITS[at]}${unit}`;
}

const PATHS = new Map([["tcp", "TCP"], ["roce", "RoCEv2"], ["shared-memory", "shared memory"], ["udp", "datagrams"]]);
/** What carries messages, in words. */
export const pathName = (path) => PATHS.get(path) ?? path ?? "";
/** The same as a class of the style sheet, or none. */
export const pathClass = (path) => (PATHS.has(path) ? path : "");

const STATES = new Map(Object.entries({ Rts: "good", Rtr: "good", Err: "bad", Sqe: "bad", Terminate: "bad", Closing: "warn", Sqd: "warn" }));
/** Colour of a state: a word of the style sheet. */
export const stateClass = (state) => STATES.get(state) ?? "";
export const pairKey = (pid, adapter, number) => `${pid}/${adapter}/${number}`;
/** A queue pair's number as it is shown. */
export const pairName = (pair) => `QP ${pair.adapter ? `${pair.adapter}/` : ""}${pair.number}`;

// The token comes behind `#`, which browsers send nowhere, and is kept for this tab only.
const KEY = "verbena-token";
function takeToken() {
  const found = /^#([0-9a-f]{32})$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY);
}
let token = takeToken();
/** Whether this tab has a token. */
export const hasToken = () => Boolean(token);
/** An address with a token that was put into this tab. */
export function renewToken() {
  if (!/^#[0-9a-f]{32}$/.test(location.hash)) return false;
  token = takeToken();
  return true;
}

/** Asks the server; the answer, or an error with what it says. */
export async function ask(path) {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store", referrerPolicy: "no-referrer" });
  if (!answer.ok) {
    const error = new Error((await answer.text()).trim() || answer.statusText);
    error.status = answer.status;
    throw error;
  }
  return answer;
}
