/** Bars of one resource: allocated, on top of it pending, the guarantee as a mark, up to the max. */
import { h } from "./dom.js";
import { amount, label, percent } from "./format.js";

/**
 * A bar on a scale from 0 to `scale`.
 * @param {{used: number, pending?: number, guaranteed?: number|null, max?: number|null, foreign?: number}} values
 */
export function bar(type, values, scale) {
  const { used, pending = 0, guaranteed = null, max = null, foreign = 0 } = values;
  const part = (value) => `${Math.min(100, Math.max(0, (100 * value) / (scale || 1)))}%`;
  const says = [
    `${amount(type, used)} used`,
    foreign ? `${amount(type, foreign)} of other schedulers` : "",
    pending ? `${amount(type, pending)} pending` : "",
    guaranteed !== null && guaranteed > 0 ? `${amount(type, guaranteed)} guaranteed` : "",
    max !== null ? `${amount(type, max)} at most` : "no max",
  ].filter(Boolean).join(", ");
  const element = h("span", { class: "gauge", role: "img", "aria-label": `${label(type)}: ${says}`, title: says });
  const piece = (name, left, width) => {
    const one = h("i", { class: name });
    one.style.left = left;
    if (width) one.style.width = width;
    element.append(one);
  };
  piece("track", "0%", part(max ?? scale));
  piece("used", "0%", part(used));
  if (foreign) piece("others", part(used), part(foreign));
  if (pending) piece("pending", part(used + foreign), part(Math.min(pending, Math.max(0, scale - used - foreign))));
  if (guaranteed !== null && guaranteed > 0) piece("guaranteed", part(guaranteed));
  return element;
}

/** The queues in the order of the tree: [queue, depth]. */
export function inOrder(live) {
  const children = new Map();
  for (const queue of live.queues.values()) {
    if (!children.has(queue.parent)) children.set(queue.parent, []);
    children.get(queue.parent).push(queue);
  }
  const found = [];
  const walk = (parent, depth) => {
    for (const queue of (children.get(parent) ?? []).sort((a, b) => a.path.localeCompare(b.path))) {
      found.push([queue, depth]);
      walk(queue.path, depth + 1);
    }
  };
  walk("", 0);
  return found;
}

/** How much is the whole of a bar: what the cluster has, or what is used where that is unknown. */
export function scaleOf(live, type) {
  return live.amount(live.partition.capacity, type) || live.amount(live.partition.allocated, type) || 1;
}

/** The least max on the way up that is set for a type, or null. */
export function maxOf(live, queue, type) {
  const at = live.types.indexOf(type);
  const own = queue.max?.[at];
  return own > 0 ? own : null;
}

export function valuesOf(live, queue, type) {
  return {
    used: live.amount(queue.allocated, type),
    pending: live.amount(queue.pending, type),
    guaranteed: live.amount(queue.guaranteed, type),
    max: maxOf(live, queue, type),
  };
}

/** The tree as lines with bars; at most `most`, then how many more. */
export function tree(live, type, most) {
  const all = inOrder(live);
  const scale = scaleOf(live, type);
  const lines = all.slice(0, most).map(([queue, depth]) => {
    const values = valuesOf(live, queue, type);
    const name = depth ? queue.path.slice(queue.parent.length + 1) : queue.path;
    const whole = values.max ?? scale;
    const line = h("a", { class: "queue-line", href: `#/queues/${encodeURIComponent(queue.path)}`, title: queue.path },
      h("span", { class: "name" }, name), bar(type, values, scale), h("span", { class: "share" }, percent(values.used, whole)));
    line.style.setProperty("--depth", depth);
    return line;
  });
  if (all.length > most) lines.push(h("a", { class: "more", href: "#/queues" }, `${all.length - most} more`));
  return lines;
}
