/** The nodes as a map and a list, and one node: who is on it, and what is left. */
import { drainButton, undrainButton } from "./actions.js";
import { ask, partition } from "./api.js";
import { atMostEvery, fill, h, text, to } from "./dom.js";
import { amount, bare, count, label, lasting, percent, plural, resource } from "./format.js";
import { bar } from "./bars.js";
import { HeatMap, legend } from "./heatmap.js";
import { network } from "./network.js";
import { mapChoice } from "./overview.js";
import { Table, smallTable } from "./table.js";

const MAX_PODS = 500;

export function nodeList({ live, query, setQuery }) {
  const choice = mapChoice(live, query, setQuery, () => {
    map.layOut();
    tree.show();
    table.sortNow();
  });
  const { options } = choice;
  const map = new HeatMap(live, options);
  const tree = network(() => options.type);
  const of = (node, key) => live.amount(node[key], options.type);
  const free = (node) => of(node, "capacity") - of(node, "allocated") - of(node, "occupied");
  const number = (key, title, value, isLess = false) => ({ key, title, isNumber: true, isLess, width: "minmax(5rem, 1fr)", value, show: (node, cell) => text(cell, amount(options.type, value(node))) });
  const table = new Table({
    query, onQuery: setQuery, noun: "nodes", sort: "id",
    columns: [
      { key: "id", title: "Node", width: "minmax(9rem, 2fr)", narrow: "minmax(7rem, 2fr)", class: "strong", value: (node) => node.id },
      { key: "bar", title: "In use", width: "minmax(6rem, 2fr)", isUnder: true, value: (node) => of(node, "allocated") / (of(node, "capacity") || 1),
        show: (node, cell) => fill(cell, bar(options.type, { used: of(node, "allocated"), foreign: of(node, "occupied"), max: of(node, "capacity") }, of(node, "capacity"))) },
      number("used", "Used", (node) => of(node, "allocated"), true), number("free", "Free", free), number("capacity", "Has", (node) => of(node, "capacity"), true),
      { key: "pods", title: "Pods", isNumber: true, width: "4rem", narrow: "3rem", value: (node) => node.pods + node.foreign, show: (node, cell) => text(cell, count(node.pods + node.foreign)) },
      { key: "state", title: "State", width: "minmax(5rem, 1fr)", narrow: "4.6rem", value: (node) => (node.schedulable ? (node.reservations ? "reserved" : "") : "drained") },
    ],
    id: (node) => node.id, link: (node) => `#/nodes/${encodeURIComponent(node.id)}`, items: () => live.nodes.values(),
    empty: "There is no node: nothing can run.",
  });
  return {
    title: "Nodes",
    element: h("div", {}, h("div", { class: "title" }, h("h1", {}, "Nodes"), h("div", { class: "choices" }, choice.by, choice.grouped)), map.element, legend(), tree.element, table.element),
    update(changed) {
      map.update(changed);
      if (changed.all || changed.nodes.size) tree.update();
      if (changed.all) table.sortNow();
      else if (changed.nodes.size) {
        table.items.forEach((node, at) => {
          if (changed.nodes.has(node.id)) table.items[at] = live.nodes.get(node.id) ?? node;
        });
        table.update();
      }
    },
    dispose() {
      map.dispose();
      tree.dispose();
      table.dispose();
    },
  };
}

export function nodePage({ live, name }) {
  const facts = h("p", { class: "facts-line" });
  const bars = h("div", {});
  const pods = h("section", {});
  const change = h("span", {});
  const element = h("div", {}, h("p", { class: "crumbs" }, h("a", { href: "#/nodes" }, "Nodes")), h("h1", {}, name), facts, bars,
    h("p", { class: "choices after" }, h("a", { class: "button", href: `#/what-if?drain=${encodeURIComponent(name)}` }, "What if it is drained?"), change), pods);
  let isOver = false;
  let offered = "";
  const offer = (node) => {
    const now = node.schedulable ? "drain" : "undrain";
    if (now === offered) return;
    offered = now;
    fill(change, node.schedulable ? drainButton(name, () => live.nodes.get(name)?.pods ?? 0) : undrainButton(name));
  };
  const show = () => {
    const node = live.nodes.get(name);
    if (!node) {
      text(facts, "There is no node of this name.");
      offered = "";
      fill(change);
      return fill(bars);
    }
    offer(node);
    text(facts, [node.schedulable ? "takes pods" : "drained: takes no pods", plural(node.pods, "pod"), node.foreign ? plural(node.foreign, "foreign pod") : "",
      node.reservations ? `reserved for ${plural(node.reservations, "pod")}` : "", ...Object.entries(node.attributes).map(([key, value]) => `${key} ${value}`)].filter(Boolean).join(" · "));
    const types = live.types.filter((type) => live.amount(node.capacity, type) > 0);
    fill(bars, smallTable(["Resource", "", "Used", "Of other schedulers", "Free", "Has"], types.map((type) => {
      const [has, used, others] = ["capacity", "allocated", "occupied"].map((key) => live.amount(node[key], type));
      return [label(type), bar(type, { used, foreign: others, max: has }, has), `${bare(type, used)} (${percent(used, has)})`, others ? bare(type, others) : "–", bare(type, has - used - others), bare(type, has)];
    }), { numbers: [2, 3, 4, 5] }));
  };
  async function list() {
    try {
      const found = await ask(`/ws/v1/partition/${encodeURIComponent(partition)}/node/${encodeURIComponent(name)}`);
      if (!isOver && found) fill(pods, ...onIt(found, live));
    } catch (error) {
      fill(pods, h("p", { class: "note" }, `Its pods could not be read: ${error.message}`));
    }
  }
  const soon = atMostEvery(300, show);
  const later = atMostEvery(1500, list);
  return {
    title: name, element,
    update(changed) {
      if (changed.all) show();
      if (changed.all || changed.nodes.has(name)) {
        soon();
        later();
      }
    },
    dispose() {
      isOver = true;
      soon.cancel();
      later.cancel();
    },
  };
}

/** Who is on a node: by owner, then pod by pod; foreign pods are grey. */
function onIt(node, live) {
  const owners = new Map();
  for (const one of node.allocations ?? []) {
    if (!owners.has(one.applicationId)) owners.set(one.applicationId, []);
    owners.get(one.applicationId).push(one);
  }
  const parts = [];
  const sorted = [...owners].sort((a, b) => b[1].length - a[1].length);
  if (sorted.length) {
    parts.push(h("h2", {}, "Applications on it"), smallTable(["Application", "Queue", "Pods", "Resources"], sorted.map(([owner, all]) => {
      const sum = {};
      for (const one of all) for (const [type, value] of Object.entries(one.resource ?? {})) sum[type] = (sum[type] ?? 0) + value;
      return [to("applications", owner), live.applications.get(owner)?.queue ?? "", count(all.length), resource(sum)];
    }), { numbers: [2] }));
    const rows = sorted.flatMap(([, all]) => all).slice(0, MAX_PODS).map((one) => [
      one.allocationTags?.["kubernetes.io/meta/podName"] ?? one.allocationKey, to("applications", one.applicationId), one.placeholder ? "placeholder" : (one.taskGroupName ?? ""), resource(one.resource), lasting(live.now() - one.requestTime / 1e6)]);
    parts.push(h("h2", {}, "Pods"), smallTable(["Pod", "Application", "Group", "Resources", "Age"], rows, { numbers: [4] }));
  }
  const foreign = node.foreignAllocations ?? [];
  if (foreign.length) {
    parts.push(h("h2", {}, "Pods of other schedulers"), h("div", { class: "foreign-pods" }, smallTable(["Pod", "Resources", ""], foreign.slice(0, MAX_PODS).map((one) =>
      [one.allocationKey, resource(one.resource), one.preemptable ? "" : "static"]))));
  }
  for (const key of node.reservations ?? []) parts.push(h("p", { class: "note" }, `Reserved for pod ${key}`));
  return parts.length ? parts : [h("p", { class: "empty" }, "Nothing is on it.")];
}
