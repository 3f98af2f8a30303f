/**
 * What the page can change, for those who may: drain a node, delete an application, submit a file,
 * apply queues.
 *
 * Rule 1: nothing is changed before a dialog has said what would happen, by a what-if of that change,
 *         and has been confirmed. Where there is no forecast the dialog says so.
 * Rule 2: a button is there for those whose role allows what it does. The API judges again.
 */
import { ask, change, token, within } from "./api.js";
import { fill, h } from "./dom.js";
import { count, plural, reason } from "./format.js";

const RANK = { read: 1, submit: 2, operate: 3 };
const MOST_NAMED = 5;

let known = { token: null, role: null };

/** The role of the user of this page; "read" where it cannot be asked for. */
function roleOf() {
  if (known.token !== token()) known = { token: token(), role: ask("/v1/whoami").then((found) => found?.role ?? "read", () => "read") };
  return known.role;
}

/** A button for those who have a role. */
export function action(label, needs, onclick) {
  const button = h("button", { type: "button", hidden: true, onclick }, label);
  roleOf().then((role) => {
    button.hidden = !(RANK[role] >= RANK[needs]);
  });
  return button;
}

/** @param {() => number} podsOf how many pods are on the node now */
export const drainButton = (name, podsOf) => action("Drain…", "operate", () => confirm({
  title: `Drain node ${name}?`, label: "Drain", question: { drain: name },
  says: ["No new pods are placed on it.", podsOf() ? `${plural(podsOf(), "pod")} on it ${podsOf() === 1 ? "stays and goes" : "stay and go"} on.` : "No pod is on it."],
  act: () => change("POST", `/v1/nodes/${encodeURIComponent(name)}/drain`).then(() => `Node ${name} is drained: it takes no new pods.`),
}));

export const undrainButton = (name) => action("Undrain…", "operate", () => confirm({
  title: `Undrain node ${name}?`, label: "Undrain", says: ["New pods may be placed on it again."],
  act: () => change("POST", `/v1/nodes/${encodeURIComponent(name)}/undrain`).then(() => `Node ${name} takes new pods.`),
}));

/** @param {() => number} podsOf how many pods the application has now */
export const deleteButton = (name, podsOf) => action("Delete…", "submit", () => confirm({
  title: `Delete application ${name}?`, label: "Delete", question: { delete: [name] },
  says: [podsOf() ? `${plural(podsOf(), "pod")} of it ${podsOf() === 1 ? "is" : "are"} deleted, with what runs there.` : "It has no pods."],
  act: () => change("DELETE", within(`/v1/applications/${encodeURIComponent(name)}`)).then(() => `Application ${name} is deleted.`),
}));

export const submitButton = (manifest) => action("Submit the manifest…", "submit", () => confirm({
  title: "Submit this manifest?", label: "Submit", question: { manifest }, says: [],
  act: () => change("POST", "/v1/manifests", manifest).then((found) => [
    `Submitted: ${[...new Set(found.accepted.map((one) => one.applicationID || one.name))].join(", ")}.`,
    ...found.refused.map((one) => `Document ${one.document} is refused: ${one.field} ${one.message}`),
  ].join(" ")),
}));

export const queuesButton = (queues) => action("Apply the queues…", "operate", () => confirm({
  title: "Apply these queues?", label: "Apply", question: { queues }, says: ["They replace the configuration of all partitions."],
  act: () => change("POST", "/v1/config", queues).then(() => "The queues are applied."),
}));

/**
 * Ask whether something is to be done, and do it.
 * @param {{title: string, label: string, says: string[], question?: object, act: () => Promise<string>}} what
 */
function confirm({ title, label, says, question, act }) {
  const forecast = h("div", { class: "forecast", "aria-live": "polite" }, question ? h("p", { class: "note" }, "Forecasting…") : "");
  const outcome = h("p", { role: "status" });
  const go = h("button", { type: "button", class: "main", disabled: Boolean(question) }, label);
  const leave = h("button", { type: "button" }, "Cancel");
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title),
    ...says.map((one) => h("p", {}, one)), forecast, outcome, h("div", { class: "choices" }, go, leave));
  leave.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  go.addEventListener("click", async () => {
    go.disabled = true;
    outcome.className = "";
    fill(outcome, "Asked for…");
    try {
      fill(outcome, await act());
      go.remove();
      fill(leave, "Close");
      leave.focus();
    } catch (error) {
      outcome.className = "warn";
      fill(outcome, `Not done: ${error.message}`);
      go.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  leave.focus();
  if (question) foresee(question).then((found) => {
    fill(forecast, ...found);
    go.disabled = false;
  });
}

/** The what-if of a change in a few lines. */
async function foresee(question) {
  try {
    const found = await ask(within("/v1/what-if"), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
    if (!found) throw new Error("this API has no /v1/what-if");
    return [h("p", { class: "sentence", "data-verdict": found.done ? "running" : "waiting" }, found.sentence.charAt(0).toUpperCase() + found.sentence.slice(1)), ...details(found)];
  } catch (error) {
    return [h("p", { class: "warn" }, `There is no forecast: ${error.message}`)];
  }
}

function details(found) {
  const lines = [
    ...(found.starts ?? []).map((one) => `${one.applicationID} would start ${count(one.placed + one.afterEvictions)} of ${plural(one.wanted, "pod")}.`),
    ...(found.waits ?? []).map((one) => `${one.applicationID} would wait${one.reason ? `: ${reason(one.reason)}` : ""}.`),
    ...(found.evicted ?? []).map((one) => `${one.victimName || one.victim} of ${one.applicationID} would be evicted.`),
    ...(found.queues ?? []).map((one) => `${one.queueName || "The partition"} would ${one.change}${one.changed.length ? ` (${one.changed.join(", ")})` : ""}.`),
    ...(found.rejected ?? []).map((one) => `${one.applicationID} would be rejected: ${one.message}`),
    ...(found.refused ?? []).map((one) => `Document ${one.document} cannot be scheduled: ${one.field} ${one.message}`),
  ];
  const rest = lines.length - MOST_NAMED;
  return lines.length ? [h("ul", {}, ...lines.slice(0, MOST_NAMED).map((one) => h("li", {}, one)), rest > 0 ? h("li", {}, `and ${count(rest)} more`) : null)] : [];
}
