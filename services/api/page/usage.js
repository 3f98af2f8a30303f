/** What a queue or a user has used over time, beside what it uses now; nothing where it is not counted. */
import { ask, partition } from "./api.js";
import { atMostEvery, fill, h, to } from "./dom.js";
import { bare, label } from "./format.js";
import { smallTable } from "./table.js";

const AGAIN_MS = 15_000;
const share = (value) => (value === undefined ? "–" : `${value > 0 && value < 0.001 ? "<0.1" : (100 * value).toFixed(1)}\u202f%`);

/** The table of a queue, or of a user: {queue} or {user}. */
export function overTime(subject) {
  const element = h("section", { hidden: true });
  let isOver = false;
  const load = atMostEvery(AGAIN_MS, async () => {
    const found = await ask(`/v1/usage?${new URLSearchParams({ ...subject, partition })}`).catch(() => null);
    if (isOver || !found) return;
    element.hidden = !found.queues.length;
    if (element.hidden) return fill(element);
    const types = (row) => Object.keys(row.usedOverTime).filter((type) => row.usedOverTime[type] > 0 || row.usedNow[type] > 0);
    const rows = found.queues.flatMap((row) => types(row).map((type) => [
      ...(subject.user ? [to("queues", row.queueName)] : []), label(type), share(row.usedNow[type]), share(row.usedOverTime[type]),
      ...(subject.user ? [] : [row.fairShare?.[type] === undefined ? "–" : bare(type, row.fairShare[type])])]));
    const titles = subject.user ? ["Queue", "Resource", "Share now", "Share over time"] : ["Resource", "Share now", "Share over time", "Fair share"];
    const users = Object.entries(found.queues[0]?.usersOverTime ?? {}).flatMap(([name, shares]) =>
      Object.entries(shares).filter(([, value]) => value > 0).map(([type, value]) => [to("users", name), label(type), share(value)]));
    fill(element, h("h2", {}, "Usage over time"), h("p", { class: "note" }, forgets(found)),
      smallTable(titles, rows, { numbers: subject.user ? [2, 3] : [1, 2, 3] }),
      ...(users.length ? [smallTable(["User", "Resource", "Share over time"], users, { numbers: [2] })] : []));
  });
  load();
  return {
    element,
    update: load,
    dispose() {
      isOver = true;
      load.cancel();
    },
  };
}

function forgets({ usageHalfLife, usageWindow }) {
  const said = [usageHalfLife && `every ${usageHalfLife} half of it is forgotten`, usageWindow && `it begins again every ${usageWindow}`].filter(Boolean);
  return `Shares of the cluster${said.length ? `; of past usage, ${said.join(", and ")}` : ""}.`;
}
