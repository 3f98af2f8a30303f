/** What if: a manifest, more nodes, a drained one, deleted jobs, other queues; together, and only forecast. */
import { deleteButton, drainButton, queuesButton, submitButton } from "./actions.js";
import { ask, within } from "./api.js";
import { fill, h, text, to } from "./dom.js";
import { count, plural, reason } from "./format.js";
import { podsOf } from "./gang.js";
import { HeatMap } from "./heatmap.js";
import { smallTable } from "./table.js";

const MAX_FILE_BYTES = 1024 * 1024;
const MOST_OFFERED = 2000; // names of nodes, and of applications

export function whatIf({ live, query, setQuery }) {
  const nodes = h("datalist", { id: "node-names" }, ...[...live.nodes.keys()].slice(0, MOST_OFFERED).map((name) => h("option", { value: name })));
  const names = [...live.applications.keys()].filter((name) => !live.ended?.has?.(name));
  const applications = h("datalist", { id: "application-names" }, ...names.slice(0, MOST_OFFERED).map((name) => h("option", { value: name })));
  const area = (sample, rows) => h("textarea", { rows, spellcheck: "false", placeholder: sample });
  const field = (list, placeholder, value = "") => h("input", { type: "text", list, placeholder, value, spellcheck: "false" });
  const manifest = area("Paste a manifest, or drop a file here", "8");
  const queues = area("Paste a queues.yaml, or drop a file here", "8");
  const drain = field("node-names", "node", query.get("drain") ?? "");
  const gone = field("application-names", "application", query.get("delete") ?? "");
  const like = field("node-names", "the largest");
  const more = h("input", { type: "number", min: "1", max: "1000", placeholder: "0" });
  const go = h("button", { type: "submit", class: "main" }, "Forecast");
  const answer = h("div", { "aria-live": "polite" });
  let map = null;
  for (const box of [manifest, queues]) droppable(box, answer);
  drain.addEventListener("change", () => keep("drain", drain.value.trim()));
  gone.addEventListener("change", () => keep("delete", gone.value.trim()));
  function keep(name, value) {
    if (value) query.set(name, value);
    else query.delete(name);
    setQuery(query);
  }
  const asked = () => {
    const question = {};
    if (manifest.value.trim()) question.manifest = manifest.value;
    if (more.value) question.addNodes = more.valueAsNumber;
    if (more.value && like.value.trim()) question.like = like.value.trim();
    if (drain.value.trim()) question.drain = drain.value.trim();
    if (gone.value.trim()) question.delete = gone.value.trim().split(/[\s,]+/);
    if (queues.value.trim()) question.queues = queues.value;
    return question;
  };
  const form = h("form", { class: "what-if" },
    h("label", { class: "block" }, "Submit this manifest", manifest),
    h("div", { class: "line" }, h("label", {}, "Add ", more, " nodes"), h("label", {}, "like ", like)),
    h("div", { class: "line" }, h("label", {}, "Drain ", drain), h("label", {}, "Delete ", gone)),
    h("label", { class: "block" }, "Apply these queues", queues),
    nodes, applications, go);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const request = asked();
    if (!Object.keys(request).length) return fill(answer, h("p", { class: "warn" }, "What would be changed? Fill in one of these, or several."));
    go.disabled = true;
    text(go, "Forecasting…");
    try {
      const found = await ask(within("/v1/what-if"), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request) });
      map?.dispose();
      map = found ? show(found, request) : null;
      if (!found) fill(answer, h("p", { class: "note" }, "This API cannot forecast: it has no /v1/what-if."));
    } catch (error) {
      fill(answer, h("p", { class: "warn" }, error.message));
    } finally {
      go.disabled = false;
      text(go, "Forecast");
    }
  });
  function show(found, request) {
    const parts = [h("p", { class: "sentence", "data-verdict": found.done ? "running" : "waiting" }, found.sentence)];
    const marks = new Map();
    const names = (title, rows, titles, numbers) => rows?.length && parts.push(h("h2", {}, title), smallTable(titles, rows, { numbers }));
    for (const one of found.starts ?? []) for (const place of one.places ?? []) marks.set(place.nodeID, "used");
    for (const one of found.evicted ?? []) marks.set(one.nodeID, "evicts");
    if (drain.value.trim()) marks.set(drain.value.trim(), "ink");
    const named = (one) => (one.isNew ? one.applicationID : to("applications", one.applicationID));
    names("Would start", found.starts?.map((one) => [named(one), one.queueName, `${count(one.placed)} of ${count(one.wanted)}`, one.afterEvictions ? count(one.afterEvictions) : "–", nodesOf(one.places)]),
      ["Application", "Queue", "At once", "After evictions", "On"], [2, 3]);
    names("Would wait", found.waits?.map((one) => [named(one), one.queueName, count(one.wanted - one.placed - one.afterEvictions), one.reason ? reason(one.reason) : "", one.message, startOf(one)]),
      ["Application", "Queue", "Pods", "Reason", "", "Expected start"], [2]);
    names("Would be evicted", found.evicted?.map((one) => [one.victimName || one.victim, to("applications", one.applicationID), to("nodes", one.nodeID), one.winner || "its queue’s max", one.law]),
      ["Pod", "Application", "Node", "For", "Policy"]);
    names("Queues", found.queues?.map((one) => [one.queueName || "the partition", one.change, count(one.applications), one.changed.join(", ")]),
      ["Queue", "", "Applications", "Changed"], [2]);
    names("Would be rejected", found.rejected?.map((one) => [one.applicationID, one.message]), ["Application", "Why"]);
    names("Cannot be scheduled", found.refused?.map((one) => [count(one.document), one.field, one.message]), ["Document", "Field", "Why"], [0]);
    const picture = marks.size ? new HeatMap(live, { type: live.offered()[0] ?? "vcore", group: "", marks }) : null;
    const changes = toDo(live, request);
    if (changes.length) parts.splice(1, 0, h("p", { class: "choices" }, ...changes));
    if (picture) parts.push(h("h2", {}, `Where · ${plural(marks.size, "node")} marked`), picture.element);
    fill(answer, ...parts);
    picture?.layOut();
    return picture;
  }
  return {
    title: "What if",
    element: h("div", {}, h("h1", {}, "What if"), h("p", { class: "note" }, "What would start, wait or be evicted after these changes, any of them together? Asking changes nothing; users with the role can then make the change."), form, answer),
    update: (changed) => map?.update(changed),
    dispose: () => map?.dispose(),
  };
}

/** What of a forecast can be done here, in the order in which it was supposed. */
function toDo(live, request) {
  return [
    request.queues ? queuesButton(request.queues) : null,
    request.delete?.length === 1 ? deleteButton(request.delete[0], () => podsOf(live.applications.get(request.delete[0]))) : null,
    request.drain ? drainButton(request.drain, () => live.nodes.get(request.drain)?.pods ?? 0) : null,
    request.manifest ? submitButton(request.manifest) : null,
  ].filter(Boolean);
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
