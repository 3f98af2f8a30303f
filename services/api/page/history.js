/**
 * The last hour of a queue, a user or a group as three pictures on one scale of time: what was used of the resource that
 * is shown, how many pods waited, and how many were evicted. A pause in what is known is a gap.
 */
import { ask, partition } from "./api.js";
import { atMostEvery, attribute, h, s, text } from "./dom.js";
import { amount, clock, count, label, lasting, ofWhole, plural } from "./format.js";

const HOUR_MS = 3_600_000;
const LEAST_MS = 300_000; // of the scale, where less than an hour is known
const AGAIN_MS = 15_000;
const [WIDTH, HEIGHT] = [600, 72]; // of a picture, in its own units; it is stretched to its place

/** The pictures of a queue, a user or a group: {queue}, {user} or {group}; `typeOf` gives the resource that is shown. */
export function history(live, subject, typeOf) {
  const panels = [use(live, typeOf), waits(), evictions()].map((one) => panel(live, one));
  const note = h("p", { class: "note" }, !subject.queue ? `Nothing of this ${subject.user ? "user" : "group"} was live in the last hour.` : "The first half minute is being recorded.");
  const pictures = h("div", { class: "hour" }, ...panels.map((one) => one.element));
  const element = h("section", { class: "wide past" }, h("div", { class: "title" }, h("h2", {}, "The last hour")), note, pictures);
  let found = { points: [], everySeconds: 30 };
  let isOver = false;
  const show = () => {
    note.hidden = found.points.length > 0;
    pictures.hidden = !found.points.length;
    if (found.points.length) for (const one of panels) one.show(found.points, found.everySeconds * 1000);
  };
  const load = atMostEvery(AGAIN_MS, async () => {
    try {
      found = (await ask(`/v1/history?${new URLSearchParams({ ...subject, partition })}`)) ?? found;
      if (!isOver) show();
    } catch (error) {
      note.hidden = false;
      text(note, `The last hour could not be read: ${error.message}`);
    }
  });
  show(); // nothing yet: pictures without points have no name
  load();
  return {
    element, show,
    update: load,
    dispose() {
      isOver = true;
      load.cancel();
    },
  };
}

/** What a panel draws: its values, their scale, and how it says them. */
function use(live, typeOf) {
  const amounts = (point, key) => point[key]?.[typeOf()] ?? 0;
  return {
    title: () => `${label(typeOf())} in use`,
    value: (point) => amounts(point, "allocated"),
    limit: (point) => amounts(point, "max") || null,
    says: (value, point) => {
      const most = amounts(point, "max");
      if (!most) return amount(typeOf(), value);
      const [part, whole, unit] = ofWhole(typeOf(), value, most);
      return `${part} of ${whole} ${unit}`.trim();
    },
    scale: (value) => amount(typeOf(), value),
  };
}

const waits = () => ({ title: () => "Pods waiting", value: (point) => point.waiting, limit: () => null, says: (value) => plural(value, "pod"), scale: count });
const evictions = () => ({ title: () => "Pods evicted", value: (point) => point.evicted, limit: () => null, says: (value) => `${plural(value, "pod")} in half a minute`, sums: (value) => `${plural(value, "pod")} in this hour`, scale: count, isBars: true });

function panel(live, draws) {
  const title = h("strong", {});
  const says = h("span", { class: "says" });
  const top = h("span", { class: "top" });
  const begins = h("span", {});
  const area = s("path", { class: "area" });
  const line = s("path", { class: "line" });
  const limit = s("path", { class: "limit" });
  const cursor = s("path", { class: "cursor" });
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, area, line, limit, cursor);
  const element = h("figure", { class: draws.isBars ? "history evictions" : "history" }, h("figcaption", {}, title, says), top, svg,
    h("div", { class: "times", "aria-hidden": "true" }, begins, h("span", {}, "now")));
  let points = [];
  let until = 0;
  let span = HOUR_MS;
  const x = (point) => WIDTH * (1 - (until - point.time / 1e6) / span);
  const rest = () => {
    const last = points.at(-1);
    attribute(cursor, "d", "");
    if (!last) return text(says, "");
    text(says, draws.sums ? draws.sums(points.reduce((sum, point) => sum + draws.value(point), 0)) : draws.says(draws.value(last), last));
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (WIDTH * (event.clientX - box.left)) / box.width;
    const near = points.reduce((best, point) => (Math.abs(x(point) - at) < Math.abs(x(best) - at) ? point : best), points[0]);
    if (!near) return;
    attribute(cursor, "d", `M${x(near).toFixed(1)} 0V${HEIGHT}`);
    text(says, `${clock(near.time / 1e6)}: ${draws.says(draws.value(near), near)}`);
  });
  svg.addEventListener("pointerleave", rest);
  return {
    element,
    show(found, every) {
      until = live.now();
      points = found.filter((point) => until - point.time / 1e6 <= HOUR_MS);
      const oldest = points.length ? until - points[0].time / 1e6 + every : 0;
      span = Math.min(HOUR_MS, Math.max(LEAST_MS, oldest));
      text(begins, `${lasting(span)} ago`);
      const values = points.map(draws.value);
      const most = Math.max(...values, ...points.map((point) => draws.limit(point) ?? 0), 1);
      const y = (value) => (HEIGHT - 1 - (HEIGHT - 2) * (value / most)).toFixed(1);
      text(title, draws.title());
      text(top, values.some(Boolean) || points.some(draws.limit) ? draws.scale(most) : "");
      const runs = unbroken(points, every);
      const along = (run, value) => run.map((point, at) => `${at ? "L" : "M"}${x(point).toFixed(1)} ${y(value(point))}`).join("");
      if (draws.isBars) {
        const wide = Math.max(2, (WIDTH * every) / span - 1);
        attribute(area, "d", points.filter((point) => draws.value(point)).map((point) => `M${(x(point) - wide).toFixed(1)} ${HEIGHT}V${y(draws.value(point))}h${wide.toFixed(1)}V${HEIGHT}z`).join(""));
      } else {
        attribute(line, "d", runs.map((run) => along(run, draws.value)).join(""));
        attribute(area, "d", runs.map((run) => `${along(run, draws.value)}V${HEIGHT}H${x(run[0]).toFixed(1)}z`).join(""));
        attribute(limit, "d", runs.map((run) => run.filter((point) => draws.limit(point))).filter((run) => run.length).map((run) => along(run, draws.limit)).join(""));
      }
      rest();
      attribute(svg, "aria-label", described(draws, points, values));
    },
  };
}

/** The points in runs without a pause; one alone is drawn for as long as it stands for. */
function unbroken(points, every) {
  const found = [];
  for (const point of points) {
    const last = found.at(-1)?.at(-1);
    if (last && (point.time - last.time) / 1e6 < 2.5 * every) found.at(-1).push(point);
    else found.push([{ ...point, time: point.time - every * 1e6 }, point]);
  }
  return found;
}

/** A chart as a sentence, for screen readers. */
function described(draws, points, values) {
  if (!points.length) return `${draws.title()}: nothing known`;
  if (draws.sums) return `${draws.title()}: ${draws.sums(values.reduce((sum, value) => sum + value, 0))}`;
  const say = (value) => draws.says(value, points.at(-1));
  return `${draws.title()} since ${clock(points[0].time / 1e6)}: first ${say(values[0])}, at most ${say(Math.max(...values))}, now ${say(values.at(-1))}`;
}
