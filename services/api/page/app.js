/**
 * The frame around the views: which one is shown (the address says it), that the stream lives, the theme.
 *
 * A view is made by a function of a context {live, name, query, setQuery} and returns {title, element,
 * update(changed), dispose()}; what has changed is shown once a frame.
 */
import { attribute, fill, forgetColours, h, text } from "./dom.js";
import { DEFAULT_PARTITION, forgetToken, partition, token } from "./api.js";
import { lasting } from "./format.js";
import { Live } from "./live.js";
import { overview } from "./overview.js";
import { askWho } from "./who.js";

const later = (file, name) => async (context) => (await import(`/page/${file}.js`))[name](context);
const VIEWS = {
  "": { plain: async (context) => overview(context) },
  queues: { plain: later("queues", "queueTree"), named: later("queues", "queuePage") },
  applications: { plain: later("applications", "applicationList"), named: later("application", "applicationPage") },
  nodes: { plain: later("nodes", "nodeList"), named: later("nodes", "nodePage") },
  users: { plain: later("users", "userList"), named: later("users", "userPage") },
  groups: { plain: later("users", "userList"), named: later("users", "groupPage") },
  evictions: { plain: later("evictions", "evictionsView") },
  events: { plain: later("events", "eventsView") },
  "what-if": { plain: later("whatif", "whatIf") },
};

const main = document.getElementById("main");
const status = document.getElementById("status");
const banner = document.getElementById("banner");
const leave = document.getElementById("leave");
const chooser = document.getElementById("partition");
let view = null;
let isDue = false;
let shown = "";
let routes = 0;
let isMarked = false;

const live = new Live(() => {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(show);
});

function show() {
  isDue = false;
  showStatus();
  if (!view || !live.partition) return;
  view.update(live.take());
  if (!isMarked) performance.mark("shown");
  isMarked = true;
}

const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1);

function showStatus() {
  const now = Date.now();
  const says = {
    live: () => "live",
    connecting: () => "connecting",
    recovering: () => "core is recovering",
    away: () => `${lasting(live.age * 1000)} old`,
    denied: () => "not signed in",
    lost: () => `lost ${lasting(now - live.since)} ago`,
  }[live.state]();
  attribute(status, "data-state", live.state);
  text(status.lastElementChild, says);
  status.title = live.heard ? `epoch ${live.epoch}, change ${live.number}, heard ${((now - live.heard) / 1000).toFixed(1)} s ago` : "";
  showPartitions();
  const gone = live.isGone && `There is no partition ${partition} here`;
  const trouble = {
    lost: () => gone ? `${gone} any more. Showing its last known state.` : `Connection lost ${lasting(now - live.since)} ago. Showing the last known state; trying again.`,
    away: () => `${sentence(live.away.join("; "))}. Showing the last known state, ${lasting(live.age * 1000)} old.`,
    recovering: () => `The core is recovering (epoch ${live.epoch}). Showing the last known state until it is back.`,
  }[live.state];
  leave.hidden = !token();
  if (live.state === "denied") showWho();
  banner.hidden = !trouble || !live.partition;
  if (trouble) text(banner, trouble());
  document.body.classList.toggle("stale", Boolean(trouble));
  if (!live.partition && live.state !== "denied") {
    const first = { lost: "No connection to Muster's API. Is it running? The page tries again by itself.", recovering: "Waiting for the core's first snapshot…" }[live.state];
    if (gone) fill(main, h("p", { class: "empty" }, `${gone}. `, h("a", { href: "/" }, "To the default partition")));
    else if (first) fill(main, h("p", { class: "empty" }, first));
  }
}

/** Offer the partitions where there are several, and the one that is shown. */
function showPartitions() {
  const names = live.partitions;
  chooser.parentElement.hidden = !names.length;
  if ([...chooser.options].map((one) => one.value).join("\n") === names.join("\n")) return;
  fill(chooser, ...names.map((name) => h("option", { value: name }, name)));
  chooser.value = live.partition?.name ?? partition;
}

chooser.addEventListener("change", () => {
  const where = new URL(location.href);
  if (chooser.value === DEFAULT_PARTITION) where.searchParams.delete("partition");
  else where.searchParams.set("partition", chooser.value);
  where.hash = `#/${parse().kind}`; // a name is another one's there
  location.assign(where);
});

const who = askWho(again);
/** Ask who it is, in the place of the view. */
function showWho() {
  who.say(live.refusal);
  if (who.element.isConnected) return;
  view?.dispose?.();
  view = null;
  fill(main, who.element);
  who.focus();
}

/** Start over as the user who is signed in now. */
function again() {
  fill(main, h("p", { class: "empty" }, "Loading…"));
  live.connect();
  route();
}

leave.addEventListener("click", () => {
  forgetToken();
  location.reload();
});

function parse() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const at = path.indexOf("/");
  const kind = at < 0 ? path : path.slice(0, at);
  let name = at < 0 ? "" : path.slice(at + 1);
  try {
    name = decodeURIComponent(name);
  } catch {
    // the name as it stands
  }
  return { kind, name, query: new URLSearchParams(search), path };
}

async function route() {
  const { kind, name, query, path } = parse();
  const ours = ++routes; // what is still being loaded for another address is not shown
  const views = VIEWS[kind];
  const make = name ? views?.named : views?.plain;
  document.querySelectorAll("nav a").forEach((link) => {
    const its = link.hash.replace(/^#\/?/, "");
    attribute(link, "aria-current", its === (kind === "groups" ? "users" : kind) ? "page" : null);
    if (its === kind) link.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  if (path === shown && view) return;
  const setQuery = (changed) => {
    const text = String(changed);
    history.replaceState(null, "", `#/${path}${text ? `?${text}` : ""}`);
  };
  let made;
  try {
    await present;
    made = make ? await make({ live, name, query, setQuery }) : nowhere(path);
  } catch (error) {
    made = { title: "Trouble", element: h("p", { class: "empty" }, `This view could not be shown: ${error.message}. Load the page again.`), update() {} };
  }
  if (ours !== routes) return made.dispose?.();
  view?.dispose?.();
  const isFirst = !shown && !view;
  view = made;
  shown = path;
  fill(main, made.element);
  document.title = made.title ? `${made.title} · Muster` : "Muster";
  scrollTo(0, 0);
  if (!isFirst) main.focus({ preventScroll: true });
  live.changed.all = live.changed.events = live.changed.evictions = true;
  show();
}

function nowhere(path) {
  return { title: "Not found", element: h("div", {}, h("h1", {}, "This view does not exist"), h("p", {}, `Nothing is at ${path}. `, h("a", { href: "#/" }, "To the overview"))), update() {} };
}

/** Resolves with the first snapshot: views are made when there is something to show. */
const present = new Promise((resolve) => {
  const wait = setInterval(() => {
    if (live.partition) {
      clearInterval(wait);
      resolve();
    }
  }, 15);
});

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("muster-theme", root.dataset.theme);
  } catch {
    // it holds for this visit
  }
  repaint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
function repaint() {
  forgetColours();
  live.changed.all = true;
  show();
}

addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, textarea, select")) return;
  const filter = main.querySelector("input[type=search]");
  if (filter) {
    event.preventDefault();
    filter.focus();
  }
});
if (new URLSearchParams(location.search).has("measure")) globalThis.muster = { live };
live.connect();
route();
