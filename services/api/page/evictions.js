/** Evictions: arrows from the victim to the application that got its room, with the policy. */
import { ask, within } from "./api.js";
import { atMostEvery, fill, h, s, text, to } from "./dom.js";
import { clock, count, exact, plural, resource } from "./format.js";
import { smallTable } from "./table.js";

const MOST_ARROWS = 30;
const MOST_ROWS = 300;
const LINE = 30;

/** Arrows from each victim's application to who got the room, one a pair and law. */
export function arrows(rows) {
  const pairs = new Map();
  for (const row of rows) {
    const winner = row.winner || (row.law === "quota" ? "the quota" : "none");
    const key = `${row.victimApplication}\n${winner}\n${row.law}`;
    if (!pairs.has(key)) pairs.set(key, { victim: row.victimApplication, winner, law: row.law, pods: 0, isApplication: Boolean(row.winner) });
    pairs.get(key).pods++;
  }
  const all = [...pairs.values()].slice(-MOST_ARROWS);
  const left = [...new Set(all.map((pair) => pair.victim))];
  const right = [...new Set(all.map((pair) => pair.winner))];
  const height = Math.max(left.length, right.length) * LINE;
  const place = (names, name) => ((names.indexOf(name) + 0.5) * height) / names.length;
  const svg = s("svg", { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", class: "lines", "aria-hidden": "true" });
  const labels = h("div", { class: "laws" });
  const taken = [];
  for (const pair of all) {
    const [from, until] = [place(left, pair.victim), place(right, pair.winner)];
    svg.append(s("path", { class: "arrow", "data-law": pair.law, d: `M0 ${from} C45 ${from} 55 ${until} 98 ${until}`, "vector-effect": "non-scaling-stroke" }));
    const [x, y] = free(from, until, taken);
    taken.push([x, y]);
    const says = h("span", { class: "law" }, pair.law, h("span", { class: "pods" }, ` · ${plural(pair.pods, "pod")}`));
    says.style.left = `${x}%`;
    says.style.top = `${y}px`;
    labels.append(says);
  }
  const names = (list, isWinner) => h("div", { class: "names" }, ...list.map((name) => {
    const pair = all.find((one) => (isWinner ? one.winner : one.victim) === name);
    const line = h("span", {}, !isWinner || pair.isApplication ? to("applications", name) : name);
    line.style.top = `${place(list, name)}px`;
    return line;
  }));
  const says = all.map((pair) => `${pair.victim} made way for ${pair.winner} (${pair.law}, ${plural(pair.pods, "pod")})`).join("; ");
  const middle = h("div", { class: "middle" }, svg, labels);
  const drawing = h("div", { class: "arrows", role: "group", "aria-label": says }, names(left, false), middle, names(right, true));
  drawing.style.height = `${height}px`;
  return h("div", {}, h("div", { class: "arrow-heads" }, h("span", {}, "made way"), h("span", {}, "got the room")), drawing);
}

/** A place on an arrow where no other law is written: near the victim, where arrows are apart. */
function free(from, until, taken) {
  const on = (t) => {
    const [a, b, c, d] = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t ** 3];
    return [45 * b + 55 * c + 98 * d, (a + b) * from + (c + d) * until];
  };
  const places = [0.3, 0.5, 0.7].map(on);
  const isFree = ([x, y]) => taken.every(([left, top]) => Math.abs(top - y) > 17 || Math.abs(left - x) > 30);
  return places.find(isFree) ?? places[0];
}

export function evictionsView({ live }) {
  const body = h("div", {});
  const note = h("p", { class: "note" });
  let isOver = false;
  async function show() {
    let rows;
    try {
      rows = await ask(within("/v1/evictions"));
    } catch (error) {
      return text(note, `They could not be read: ${error.message}`);
    }
    if (isOver) return;
    if (!rows) {
      text(note, `${plural(live.evictions, "pod was", "pods were")} evicted since this replica started. Who got the room is not told by this API (it has no /v1/evictions); the events say it in words.`);
      return fill(body, h("p", {}, h("a", { href: "#/events?filter=preempt" }, "Events of preemption")));
    }
    text(note, rows.length ? `${plural(rows.length, "eviction")}, the newest ${count(Math.min(rows.length, MOST_ROWS))} below.` : "");
    const newest = rows.toReversed();
    fill(body, ...(rows.length ? [arrows(rows), h("h2", {}, "One by one"), smallTable(["Time", "Victim", "Of", "Made way for", "Cause", "Freed", "Node", "Says"], newest.slice(0, MOST_ROWS).map((row) => [
      h("time", { title: exact(row.time / 1e6) }, clock(row.time / 1e6)), row.victimName || row.victim, to("applications", row.victimApplication), row.winner ? to("applications", row.winner) : "–", row.law, resource(row.resource), row.nodeID ? to("nodes", row.nodeID) : "–", row.message]))]
      : [h("p", { class: "empty" }, "No pod has been evicted.")]));
  }
  const soon = atMostEvery(1000, show);
  return {
    title: "Evictions",
    element: h("div", {}, h("h1", {}, "Evictions"), note, body),
    update: (changed) => (changed.all || changed.evictions) && soon(),
    dispose() {
      isOver = true;
      soon.cancel();
    },
  };
}
