/** What if: a manifest, a drained node, more nodes, other queues. Nothing is done, only forecast. */
import { ask, within } from "./api.js";
import { fill, h, text, to } from "./dom.js";
import { count, plural, reason } from "./format.js";
import { HeatMap } from "./heatmap.js";
import { smallTable } from "./table.js";

const MAX_FILE_BYTES = 1024 * 1024;
const KINDS = { manifest: "A manifest", drain: "A node is drained", add: "Nodes are added", queues: "Other queues" };

export function whatIf({ live, query, setQuery }) {
  const first = query.get("drain") ? "drain" : Object.keys(KINDS).find((kind) => kind === query.get("kind")) ?? "manifest";
  const kinds = h("div", { class: "tabs", role: "radiogroup", "aria-label": "What changes" });
  const nodes = h("datalist", { id: "node-names" }, ...[...live.nodes.keys()].slice(0, 2000).map((name) => h("option", { value: name })));
  const area = (label, sample) => h("textarea", { rows: "12", spellcheck: "false", "aria-label": label, placeholder: sample });
  const manifest = area("Manifest", "Paste a manifest, or drop a file here");
  const queues = area("queues.yaml", "Paste a queues.yaml, or drop a file here");
  const drain = h("input", { type: "text", list: "node-names", "aria-label": "Node to drain", placeholder: "node", value: query.get("drain") ?? "", spellcheck: "false" });
  const like = h("input", { type: "text", list: "node-names", "aria-label": "Like which node", placeholder: "like this node", value: [...live.nodes.keys()][0] ?? "", spellcheck: "false" });
  const more = h("input", { type: "number", min: "1", max: "1000", value: "1", "aria-label": "How many nodes" });
  const fields = { manifest: [manifest], drain: [h("label", {}, "Drain ", drain)], add: [h("label", {}, "Add ", more), h("label", {}, " like ", like)], queues: [queues] };
  const field = h("div", { class: "fields" });
  const go = h("button", { type: "submit", class: "main" }, "Forecast");
  const answer = h("div", { "aria-live": "polite" });
  let kind = first;
  let map = null;
  const pick = (chosen) => {
    kind = chosen;
    fill(field, ...fields[kind]);
    query.set("kind", kind);
    if (kind !== "drain") query.delete("drain");
    setQuery(query);
  };
  for (const [value, says] of Object.entries(KINDS)) {
    const input = h("input", { type: "radio", name: "kind", value, checked: value === kind });
    input.addEventListener("change", () => pick(value));
    kinds.append(h("label", {}, input, says));
  }
  for (const box of [manifest, queues]) droppable(box, answer);
  const asked = { manifest: () => ({ manifest: manifest.value }), drain: () => ({ drain: drain.value.trim() }), add: () => ({ addNodes: more.valueAsNumber, like: like.value.trim() }), queues: () => ({ queues: queues.value }) };
  const form = h("form", { class: "what-if" }, kinds, field, nodes, go);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const request = asked[kind]();
    const lacks = Object.entries(request).find(([, value]) => !value);
    if (lacks) return fill(answer, h("p", { class: "warn" }, "Something is missing: fill the form first."));
    go.disabled = true;
    text(go, "Forecasting…");
    try {
      const found = await ask(within("/v1/what-if"), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request) });
      map?.dispose();
      map = found ? show(found) : null;
      if (!found) fill(answer, h("p", { class: "note" }, "This API cannot forecast: it has no /v1/what-if."));
    } catch (error) {
      fill(answer, h("p", { class: "warn" }, error.message));
    } finally {
      go.disabled = false;
      text(go, "Forecast");
    }
  });
  function show(found) {
    const parts = [h("p", { class: "sentence", "data-verdict": found.done ? "running" : "waiting" }, found.sentence)];
    const marks = new Map();
    const names = (title, rows, titles, numbers) => rows?.length && parts.push(h("h2", {}, title), smallTable(titles, rows, { numbers }));
    for (const one of found.starts ?? []) for (const place of one.places ?? []) marks.set(place.nodeID, "used");
    for (const one of found.evicted ?? []) marks.set(one.nodeID, "evicts");
    if (kind === "drain") marks.set(drain.value.trim(), "ink");
    const named = (one) => (one.isNew ? one.applicationID : to("applications", one.applicationID));
    names("Would start", found.starts?.map((one) => [named(one), one.queueName, `${count(one.placed)} of ${count(one.wanted)}`, one.afterEvictions ? count(one.afterEvictions) : "–", nodesOf(one.places)]),
      ["Application", "Queue", "At once", "Once room is made", "On"], [2, 3]);
    names("Would wait", found.waits?.map((one) => [named(one), one.queueName, count(one.wanted - one.placed - one.afterEvictions), one.reason ? reason(one.reason) : "", one.message, startOf(one)]),
      ["Application", "Queue", "Pods", "Reason", "", "Expected start"], [2]);
    names("Would be evicted", found.evicted?.map((one) => [one.victimName || one.victim, to("applications", one.applicationID), to("nodes", one.nodeID), one.winner || "its queue’s max", one.law]),
      ["Pod", "Application", "Node", "For", "Law"]);
    names("Queues", found.queues?.map((one) => [one.queueName || "the partition", one.change, count(one.applications), one.changed.join(", ")]),
      ["Queue", "", "Applications", "Changed"], [2]);
    names("Would be rejected", found.rejected?.map((one) => [one.applicationID, one.message]), ["Application", "Why"]);
    names("Cannot be scheduled", found.refused?.map((one) => [count(one.document), one.field, one.message]), ["Document", "Field", "Why"], [0]);
    const picture = marks.size ? new HeatMap(live, { type: live.offered()[0] ?? "vcore", group: "", marks }) : null;
    if (picture) parts.push(h("h2", {}, `Where · ${plural(marks.size, "node")} marked`), picture.element);
    fill(answer, ...parts);
    picture?.layOut();
    return picture;
  }
  pick(kind);
  return {
    title: "What if",
    element: h("div", {}, h("h1", {}, "What if"), h("p", { class: "note" }, "Would it start now, where, and who would make way? Nothing is changed by asking."), form, answer),
    update: (changed) => map?.update(changed),
    dispose: () => map?.dispose(),
  };
}

function startOf(one) {
  return one.expectedStart ? new Date(one.expectedStart / 1e6).toLocaleString("en-GB") : one.noStart || "–";
}

function nodesOf(places) {
  const counts = new Map();
  for (const { nodeID } of places ?? []) counts.set(nodeID, (counts.get(nodeID) ?? 0) + 1);
  const all = [...counts].map(([name, pods]) => (pods > 1 ? `${name} × ${pods}` : name));
  return all.length > 8 ? `${all.slice(0, 8).join(", ")} and ${all.length - 8} more` : all.join(", ");
}

function droppable(box, answer) {
  box.addEventListener("dragover", (event) => event.preventDefault());
  box.addEventListener("drop", async (event) => {
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    if (file.size > MAX_FILE_BYTES) fill(answer, h("p", { class: "warn" }, `${file.name} is larger than 1 MiB.`));
    else box.value = await file.text();
  });
}
