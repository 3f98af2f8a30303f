/**
 * The nodes as cells on a canvas: each a small gauge, filled from below by how much of one resource is
 * used. A node that takes no pods is crossed, one that is reserved has a corner.
 *
 * Only cells that changed are drawn again. Up to FEW nodes are tiles with their names on them.
 */
import { attribute, colour, h, sharp, text } from "./dom.js";
import { amount, count, label, ofWhole, percent, plural } from "./format.js";

const FEW = 60;
const HEADING = 22;
const STEPS = 24;
const BY_NAME = new Intl.Collator("en", { numeric: true });

export class HeatMap {
  /**
   * @param {import("./live.js").Live} live
   * @param {{type: string, group: string, marks?: Map<string, string>}} options
   */
  constructor(live, options) {
    this.live = live;
    this.options = options;
    this.cells = new Map();
    this.order = [];
    this.at = -1;
    this.width = 0;
    this.canvas = h("canvas", { tabindex: "0", role: "application", "aria-roledescription": "heat map" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.said = h("p", { class: "unseen", "aria-live": "polite" });
    this.element = h("div", { class: "heatmap" }, this.canvas, this.tip, this.said);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.select(-1));
    this.canvas.addEventListener("blur", () => this.select(-1));
    this.canvas.addEventListener("click", () => this.open());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.watcher = new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - this.width) > 1) this.layOut();
    });
    this.watcher.observe(this.element);
  }

  dispose() {
    this.watcher.disconnect();
  }

  /** Draw what has changed. */
  update(changed) {
    const names = changed.nodes;
    const isOther = changed.all || [...names].some((name) => this.live.nodes.has(name) !== this.cells.has(name));
    if (isOther || !this.width) return this.layOut();
    if (!names.size) return;
    const context = this.context();
    for (const name of names) this.draw(context, this.cells.get(name));
    this.describe();
    if (this.at >= 0) this.tell();
  }

  groups() {
    const { group } = this.options;
    const found = new Map();
    for (const node of this.live.nodes.values()) {
      const name = group === "capacity" ? this.classOf(node) : group ? (node.attributes[group] ?? "other") : "";
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(node);
    }
    for (const nodes of found.values()) nodes.sort((a, b) => BY_NAME.compare(a.id, b.id)); // one that returns has its place again
    return [...found].sort(([a], [b]) => BY_NAME.compare(a, b));
  }

  classOf(node) {
    return this.live.offered().filter((type) => type !== "pods" && this.live.amount(node.capacity, type))
      .map((type) => `${label(type)} ${amount(type, this.live.amount(node.capacity, type))}`).join(" · ") || "nothing";
  }

  layOut() {
    const width = Math.floor(this.element.clientWidth);
    if (!width) return;
    this.width = width;
    const groups = this.groups();
    const total = this.live.nodes.size;
    this.isFew = total <= FEW;
    const pitch = this.isFew ? 0 : Math.max(5, Math.min(26, Math.floor(Math.sqrt((width * 300) / total))));
    const across = this.isFew ? Math.max(2, Math.min(10, Math.floor(width / 108))) : Math.floor(width / pitch);
    const w = this.isFew ? width / across : pitch;
    const t = this.isFew ? 52 : pitch;
    const gap = this.isFew ? 6 : pitch > 10 ? 2 : 1;
    this.cells.clear();
    this.order = [];
    this.headings = [];
    this.across = across;
    let y = 0;
    for (const [name, nodes] of groups) {
      if (groups.length > 1) {
        this.headings.push([name, nodes.length, y]);
        y += HEADING;
      }
      nodes.forEach((node, at) => {
        const cell = { name: node.id, x: (at % across) * w, y: y + Math.floor(at / across) * t, w: w - gap, t: t - gap };
        this.cells.set(node.id, cell);
        this.order.push(cell);
      });
      y += Math.ceil(nodes.length / across) * t + (groups.length > 1 ? 10 : 0);
    }
    this.pitch = { w, t };
    this.height = Math.max(y, 1);
    const context = this.context();
    context.clearRect(0, 0, width, this.height);
    context.textBaseline = "middle";
    for (const [name, nodes, top] of this.headings) {
      context.fillStyle = colour("ink-2");
      context.font = "12px " + colour("sans");
      context.fillText(`${name}  ·  ${count(nodes)}`, 0, top + HEADING / 2 - 1);
    }
    for (const cell of this.order) this.draw(context, cell);
    this.describe();
  }

  context() {
    return sharp(this.canvas, this.width, this.height);
  }

  /** What a node has of the resource: whole, used, taken by others, their share. */
  use(node) {
    const { live, options } = this;
    const whole = live.amount(node.capacity, options.type);
    const used = live.amount(node.allocated, options.type);
    const others = live.amount(node.occupied, options.type);
    return { whole, used, others, share: whole > 0 ? Math.min(1, Math.max(0, (used + others) / whole)) : -1 };
  }

  draw(context, cell) {
    const node = this.live.nodes.get(cell?.name);
    if (!node) return;
    const { x, y, w, t } = cell;
    const { whole, others, share } = this.use(node);
    context.clearRect(x - 0.5, y - 0.5, w + 1, t + 1);
    context.fillStyle = colour("cell");
    if (share < 0) {
      context.strokeStyle = colour("line");
      context.strokeRect(x + 0.5, y + 0.5, w - 1, t - 1);
    } else {
      context.fillRect(x, y, w, t);
      const high = this.isFew ? 8 : t;
      const filled = share > 0 ? Math.max(1, this.isFew ? w * share : high * share) : 0;
      context.fillStyle = ramp(share);
      if (this.isFew) context.fillRect(x, y + t - high, filled, high);
      else context.fillRect(x, y + t - filled, w, filled);
      if (others > 0) {
        context.fillStyle = colour("foreign");
        const part = Math.min(1, others / whole);
        if (this.isFew) context.fillRect(x, y + t - high, w * part, high);
        else context.fillRect(x, y + t - high * part, w, high * part);
      }
    }
    this.signs(context, cell, node);
    if (this.isFew) this.name(context, cell, node, share);
  }

  signs(context, { name, x, y, w, t }, node) {
    if (!node.schedulable) {
      context.strokeStyle = colour("ink-2");
      context.lineWidth = this.isFew ? 1.5 : 1;
      context.beginPath();
      const [top, size] = this.isFew ? [y + 8, 12] : [y + 1, t - 2];
      const left = this.isFew ? x + w - 20 : x + 1;
      const wide = this.isFew ? 12 : w - 2;
      context.moveTo(left, top + size);
      context.lineTo(left + wide, top);
      context.stroke();
      context.lineWidth = 1;
    }
    if (node.reservations) {
      const size = this.isFew ? 9 : Math.max(3, t * 0.4);
      context.fillStyle = colour("reserved");
      context.beginPath();
      context.moveTo(x + w, y);
      context.lineTo(x + w - size, y);
      context.lineTo(x + w, y + size);
      context.fill();
    }
    const mark = this.options.marks?.get(name);
    if (mark) {
      context.strokeStyle = colour(mark);
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, w - 2, t - 2);
      context.lineWidth = 1;
    }
    if (this.order[this.at]?.name === name) {
      context.strokeStyle = colour("ink");
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, w - 2, t - 2);
      context.lineWidth = 1;
    }
  }

  name(context, { x, y, w }, node, share) {
    context.textBaseline = "middle";
    context.font = "12px " + colour("sans");
    context.fillStyle = colour("ink");
    context.fillText(fitted(context, node.id, w - 16), x + 8, y + 14);
    context.fillStyle = colour("ink-2");
    context.font = "11px " + colour("sans");
    const pods = plural(node.pods + node.foreign, "pod");
    context.fillText(fitted(context, share < 0 ? "has none" : `${Math.round(share * 100)} %  ·  ${pods}`, w - 12), x + 8, y + 29);
  }

  describe() {
    let full = 0;
    let drained = 0;
    for (const node of this.live.nodes.values()) {
      full += this.use(node).share >= 0.999;
      drained += !node.schedulable;
    }
    const what = `${plural(this.live.nodes.size, "node")} by ${label(this.options.type)}: ${count(full)} full, ${count(drained)} drained. Arrow keys move, Enter opens a node.`;
    attribute(this.canvas, "aria-label", what);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    this.select(this.order.findIndex((c) => x >= c.x && x < c.x + this.pitch.w && y >= c.y && y < c.y + this.pitch.t));
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.across, ArrowUp: -this.across }[event.key];
    if (step) {
      event.preventDefault();
      this.select(Math.min(this.order.length - 1, Math.max(0, this.at + (this.at < 0 ? 1 : step))));
      text(this.said, this.tip.textContent);
    } else if (event.key === "Enter") this.open();
    else if (event.key === "Escape") this.select(-1);
  }

  select(at) {
    if (at === this.at) return;
    const before = this.order[this.at];
    this.at = at;
    const context = this.context();
    if (before) this.draw(context, before);
    this.canvas.style.cursor = at >= 0 ? "pointer" : "";
    this.tip.hidden = at < 0;
    if (at < 0) return;
    this.draw(context, this.order[at]);
    this.tell();
  }

  tell() {
    const cell = this.order[this.at];
    const node = this.live.nodes.get(cell.name);
    if (!node) return;
    const { whole, used, others } = this.use(node);
    const { type } = this.options;
    const [part, all, unit] = ofWhole(type, used, whole);
    const lines = [
      h("strong", {}, node.id),
      h("span", {}, whole ? `${part} of ${all} ${unit} ${label(type)} · ${percent(used, whole)}` : `has no ${label(type)}`),
      h("span", {}, plural(node.pods, "pod")),
    ];
    if (node.foreign) lines.push(h("span", {}, `${plural(node.foreign, "foreign pod")}, ${amount(type, others)}`));
    if (!node.schedulable) lines.push(h("span", {}, "takes no pods: drained"));
    if (node.reservations) lines.push(h("span", {}, `reserved for ${plural(node.reservations, "pod")}`));
    this.tip.replaceChildren(...lines);
    const left = Math.min(Math.max(0, cell.x - 20), Math.max(0, this.width - 230));
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${cell.y + cell.t + 8}px`;
  }

  open() {
    const cell = this.order[this.at];
    if (cell) location.hash = `#/nodes/${encodeURIComponent(cell.name)}`;
  }
}

const mixes = new Map();
/** The colour of a share from 0 to 1, in STEPS steps between the theme's three. */
function ramp(share) {
  const at = Math.round(share * STEPS);
  const key = `${colour("heat-from")}${at}`;
  if (!mixes.has(key)) {
    const [from, middle, to] = ["heat-from", "heat-middle", "heat-to"].map((name) => rgb(colour(name)));
    const part = at / STEPS;
    const [a, b, t] = part < 0.5 ? [from, middle, part * 2] : [middle, to, part * 2 - 1];
    mixes.set(key, `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * t)).join(" ")})`);
  }
  return mixes.get(key);
}

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function fitted(context, name, width) {
  if (context.measureText(name).width <= width) return name;
  let end = name.length;
  while (end > 1 && context.measureText(`${name.slice(0, end)}…`).width > width) end--;
  return `${name.slice(0, end)}…`;
}

/** The legend below a heat map. */
export function legend() {
  return h("div", { class: "legend" },
    h("span", { class: "scale" }, h("span", {}, "empty"), h("i"), h("span", {}, "full")),
    h("span", {}, h("i", { class: "key foreign" }), "pods of other schedulers"),
    h("span", {}, h("i", { class: "key drained" }), "drained"),
    h("span", {}, h("i", { class: "key reserved" }), "reserved"));
}
