/** Events as they come, the newest first. */
import { h, text } from "./dom.js";
import { clock, count, exact } from "./format.js";
import { Table } from "./table.js";

const LINKS = { APP: "applications", NODE: "nodes", QUEUE: "queues" };
const words = (name) => name.toLowerCase().replaceAll("_", " ");

const QUIET = new Set(["NODE_ALLOC", "APP_ALLOC", "APP_REQUEST", "REQUEST_CANCEL", "ALLOC_CANCEL", "ALLOC_REPLACED", "QUEUE_APP", "NODE_OCCUPIED"]);
/** Whether an event only says where a single pod went. */
export const isQuiet = (event) => QUIET.has(event.detail);

/** The view and name that an event is about. */
export function linkOf(event) {
  const view = LINKS[event.type] ?? "applications";
  return [view, event.type === "REQUEST" ? event.reference : event.object];
}

const ENDS = { ALLOC_PREEMPT: "pod evicted", ALLOC_NODEREMOVED: "pod lost with its node", ALLOC_TIMEOUT: "placeholder timed out", ALLOC_CANCEL: "pod ended", ALLOC_REPLACED: "placeholder replaced" };

/** What happened, in words: "+ new", "running". */
export function what(event) {
  if (ENDS[event.detail]) return ENDS[event.detail];
  const detail = event.detail === "DETAILS_NONE" ? "" : words(event.detail.replace(/^(REQUEST|APP|NODE|QUEUE|UG)_/, ""));
  if (!detail) return { ADD: "added", REMOVE: "removed" }[event.change] ?? "";
  const change = { ADD: "+ ", REMOVE: "− " }[event.change] ?? "";
  return change + detail;
}

export function eventTable(live, { query, setQuery, only = () => true, noun = "events", sort = "-number" }) {
  const table = new Table({
    query, onQuery: setQuery, noun, sort,
    columns: [
      { key: "number", title: "Time", width: "5.4rem", value: (event) => event.number, show: (event, cell) => {
        text(cell, clock(event.time));
        cell.title = `${exact(event.time)}, event ${event.number}`;
      } },
      { key: "type", title: "About", width: "6rem", isLess: true, value: (event) => event.type, show: (event, cell) => text(cell, words(event.type)) },
      { key: "object", title: "Which", width: "minmax(8rem, 1.4fr)", class: "strong", value: (event) => event.object },
      { key: "detail", title: "What", width: "minmax(7rem, 1fr)", value: what },
      { key: "reference", title: "With", width: "minmax(7rem, 1.2fr)", isLess: true, value: (event) => event.reference },
      { key: "message", title: "Message", width: "minmax(9rem, 3fr)", class: "why", isUnder: true, value: (event) => event.message, show: (event, cell) => {
        text(cell, event.message);
        cell.title = event.message;
      } },
    ],
    id: (event) => String(event.number),
    link: (event) => {
      const [view, name] = linkOf(event);
      return event.type === "USERGROUP" || !name ? "#/events" : `#/${view}/${encodeURIComponent(name)}`;
    },
    items: function* () {
      for (const event of live.events) if (only(event)) yield event;
    },
    empty: "Nothing has happened yet.",
  });
  let isHeld = false;
  return {
    element: table.element,
    hold: (value) => (isHeld = value),
    update(changed) {
      if (changed.all || (changed.events && !isHeld)) changed.all ? table.sortNow() : table.sortSoon();
    },
    dispose: () => table.dispose(),
  };
}

export function eventsView({ live, query, setQuery }) {
  const events = eventTable(live, { query, setQuery });
  const hold = h("button", { type: "button", "aria-pressed": "false" }, "Hold");
  const note = h("p", { class: "note" });
  hold.addEventListener("click", () => {
    const isHeld = hold.getAttribute("aria-pressed") !== "true";
    hold.setAttribute("aria-pressed", isHeld);
    text(hold, isHeld ? "Go on" : "Hold");
    events.hold(isHeld);
  });
  return {
    title: "Events",
    element: h("div", {}, h("div", { class: "title" }, h("h1", {}, "Events"), hold), note, events.element),
    update(changed) {
      events.update(changed);
      const left = live.eventsLeftOut ? `, ${count(live.eventsLeftOut)} of single pods left out while it was busy` : "";
      text(note, `The latest ${count(live.events.length)}${left}. All of them: /ws/v1/events/batch`);
    },
    dispose: () => events.dispose(),
  };
}
