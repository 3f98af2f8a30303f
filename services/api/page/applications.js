/** The applications: their gangs as they fill, and what they wait for. */
import { h, text } from "./dom.js";
import { count, lasting, exact, reason, showAge } from "./format.js";
import { described, drawMembers, members } from "./gang.js";
import { ENDED } from "./live.js";
import { Table, narrow } from "./table.js";

/** A table of applications that follows the stream. */
export function applicationTable(live, { query, setQuery, only = () => true, sort = "-submitted", noun = "applications" }) {
  const why = (item) => {
    const found = live.why(item);
    return found ? (found[0] ? `${reason(found[0])}: ${found[1]}` : found[1]) : "";
  };
  // As it is shown, so that the order is that of what is read: of what has ended, how long it took.
  const age = (item) => (ENDED.has(item.state) && item.finished ? item.finished : live.now()) - item.submitted;
  const columns = [
    { key: "id", title: "Application", width: "minmax(9rem, 1.3fr)", class: "strong", value: (item) => item.id },
    { key: "queue", title: "Queue", width: "minmax(6rem, 1fr)", isLess: true, value: (item) => item.queue },
    { key: "state", title: "State", width: "6.6rem", narrow: "6.4rem", value: (item) => item.state, show: (item, cell) => {
      text(cell, item.state);
      cell.dataset.state = item.state;
    } },
    { key: "members", title: "Members", width: "minmax(8rem, 1.4fr)", class: "cells", value: (item) => members(item).counts.running + item.held / 1e6,
      show(item, cell, isOther) {
        const all = members(item);
        let canvas = cell.firstChild;
        if (!canvas) cell.append((canvas = h("canvas", { role: "img" })));
        if (isOther || canvas.dataset.width !== String(cell.clientWidth)) {
          canvas.dataset.width = cell.clientWidth;
          drawMembers(canvas, all, Math.max(40, cell.clientWidth - 8), 9, { oneLine: true });
          cell.title = described(all);
        }
      } },
    { key: "running", title: "Runs", isNumber: true, isLess: true, width: "4.2rem", value: (item) => item.running, show: (item, cell) => text(cell, count(item.running)) },
    { key: "pending", title: "Waits", isNumber: true, isLess: true, width: "4.2rem", value: (item) => item.pending, show: (item, cell) => text(cell, item.pending ? count(item.pending) : "–") },
    { key: "submitted", title: "Age", isNumber: true, width: "4.8rem", narrow: "3.6rem", value: (item) => -age(item), show: (item, cell) => {
      if (item.pending && !ENDED.has(item.state)) showAge(cell, age(item));
      else {
        text(cell, lasting(age(item)));
        cell.dataset.wait = "";
      }
      cell.title = exact(item.submitted);
    } },
    { key: "why", title: "Why", width: "minmax(10rem, 3fr)", class: "why", isUnder: true, value: why, show: (item, cell) => {
      const says = why(item);
      text(cell, says || (narrow.matches ? item.queue : ""));
      cell.title = says;
    } },
  ];
  const table = new Table({
    columns, query, onQuery: setQuery, noun, sort,
    id: (item) => item.id, link: (item) => `#/applications/${encodeURIComponent(item.id)}`,
    items: function* () {
      for (const item of live.applications.values()) if (only(item)) yield item;
    },
    empty: "No application yet. Submit one: muster submit -f job.yaml",
  });
  // A row that changed is another object, so rows are looked up again; their order waits its turn.
  return {
    element: table.element,
    update(changed) {
      if (changed.all) return table.sortNow();
      if (changed.applications.size) {
        table.items.forEach((item, at) => {
          if (changed.applications.has(item.id)) table.items[at] = live.applications.get(item.id) ?? item;
        });
        table.update();
      }
    },
    dispose: () => table.dispose(),
  };
}

export function applicationList({ live, query, setQuery }) {
  const table = applicationTable(live, { query, setQuery });
  const more = h("p", { class: "note", hidden: true });
  return {
    title: "Applications",
    element: h("div", {}, h("h1", {}, "Applications"), more, table.element),
    update(changed) {
      table.update(changed);
      const known = live.applications.size - live.ended.size;
      more.hidden = live.partition.applications <= known;
      if (!more.hidden) text(more, `${count(known)} of ${count(live.partition.applications)} live applications are shown, the oldest; muster app NAME finds any of them.`);
    },
    dispose: () => table.dispose(),
  };
}
