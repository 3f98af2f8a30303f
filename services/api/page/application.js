/** One application: why it waits in one sentence, the evidence, its members, pods, messages, events. */
import { deleteButton } from "./actions.js";
import { ask, within } from "./api.js";
import { atMostEvery, attribute, fill, h, s, text, to } from "./dom.js";
import { bare, clock, count, exact, label, lasting, plural, reason, resource, took } from "./format.js";
import { drawMembers, memberLegend, members, podsOf } from "./gang.js";
import { ENDED } from "./live.js";
import { eventTable } from "./events.js";
import { arrows } from "./evictions.js";
import { smallTable } from "./table.js";
import { timeline } from "./timeline.js";

const MAX_PODS = 2000;
const FIRST = 40;
const MAX_MESSAGES = 400;

export function applicationPage({ live, name, query, setQuery }) {
  const state = h("span", { class: "chip" });
  const facts = h("p", { class: "facts-line" });
  const why = h("p", { class: "sentence" });
  const canvas = h("canvas", { role: "img" });
  const legend = h("div", { class: "legend" });
  const change = h("span", { hidden: true }, deleteButton(name, () => podsOf(live.applications.get(name))));
  const evidence = h("div", { class: "evidence" });
  const evictions = h("div", {});
  const pods = h("section", {});
  const story = h("section", {});
  const course = timeline(live, name);
  const events = eventTable(live, { query, setQuery, only: (event) => event.object === name || event.reference === name, noun: `events of ${name}`, height: 12 });
  const gang = h("section", { class: "gang" }, h("h2", {}, "Members"), canvas, legend);
  const element = h("div", { class: "application" },
    h("p", { class: "crumbs" }, h("a", { href: "#/applications" }, "Applications")),
    h("div", { class: "title" }, h("h1", {}, name, " ", state), change),
    facts, why, evidence, gang, course.element, evictions, story, pods,
    h("section", {}, h("h2", {}, "Events"), events.element));
  let isOver = false;
  let isWhole = false;
  let explained = null;

  function showRow() {
    const item = live.applications.get(name);
    if (!item) {
      text(state, "unknown");
      text(why, explained?.sentence ?? "No application of this name is running, waiting or ended recently.");
      return;
    }
    change.hidden = ENDED.has(item.state);
    text(state, item.state);
    state.dataset.state = item.state;
    const until = ENDED.has(item.state) && item.finished ? item.finished : live.now();
    fill(facts, to("queues", item.queue), " · ", item.user ? to("users", item.user) : "no user", " · ", h("span", { title: exact(item.submitted) }, `submitted ${lasting(live.now() - item.submitted)} ago`),
      ENDED.has(item.state) ? ` · took ${lasting(until - item.submitted)}` : "",
      item.running + item.held ? ` · holds ${resource(Object.fromEntries(live.types.map((type) => [type, live.amount(item.allocated, type)]).filter(([, value]) => value > 0)))}` : "");
    text(why, explained?.sentence ?? sentence(live, item));
    attribute(why, "data-verdict", explained?.verdict ?? (item.pending ? "waiting" : "running"));
    const all = members(item);
    gang.hidden = !all.total;
    const width = Math.min(gang.clientWidth || 800, 960);
    if (all.total && width > 40) {
      drawMembers(canvas, all, width, all.total > 400 ? 8 : all.total > 64 ? 12 : 18);
      fill(legend, ...memberLegend(all));
    }
  }

  async function explain() {
    try {
      explained = await ask(within(`/v1/why/${encodeURIComponent(name)}`));
    } catch (error) {
      explained = null;
      fill(evidence, h("p", { class: "note" }, `The explanation could not be read: ${error.message}`));
      return;
    }
    if (isOver) return;
    if (explained) fill(evidence, ...shown(explained, live));
    else fill(evidence, waits(live, live.applications.get(name)));
    fill(evictions, ...(explained?.evictions?.length ? [h("h2", {}, "Evictions"), arrows(explained.evictions)] : []));
    showRow();
  }

  async function listPods() {
    const item = live.applications.get(name);
    if (!item) return;
    const all = podsOf(item);
    if (all > MAX_PODS) return fill(pods, h("h2", {}, "Pods"), h("p", { class: "note" }, `${plural(all, "pod")}: too many to list here. muster app ${name} lists them.`));
    try {
      const found = await ask(within(`/v1/applications/${encodeURIComponent(name)}`));
      if (!isOver && found) fill(pods, ...podList(found.application, live, isWhole ? MAX_PODS : FIRST, () => {
        isWhole = true;
        listPods();
      }));
    } catch (error) {
      fill(pods, h("p", { class: "note" }, `Its pods could not be read: ${error.message}`));
    }
  }

  async function tell() {
    try {
      const records = await ask(within(`/v1/trace/${encodeURIComponent(name)}`));
      if (!isOver) fill(story, h("h2", {}, "Messages"), ...waterfall((records ?? []).filter((one) => one.messageID)));
    } catch (error) {
      fill(story, h("h2", {}, "Messages"), h("p", { class: "note" }, `The trace could not be read: ${error.message}`));
    }
  }

  const soon = atMostEvery(250, showRow);
  const later = atMostEvery(1500, () => Promise.all([explain(), course.load(), listPods(), tell()]));
  return {
    title: name, element,
    update(changed) {
      if (changed.all) showRow();
      if (changed.all || changed.applications.has(name)) {
        soon();
        later();
      }
      events.update(changed);
    },
    dispose() {
      isOver = true;
      soon.cancel();
      later.cancel();
      events.dispose();
    },
  };
}

/** The row's own sentence, if there is no explanation. */
function sentence(live, item) {
  const found = live.why(item);
  if (ENDED.has(item.state)) return found ? `${item.state}: ${found[1]}` : `${item.id} has ended: ${item.state.toLowerCase()}.`;
  if (item.state === "Completing" && item.ended) return `${item.id} is completing: ${plural(item.ended, "pod has", "pods have")} ended, and nothing more is asked for.`;
  if (!item.pending) return item.running ? `${item.id} runs: ${plural(item.running, "pod")}, and waits for nothing.` : found?.[1] ?? `${item.id} has asked for nothing yet.`;
  if (!found) return `${plural(item.pending, "pod")} of ${item.id} ${item.pending === 1 ? "has" : "have"} been asked for and not been refused yet.`;
  const [code, message, since] = found;
  return `${plural(item.pending, "pod")} ${item.pending === 1 ? "waits" : "wait"}${since ? ` for ${lasting(live.now() - since)}` : ""}: ${code ? reason(code) : ""}. ${message}`;
}

function waits(live, item) {
  const found = item && live.why(item);
  return h("p", { class: "note" }, found?.[0] ? "This API has no /v1/why, so no evidence is shown; the reason above is the core's." : "");
}

/** The evidence of an explanation, in the order of what to look at first. */
function shown(why, live) {
  const parts = [];
  const list = (title, rows) => rows?.length && parts.push(h("h2", {}, title), rows);
  if (why.mismatches?.length) parts.push(h("h2", {}, "Problems with its gang"), ...why.mismatches.map((one) => h("p", { class: "warn" }, one.message)));
  const limits = [...(why.queues ?? []), ...(why.limits ?? [])];
  if (limits.length) {
    const room = smallTable(["Where", "Resource", "Needs", "Has left", "Lacks", "Used", "Max"], limits.map((row) => [
      row.owner && !row.owner.startsWith("queue ") ? `${row.owner} in ${row.queueName}` : row.queueName, label(row.resource),
      says(row, "need"), says(row, "headroom"), row.lacks > 0 ? h("strong", { class: "lacks" }, says(row, "lacks")) : "–", says(row, "used"), says(row, "max"),
    ]), { numbers: [2, 3, 4, 5, 6] });
    const lacks = limits.some((row) => row.lacks > 0);
    if (lacks) parts.push(h("h2", {}, "What its queues and limits have left"), room);
    else parts.push(h("details", {}, h("summary", {}, "Its queues and limits have enough left"), room));
  }
  if (why.nodes) parts.push(...nodes(why.nodes));
  const held = (why.waits ?? []).filter((one) => one.heldBack);
  if (held.length) list("Not submitted yet", [smallTable(["Held back for", "Pods", "The first"], held.map((one) => [reason(one.reason), count(one.asks), one.pods.join(", ")]), { numbers: [1] })]);
  const others = (why.waits ?? []).slice(1);
  if (others.length) list("It also waits for", [smallTable(["Reason", "", "Pods"], others.map((one) => [reason(one.reason), one.message, count(one.asks)]), { numbers: [2] })]);
  if (why.waitsFor?.length) {
    parts.push(h("h2", {}, "Waits for"), h("ul", { class: "plain" }, ...why.waitsFor.map((one) => h("li", {}, one.text || one.name, one.since ? `, since ${lasting(live.now() - one.since / 1e6)}` : ""))));
  }
  const missing = (why.gang?.groups ?? []).filter((group) => group.missing);
  if (missing.length) {
    list("Groups with members missing", [smallTable(["Group", "Wanted", "Held", "Replaced", "Missing", "Why"], missing.map((group) =>
      [group.name, count(group.wanted), count(group.held), count(group.replaced), count(group.missing), group.why]), { numbers: [1, 2, 3, 4] })]);
  }
  return parts;
}

const says = (row, key) => (row[key] === undefined || row[key] === null ? "–" : bare(row.resource, row[key]));

function nodes(found) {
  const parts = [h("h2", {}, `Nodes, ${count(found.total)} in all`)];
  if (found.classes?.length) {
    parts.push(smallTable(["Kind", "Nodes", "Fail on"], found.classes.map((one) => [
      one.class || "–", count(one.nodes), one.fails.map((fail) => `${count(fail.nodes)} ${label(fail.on)}`).join(", "),
    ]), { numbers: [1] }));
  }
  const { nearest } = found;
  if (nearest) parts.push(h("p", { class: "note" }, "Nearest: ", to("nodes", nearest.nodeID), ` lacks ${resource(nearest.lacks)}. ${nearest.cure}`));
  return parts;
}

function podList(application, live, most, onMore) {
  const podName = (tags, key) => tags?.["kubernetes.io/meta/podName"] ?? key;
  const placed = (application.allocations ?? []).map((one) => [podName(one.allocationTags, one.allocationKey), one.placeholder ? "held" : "running", one.taskGroupName ?? "", one.nodeId, one.requestTime / 1e6, resource(one.resource), ""]);
  const asked = (application.requests ?? []).map((one) => [podName(one.allocationTags, one.allocationKey), "wanted", one.taskGroupName ?? "", "", one.requestTime / 1e6, resource(one.resource), one.allocationLog?.at(-1)?.message ?? ""]);
  const all = [...asked, ...placed];
  if (!all.length) return [];
  const rows = all.slice(0, most).map(([pod, state, group, node, since, needs, said]) =>
    [pod, h("span", { class: "member", "data-member": state }, state), group, node ? to("nodes", node) : "–", lasting(live.now() - since), needs, said]);
  return [h("h2", {}, `Pods · ${count(all.length)}`), smallTable(["Pod", "State", "Group", "Node", "Asked", "Needs", "Last refusal"], rows, { numbers: [4] }),
    all.length > rows.length ? h("button", { type: "button", class: "after", onclick: onMore }, `${count(all.length - rows.length)} more`) : null];
}

/** The messages behind an application: waited (pale) and handled (full), on one scale of time. */
function waterfall(records) {
  if (!records.length) return [h("p", { class: "empty" }, "This replica has no messages of it: they are older than the replica, or too old to be stored.")];
  const seen = records.slice(-MAX_MESSAGES);
  const start = (one) => one.time / 1e6 - one.queuedMs;
  const end = (one) => one.time / 1e6 + one.handledMs;
  const first = Math.min(...seen.map(start));
  const last = Math.max(...seen.map(end));
  const breaks = folded(seen, start, end);
  const lines = seen.map((one) => {
    const at = breaks(start(one));
    const svg = s("svg", { viewBox: "0 0 1000 14", preserveAspectRatio: "none", "aria-hidden": "true" });
    const queued = breaks(one.time / 1e6);
    const done = breaks(end(one));
    svg.append(s("rect", { class: "queued", x: at, y: 4, width: Math.max(1, queued - at), height: 6 }), s("rect", { class: "handled", x: queued, y: 1, width: Math.max(3, done - queued), height: 12 }));
    return h("li", { class: "message" },
      h("span", { class: "what" }, h("time", { title: exact(one.time / 1e6) }, clock(one.time / 1e6)), h("b", {}, one.message), h("span", { class: "path" }, `${one.from} → ${one.to}`)),
      h("span", { class: "time" }, svg), h("span", { class: "took" }, `waited ${took(one.queuedMs)}, handled ${took(one.handledMs)}`),
      h("span", { class: "decision" }, [one.decision || one.contents, one.reason].filter(Boolean).join(" — ")));
  });
  return [h("p", { class: "note" }, `${plural(records.length, "message")} in ${lasting(last - first) === "0\u202fs" ? took(last - first) : lasting(last - first)}; long pauses between them are folded. Pale: waited in an inbox. Full: was handled.${records.length > seen.length ? ` The latest ${MAX_MESSAGES} are shown.` : ""}`), h("ol", { class: "waterfall" }, ...lines)];
}

/** From a time to 0…1000, where pauses longer than all that is done beside them are cut short. */
function folded(records, start, end) {
  const spans = records.map((one) => [start(one), end(one)]).sort((a, b) => a[0] - b[0]);
  const merged = [];
  for (const [from, until] of spans) {
    const last = merged.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], until);
    else merged.push([from, until]);
  }
  const busy = merged.reduce((sum, [from, until]) => sum + until - from, 0) || 1;
  const pause = busy / Math.max(4, merged.length);
  let at = 0;
  const marks = [];
  merged.forEach(([from, until], n) => {
    if (n) at += Math.min(pause, from - merged[n - 1][1]);
    marks.push([from, until, at]);
    at += until - from;
  });
  const scale = 1000 / (at || 1);
  return (time) => {
    const mark = marks.findLast(([from]) => from <= time) ?? marks[0];
    return scale * (mark[2] + Math.min(time, mark[1]) - mark[0]);
  };
}
