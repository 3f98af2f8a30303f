/** Amounts, shares and times as people write them. */

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const IN_BYTES = /^(memory|ephemeral-storage|hugepages-)/;
const plain = new Intl.NumberFormat("en");

export const count = (value) => plain.format(value);

/** An amount of a resource type with its unit: [number, unit]. */
export function parts(type, value) {
  if (type === "vcore") return [trimmed(value / 1000), value === 1000 ? "core" : "cores"];
  if (IN_BYTES.test(type)) {
    let at = 0;
    while (Math.abs(value) >= 1024 && at < BYTES.length - 1) {
      value /= 1024;
      at++;
    }
    return [trimmed(value), BYTES[at]];
  }
  return [count(value), type === "pods" ? (value === 1 ? "pod" : "pods") : ""];
}

export function amount(type, value) {
  const [number, unit] = parts(type, value);
  return unit ? `${number}\u202f${unit}` : number;
}

/** Part of whole in one unit: "412 of 600". */
export function ofWhole(type, part, whole) {
  const [wholeNumber, unit] = parts(type, whole);
  if (IN_BYTES.test(type)) {
    const step = 1024 ** BYTES.indexOf(unit);
    return [trimmed(part / step), wholeNumber, unit];
  }
  return [parts(type, part)[0], wholeNumber, unit];
}

function trimmed(value) {
  return plain.format(Math.abs(value) >= 100 ? Math.round(value) : Math.round(value * 10) / 10);
}

export function label(type) {
  const known = { vcore: "CPU", memory: "Memory", pods: "Pods", "ephemeral-storage": "Scratch disk" };
  if (known[type]) return known[type];
  const gpu = /^(?:nvidia|amd|intel)\.com\/gpu$/.exec(type);
  return gpu ? "GPU" : type;
}

/** A whole resource {type: value} in one line, the usual types first. */
export function resource(amounts) {
  const order = (name) => ["vcore", "memory", "pods"].indexOf(name) + 1 || 9;
  const names = Object.keys(amounts ?? {}).sort((a, b) => order(a) - order(b) || a.localeCompare(b));
  const said = names.filter((name) => name !== "pods" || names.length === 1);
  return said.map((name) => {
    const [number, unit] = parts(name, amounts[name]);
    const named = { vcore: unit, memory: unit, pods: "pods" }[name] ?? (unit ? `${unit} ${label(name)}` : label(name));
    return `${number}\u202f${named}`;
  }).join(", ") || "–";
}

/** An amount beside its type's name: pods need no unit there. */
export const bare = (type, value) => (type === "pods" ? count(value) : amount(type, value));

export function percent(part, whole) {
  if (!(whole > 0)) return "–";
  const share = (100 * part) / whole;
  return `${share > 0 && share < 1 ? "<1" : Math.round(share)}\u202f%`;
}

/** How long, in the two largest units: "14 m", "2 h 5 m". */
export function lasting(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s}\u202fs`;
  if (s < 3600) return `${Math.floor(s / 60)}\u202fm`;
  if (s < 86400) {
    const m = Math.floor((s % 3600) / 60);
    return `${Math.floor(s / 3600)}\u202fh${m ? ` ${m}\u202fm` : ""}`;
  }
  const h = Math.floor((s % 86400) / 3600);
  return `${Math.floor(s / 86400)}\u202fd${h ? ` ${h}\u202fh` : ""}`;
}

const LONG_MS = 5 * 60_000;
const VERY_LONG_MS = 30 * 60_000;
/** Show how long something has waited, in the colour of a long wait, or of a very long one. */
export function showAge(element, ms) {
  if (element.textContent !== lasting(ms)) element.textContent = lasting(ms);
  element.dataset.wait = ms >= VERY_LONG_MS ? "very-long" : ms >= LONG_MS ? "long" : "";
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
export const exact = (ms) => (ms ? new Date(ms).toISOString().replace("T", " ") : "");

/** Milliseconds of a message: "0.4 ms", "12 ms", "3.1 s". */
export function took(ms) {
  if (ms >= 1000) return `${trimmed(ms / 1000)}\u202fs`;
  return `${ms >= 10 ? Math.round(ms) : Math.round(ms * 100) / 100}\u202fms`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A reason of the closed vocabulary in words. */
const WORDS = {
  QUEUE_QUOTA: "queue is full",
  USER_QUOTA: "limit of its user is reached",
  GANG_HEADROOM: "queue has no room for the whole gang",
  GANG_PLACES: "nodes have no room for every member",
  GANG_PATIENCE: "an older gang goes first",
  GANG_PLACEHOLDERS_PENDING: "waits for its placeholders",
  AWAITING_REPLACEMENT: "takes the place of a placeholder",
  REPLACING: "its placeholder is being deleted",
  MAX_APPLICATIONS: "queue runs as many as it may",
  ANOTHER_STARTING: "another one is starting",
  BACKOFF: "tried again after a pause",
  RESERVED: "nodes are reserved for others",
  REQUIRED_NODE: "its one node is full or missing",
  NO_NODE_FITS: "no node has enough free now",
  NODE_TOO_SMALL: "no node is large enough",
  CONSTRAINTS: "no node matches its constraints",
  OTHER_PODS: "other pods leave no node open",
  VOLUMES: "its volumes find no node",
  DEVICES: "waits for its devices",
  TOPOLOGY: "no room where its gang is",
  NO_NODES: "there is no node",
  PLUGIN: "a plugin refuses it",
  APPLICATION_ENDING: "it is ending",
  POD_GROUP: "waits for its PodGroup",
  SCHEDULING_GATED: "has scheduling gates",
  POD_REFUSED: "cannot be scheduled",
  MISSING_RIGHTS: "Muster lacks a right",
};
export const reason = (name) => WORDS[name] ?? name.toLowerCase().replaceAll("_", " ");
