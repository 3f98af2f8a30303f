/** What is seen first: is it full, what waits and why, what was evicted. */
import { atMostEvery, attribute, fill, h, s, text, to } from "./dom.js";
import { clock, count, exact, label, lasting, ofWhole, percent, plural, reason, showAge } from "./format.js";
import { drawMembers, members } from "./gang.js";
import { HeatMap, legend } from "./heatmap.js";
import { history } from "./history.js";
import { tree } from "./bars.js";
import { isQuiet, linkOf, what } from "./events.js";

const MOST_WAITING = 8;
const MOST_METERS = 3; // of the resources beside the scarcest one
const MOST_QUEUES = 12;
const MOST_LATELY = 8;

/** The choice of resource and of grouping, kept in the address. */
export function mapChoice(live, query, setQuery, changed) {
  const types = live.scarcest();
  const asked = query.get("by");
  const options = { type: types.includes(asked) ? asked : (types[0] ?? "vcore"), isAsked: types.includes(asked), group: query.get("group") ?? "" };
  const pick = (name, values, title) => {
    const select = h("select", { "aria-label": title }, ...values.map(([value, says]) => h("option", { value, selected: value === options[name] }, says)));
    select.addEventListener("change", () => {
      options[name] = select.value;
      if (name === "type") options.isAsked = true;
      query.set(name === "type" ? "by" : "group", select.value);
      if (!select.value) query.delete("group");
      setQuery(query);
      changed();
    });
    return select;
  };
  const attributes = new Set();
  for (const node of live.nodes.values()) for (const name of Object.keys(node.attributes)) attributes.add(name);
  const groups = [["", "as one"], ["capacity", "by size"], ...[...attributes].map((name) => [name, `by ${name}`])];
  return { options, by: pick("type", types.map((type) => [type, label(type)]), "Resource"), grouped: pick("group", groups, "Group nodes") };
}

export function overview({ live, query, setQuery }) {
  const choice = mapChoice(live, query, setQuery, () => {
    showAll();
    map.layOut();
    hour.show();
  });
  const { options } = choice;
  const map = new HeatMap(live, options);
  const hour = history(live, { queue: "root" }, () => options.type);
  const facts = h("section", { class: "facts", "aria-label": "In numbers" });
  const queues = h("div", { class: "tree" });
  const lately = h("ol", { class: "lately" });
  const waiting = h("div", { class: "cards" });
  const waitingTitle = h("h2", {}, "Waiting");
  const element = h("div", { class: "overview" },
    h("h1", { class: "unseen" }, "Overview"),
    facts,
    h("section", { class: "wide" },
      h("div", { class: "title" }, h("h2", {}, "Nodes"), h("div", { class: "choices" }, choice.by, choice.grouped)),
      map.element, legend()),
    hour.element,
    h("div", { class: "column" },
      h("section", {}, h("div", { class: "title" }, h("h2", {}, "Queues"), h("a", { href: "#/queues" }, "all queues")), queues),
      h("section", {}, h("div", { class: "title" }, h("h2", {}, "Recent events"), h("a", { href: "#/events" }, "all events")), lately)),
    h("section", {}, h("div", { class: "title" }, waitingTitle, h("a", { href: "#/applications" }, "all applications")), waiting));
  const show = makeFacts(live, options, facts);
  const showQueues = () => fill(queues, ...tree(live, options.type, MOST_QUEUES));
  const cards = new Map();
  const showWaiting = () => {
    const all = live.waiting();
    text(waitingTitle, all.length ? `Waiting · ${count(all.length)}` : "Waiting");
    const seen = all.slice(0, MOST_WAITING);
    for (const name of [...cards.keys()]) if (!seen.some((item) => item.id === name)) cards.delete(name);
    const shown = seen.map((item) => {
      if (!cards.has(item.id)) cards.set(item.id, card(item));
      const made = cards.get(item.id);
      made.show(item, live);
      return made.element;
    });
    const none = live.applications.size
      ? h("p", { class: "empty" }, "No application waits.")
      : h("p", { class: "empty" }, "No application yet. Submit one: ", h("code", {}, "muster submit -f job.yaml"));
    const same = waiting.children.length === shown.length && shown.every((one, at) => waiting.children[at] === one);
    if (!shown.length) fill(waiting, none);
    else if (!same) fill(waiting, ...shown);
    for (const item of seen) cards.get(item.id).draw(item);
  };
  const showLately = () => {
    const told = live.events.filter((event) => event.type !== "USERGROUP" && (event.type === "REQUEST" || !isQuiet(event))).slice(-MOST_LATELY);
    fill(lately, ...(told.length ? told.reverse().map((event) => {
      const [view, name] = linkOf(event);
      return h("li", {}, h("time", { title: exact(event.time) }, clock(event.time)), to(view, name), h("span", {}, event.message || what(event)));
    }) : [h("li", { class: "empty" }, "Nothing has happened yet.")]));
  };
  function showAll() {
    showLately();
    show();
    showQueues();
    showWaiting();
  }
  const soon = atMostEvery(500, showAll);
  return {
    title: "",
    element,
    update(changed) {
      map.update(changed);
      hour.update();
      if (changed.all) showAll();
      else soon();
    },
    dispose() {
      map.dispose();
      hour.dispose();
      soon.cancel();
    },
  };
}

function card() {
  const canvas = h("canvas", { role: "img" });
  const name = h("strong", {});
  const age = h("span", { class: "age" });
  const queue = h("span", { class: "queue" });
  const why = h("span", { class: "why" });
  const element = h("a", { class: "card" }, h("span", { class: "line" }, name, queue, age), canvas, why);
  return {
    element,
    show(item, live) {
      attribute(element, "href", `#/applications/${encodeURIComponent(item.id)}`);
      text(name, item.id);
      text(queue, item.queue);
      showAge(age, live.now() - item.submitted);
      const [code, message] = live.why(item) ?? ["", "has not been tried yet"];
      text(why, code ? `${reason(code)}: ${message}` : message);
    },
    draw(item) {
      const width = Math.min(320, element.clientWidth - 24);
      if (width > 20) drawMembers(canvas, members(item), width, 8, { oneLine: true });
    },
  };
}

function makeFacts(live, options, element) {
  const fact = (link) => {
    const number = h("span", { class: "number" });
    const rest = h("span", { class: "rest" });
    const more = h("span", { class: "more" });
    const box = h("a", { class: "fact", href: link }, h("span", { class: "head" }, number, rest), more);
    return { box, set(a, b, c) {
      text(number, a);
      text(rest, b);
      text(more, c);
    } };
  };
  const use = fact("#/nodes");
  const line = s("polyline", { fill: "none" });
  const spark = s("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, line);
  const meters = h("span", { class: "meters" });
  use.box.append(spark, meters);
  const waits = fact("#/applications?sort=submitted&filter=accepted");
  const evictions = fact("#/evictions");
  const nodes = fact("#/nodes");
  fill(element, use.box, waits.box, nodes.box, evictions.box);
  return () => {
    const scarcest = live.scarcest();
    const type = options.isAsked ? options.type : (scarcest[0] ?? "vcore");
    fill(meters, ...scarcest.filter((one) => one !== type && one !== "pods").slice(0, MOST_METERS).map((one) => {
      const share = Math.min(1, Math.max(0, live.share(one)));
      const rect = (name, width) => s("rect", { class: name, width: width.toFixed(1), height: 6, rx: 1 });
      const gauge = s("svg", { viewBox: "0 0 60 6", "aria-hidden": "true" }, rect("track", 60), rect("used", 60 * share));
      return h("span", { class: "meter" }, h("span", {}, label(one)), gauge, h("span", {}, percent(share, 1)));
    }));
    const [whole, used] = [live.amount(live.partition.capacity, type), live.amount(live.partition.allocated, type)];
    const [part, all, unit] = ofWhole(type, used, whole);
    const named = type === "vcore" ? unit : [type === "pods" ? "" : unit, /^[A-Z]{2}/.test(label(type)) ? label(type) : label(type).toLowerCase()].filter(Boolean).join(" ");
    use.set(whole ? percent(used, whole) : "–", ` of ${label(type)}`, `${part} of ${all} ${named} in use`);
    line.setAttribute("points", live.use.map((point, at) => {
      const y = whole ? 22.5 - 21 * Math.min(1, live.amount(point.allocated, type) / whole) : 22.5;
      return `${(100 * at) / Math.max(1, live.use.length - 1)},${y.toFixed(1)}`;
    }).join(" "));
    const waiting = live.waiting();
    const gangs = waiting.filter((item) => item.wanted).length;
    const oldest = waiting.length ? `the oldest ${lasting(live.now() - waiting[0].submitted)}` : "every pod has what it requested";
    waits.set(count(waiting.length), waiting.length === 1 ? " waits" : " wait", waiting.length ? `${plural(gangs, "gang")} among them, ${oldest}` : oldest);
    let drained = 0;
    for (const node of live.nodes.values()) drained += !node.schedulable;
    nodes.set(count(live.nodes.size), live.nodes.size === 1 ? " node" : " nodes", drained ? `${count(drained)} drained` : live.nodes.size ? "all accept new pods" : "add some: nothing can run");
    evictions.set(count(live.evictions), live.evictions === 1 ? " pod evicted" : " pods evicted", "since this replica started");
  };
}

