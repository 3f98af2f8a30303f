/** The queue tree, and one queue: what it has, what holds it back, who waits in it. */
import { atMostEvery, fill, h, text } from "./dom.js";
import { amount, bare, count, label, lasting, percent, reason } from "./format.js";
import { bar, inOrder, maxOf, scaleOf, valuesOf } from "./bars.js";
import { applicationTable } from "./applications.js";
import { history } from "./history.js";
import { mapChoice } from "./overview.js";
import { Table, smallTable } from "./table.js";
import { overTime } from "./usage.js";

export function queueTree({ live, query, setQuery }) {
  const choice = mapChoice(live, query, setQuery, () => table.sortNow());
  const { options } = choice;
  const value = (queue, name) => valuesOf(live, queue, options.type)[name];
  const number = (key, title, isLess) => ({
    key, title, isNumber: true, isLess, width: "minmax(5rem, 0.8fr)",
    value: (queue) => value(queue, key) ?? -1,
    show: (queue, cell) => text(cell, value(queue, key) > 0 ? amount(options.type, value(queue, key)) : "–"),
  });
  let order = new Map();
  let held = new Map();
  const columns = [
    { key: "place", title: "Queue", width: "minmax(9rem, 1.6fr)", value: (queue) => order.get(queue.path)?.[0] ?? 0,
      show: (queue, cell) => {
        const depth = order.get(queue.path)?.[1] ?? 0;
        cell.style.setProperty("--depth", query.get("sort") ? 0 : depth);
        cell.classList.add("indented");
        text(cell, query.get("sort") || !depth ? queue.path : queue.path.slice(queue.parent.length + 1));
        cell.title = queue.path;
      } },
    { key: "share", title: "Used, pending, guaranteed, max", width: "minmax(8rem, 2.6fr)", isUnder: true,
      value: (queue) => value(queue, "used"),
      show: (queue, cell) => fill(cell, bar(options.type, valuesOf(live, queue, options.type), scaleOf(live, options.type))) },
    number("used", "Used"), number("pending", "Pending"), number("guaranteed", "Guaranteed", true), number("max", "Max", true),
    { key: "apps", title: "Running", isNumber: true, isLess: true, width: "5rem", value: (queue) => queue.runningApps,
      show: (queue, cell) => text(cell, queue.maxRunningApps ? `${count(queue.runningApps)} of ${count(queue.maxRunningApps)}` : count(queue.runningApps)) },
    { key: "status", title: "Held back by", width: "minmax(7rem, 1.6fr)", narrow: "minmax(0, 1.4fr)",
      value: (queue) => (held.get(queue.path) ?? []).map(([code]) => reason(code)).join("; ") || (queue.status === "Active" ? "" : queue.status),
      show: (queue, cell) => {
        const rows = held.get(queue.path) ?? [];
        text(cell, queue.status !== "Active" ? queue.status : rows.length ? reason(rows[0][0]) + (rows.length > 1 ? ` and ${rows.length - 1} more` : "") : "");
        cell.title = rows[0]?.[1] ?? "";
      } },
  ];
  const table = new Table({
    columns, query, onQuery: setQuery, noun: "queues", extra: [choice.by], sort: "place",
    id: (queue) => queue.path, link: (queue) => `#/queues/${encodeURIComponent(queue.path)}`,
    items: () => {
      const all = inOrder(live);
      held = live.heldBack();
      order = new Map(all.map(([queue, depth], at) => [queue.path, [at, depth]]));
      return all.map(([queue]) => queue);
    },
    empty: "No queue is configured yet: muster config apply queues.yaml",
  });
  const again = atMostEvery(400, () => table.sortNow());
  return {
    title: "Queues",
    element: h("div", {}, h("h1", {}, "Queues"), barLegend(), table.element),
    update: (changed) => (changed.all ? table.sortNow() : (changed.queues.size || changed.applications.size) && again()),
    dispose() {
      again.cancel();
      table.dispose();
    },
  };
}

const barLegend = () => h("div", { class: "legend" },
  h("span", {}, h("i", { class: "key used" }), "used"), h("span", {}, h("i", { class: "key pending" }), "pending"),
  h("span", {}, h("i", { class: "key guaranteed" }), "guaranteed"), h("span", {}, h("i", { class: "key track" }), "up to the max"));

export function queuePage({ live, name, query, setQuery }) {
  const facts = h("p", { class: "facts-line" });
  const bars = h("div", {});
  const back = h("div", {});
  const properties = h("div", {});
  const hour = history(live, { queue: name }, () => scarcestOf(live, live.queues.get(name)));
  const usage = overTime({ queue: name });
  const table = applicationTable(live, { query, setQuery, only: (item) => item.queue === name || item.queue.startsWith(`${name}.`), sort: "submitted", noun: `applications in ${name}` });
  const element = h("div", {},
    h("p", { class: "crumbs" }, h("a", { href: "#/queues" }, "Queues"), ...crumbs(name)),
    h("h1", {}, name), facts, bars, back, usage.element, hour.element, properties,
    h("h2", {}, "Applications, the oldest first"), table.element);
  const show = () => {
    const queue = live.queues.get(name);
    if (!queue) {
      text(facts, "There is no queue of this name.");
      fill(bars);
      fill(back);
      fill(properties);
      return;
    }
    const said = [queue.isLeaf ? "leaf" : "parent", queue.isManaged ? "" : "dynamic", queue.status.toLowerCase(),
      `${count(queue.runningApps)}${queue.maxRunningApps ? ` of ${count(queue.maxRunningApps)}` : ""} applications running`];
    text(facts, said.filter(Boolean).join(" · "));
    const types = live.types.filter((type) => ["allocated", "pending", "max", "guaranteed"].some((key) => live.amount(queue[key], type) > 0));
    fill(bars, types.length ? smallTable(["Resource", "", "Used", "Pending", "Guaranteed", "Max"], types.map((type) => {
      const values = valuesOf(live, queue, type);
      const own = maxOf(live, queue, type);
      const says = (value) => (value > 0 ? bare(type, value) : "–");
      return [label(type), bar(type, values, own ?? scaleOf(live, type)),
        `${says(values.used)}${own ? ` (${percent(values.used, own)})` : ""}`, says(values.pending), says(values.guaranteed), says(own)];
    }), { numbers: [2, 3, 4, 5] }) : h("p", { class: "empty" }, "Nothing is used, and nothing is limited."));
    const rows = [...live.heldBack()].filter(([path]) => path === name || path.startsWith(`${name}.`)).flatMap(([, found]) => found);
    fill(back, rows.length ? [h("h2", {}, "What holds it back"), smallTable(["Reason", "", "Pods", "For"], rows.slice(0, 20).map(([code, message, since, pods]) =>
      [reason(code), message, count(pods), since ? lasting(live.now() - since) : ""]), { numbers: [2, 3] })] : []);
    fill(properties, queue.properties.length ? [h("h2", {}, "Properties"), smallTable(["Property", "Value"], queue.properties)] : []);
  };
  const soon = atMostEvery(500, show);
  return {
    title: name, element,
    update(changed) {
      if (changed.all) show();
      else if (changed.queues.has(name) || changed.applications.size) soon();
      hour.update();
      usage.update();
      table.update(changed);
    },
    dispose() {
      soon.cancel();
      hour.dispose();
      usage.dispose();
      table.dispose();
    },
  };
}

/** The resource of which a queue uses the largest part of its max, or of what the cluster has. */
function scarcestOf(live, queue) {
  const share = (type) => live.amount(queue?.allocated, type) / (maxOf(live, queue ?? {}, type) ?? scaleOf(live, type));
  return live.scarcest().sort((a, b) => (a === "pods") - (b === "pods") || share(b) - share(a))[0] ?? "vcore";
}

function crumbs(path) {
  const names = path.split(".").slice(0, -1);
  return names.flatMap((one, at) => [" / ", h("a", { href: `#/queues/${encodeURIComponent(names.slice(0, at + 1).join("."))}` }, one)]);
}
