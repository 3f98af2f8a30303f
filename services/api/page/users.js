/** Users and groups: what each uses, of how much, and whose applications wait. */
import { ask, partition } from "./api.js";
import { applicationTable } from "./applications.js";
import { atMostEvery, fill, h, text, to } from "./dom.js";
import { count, lasting, plural, resource } from "./format.js";
import { history } from "./history.js";
import { ENDED } from "./live.js";
import { smallTable } from "./table.js";
import { overTime } from "./usage.js";

const MOST_ROWS = 500; // users, and groups, in a table; the filter of applications finds the others
const usage = (kind, name = "") => `/ws/v1/partition/${encodeURIComponent(partition)}/usage/${kind}${name && `/${encodeURIComponent(name)}`}`;

/** What the live applications of each user come to: how many, how many pods run and wait. */
function sums(live) {
  const found = new Map();
  for (const item of live.applications.values()) {
    if (ENDED.has(item.state)) continue;
    const sum = found.get(item.user) ?? { applications: 0, running: 0, pending: 0, oldest: 0 };
    sum.applications++;
    sum.running += item.running;
    sum.pending += item.pending;
    if (item.pending) sum.oldest = Math.max(sum.oldest, live.now() - item.submitted);
    found.set(item.user, sum);
  }
  return found;
}

export function userList({ live }) {
  const users = h("div", {});
  const groups = h("div", {});
  const note = h("p", { class: "note", hidden: true });
  let asked = { users: [], groups: [] };
  let isOver = false;
  const show = () => {
    const all = sums(live);
    const used = new Map(asked.users.map((one) => [one.userName, one.queues]));
    const names = [...new Set([...all.keys(), ...used.keys()])].sort((a, b) => (all.get(b)?.running ?? 0) - (all.get(a)?.running ?? 0) || a.localeCompare(b));
    const rows = names.slice(0, MOST_ROWS).map((name) => {
      const sum = all.get(name) ?? { applications: 0, running: 0, pending: 0, oldest: 0 };
      const own = used.get(name);
      return [to("users", name), count(sum.applications), count(sum.running), sum.pending ? count(sum.pending) : "–", sum.oldest ? lasting(sum.oldest) : "–",
        resource(own?.resourceUsage), own?.maxResources ? resource(own.maxResources) : "–"];
    });
    fill(users, rows.length ? smallTable(["User", "Applications", "Pods run", "Pods wait", "The oldest for", "Uses", "At most"], rows, { numbers: [1, 2, 3, 4] })
      : h("p", { class: "empty" }, "No application yet. Submit one: muster submit -f job.yaml"));
    const rest = asked.groups.slice(0, MOST_ROWS).map((one) => [to("groups", one.groupName), count(one.applications?.length ?? 0), resource(one.queues?.resourceUsage), one.queues?.maxResources ? resource(one.queues.maxResources) : "–"]);
    fill(groups, rest.length ? [h("h2", {}, "Groups with a limit"), smallTable(["Group", "Applications", "Uses", "At most"], rest, { numbers: [1] })] : []);
  };
  async function list() {
    try {
      const [ours, theirs] = await Promise.all([ask(usage("users")), ask(usage("groups"))]);
      if (isOver) return;
      asked = { users: ours ?? [], groups: theirs ?? [] };
      note.hidden = true;
    } catch (error) {
      note.hidden = false;
      text(note, `What users use could not be read: ${error.message}`);
    }
    show();
  }
  const soon = atMostEvery(1000, show);
  const later = atMostEvery(2000, list);
  return {
    title: "Users",
    element: h("div", {}, h("h1", {}, "Users"), note, users, groups),
    update(changed) {
      if (changed.all || changed.applications.size) {
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

export function userPage({ live, name, query, setQuery }) {
  const facts = h("p", { class: "facts-line" });
  const limits = h("div", {});
  let isOver = false;
  const hour = history(live, { user: name }, () => live.scarcest()[0] ?? "vcore");
  const past = overTime({ user: name });
  const table = applicationTable(live, { query, setQuery, only: (item) => item.user === name, noun: `applications of ${name}` });
  const rowsOf = (one) => (one?.queuePath ? [one, ...(one.children ?? []).flatMap(rowsOf)] : []);
  const show = () => {
    const sum = sums(live).get(name);
    text(facts, sum ? `${count(sum.applications)} applications · ${count(sum.running)} pods run · ${count(sum.pending)} wait` : "No application of this user is live.");
  };
  async function list() {
    const found = await ask(usage("user", name)).catch(() => null);
    if (isOver) return;
    const rows = rowsOf(found?.queues).filter((one) => one.resourceUsage || one.maxResources);
    fill(limits, rows.length ? smallTable(["Queue", "Uses", "At most", "Applications"], rows.map((one) =>
      [to("queues", one.queuePath), resource(one.resourceUsage), one.maxResources ? resource(one.maxResources) : "–", count(one.runningApplications?.length ?? 0)]), { numbers: [3] }) : []);
  }
  const soon = atMostEvery(500, show);
  const later = atMostEvery(2000, list);
  return {
    title: name,
    element: h("div", {}, h("p", { class: "crumbs" }, h("a", { href: "#/users" }, "Users")), h("h1", {}, name), facts, limits, past.element, hour.element, h("h2", {}, "Applications"), table.element),
    update(changed) {
      if (changed.all || changed.applications.size) {
        soon();
        later();
      }
      hour.update();
      past.update();
      table.update(changed);
    },
    dispose() {
      isOver = true;
      soon.cancel();
      later.cancel();
      hour.dispose();
      past.dispose();
      table.dispose();
    },
  };
}

/** A group with a limit: what it uses in each queue, of how much, its hour, and its applications. */
export function groupPage({ live, name, query, setQuery }) {
  const facts = h("p", { class: "facts-line" });
  const limits = h("div", {});
  let isOver = false;
  let names = new Set();
  const hour = history(live, { group: name }, () => live.scarcest()[0] ?? "vcore");
  const table = applicationTable(live, { query, setQuery, only: (item) => names.has(item.id), noun: `applications of ${name}` });
  const rowsOf = (one) => (one?.queuePath ? [one, ...(one.children ?? []).flatMap(rowsOf)] : []);
  async function list() {
    const found = await ask(usage("group", name)).catch(() => null);
    if (isOver) return;
    names = new Set(found?.applications ?? []);
    text(facts, found ? `${plural(names.size, "application")} counted for this group` : "No application is counted for this group now.");
    const rows = rowsOf(found?.queues).filter((one) => one.resourceUsage || one.maxResources);
    fill(limits, rows.length ? smallTable(["Queue", "Uses", "At most", "Applications"], rows.map((one) =>
      [to("queues", one.queuePath), resource(one.resourceUsage), one.maxResources ? resource(one.maxResources) : "–", count(one.runningApplications?.length ?? 0)]), { numbers: [3] }) : []);
    table.update({ all: true });
  }
  const later = atMostEvery(2000, list);
  later();
  return {
    title: name,
    element: h("div", {}, h("p", { class: "crumbs" }, h("a", { href: "#/users" }, "Users")), h("h1", {}, name), facts, limits, hour.element, h("h2", {}, "Applications"), table.element),
    update(changed) {
      if (changed.all || changed.applications.size) later();
      hour.update();
      table.update(changed);
    },
    dispose() {
      isOver = true;
      later.cancel();
      hour.dispose();
      table.dispose();
    },
  };
}
