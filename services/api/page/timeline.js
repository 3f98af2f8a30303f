/**
 * What became of a gang, as a picture: its members by state over time, on a scale from its submission
 * to its end or to now, its states above it and its milestones below.
 */
import { ask, within } from "./api.js";
import { fill, h, s } from "./dom.js";
import { clock, exact, lasting, plural, took } from "./format.js";

const [WIDTH, HEIGHT] = [1000, 96]; // of the picture, in its own units; it is stretched to its place
const STATES = ["running", "held", "ended", "lost", "evicted"]; // from the ground up
const LEAST_NAMED = 0.09; // of the width: a state that takes less is a colour without its name

/** A section that shows the timeline of a gang; nothing for what is no gang. */
export function timeline(live, name) {
  const element = h("section", { class: "timeline", hidden: true });
  return {
    element,
    async load() {
      const found = await ask(within(`/v1/applications/${encodeURIComponent(name)}/timeline`)).catch(() => null);
      element.hidden = !found?.steps?.length;
      if (!element.hidden) fill(element, h("h2", {}, "Timeline"), ...drawn(found, live.now()));
    },
  };
}

function drawn(found, now) {
  const from = found.submissionTime / 1e6;
  const until = Math.max(from + 1, found.finishedTime ? found.finishedTime / 1e6 : now);
  const x = (time) => (WIDTH * Math.min(1, Math.max(0, (time / 1e6 - from) / (until - from)))).toFixed(1);
  const stands = found.steps.map((step) => ({ time: step.time, sums: sums(step), step }));
  const most = Math.max(found.wanted, ...stands.map(({ sums: all }) => all.at(-1)), 1);
  const y = (members) => (HEIGHT * (1 - members / most)).toFixed(1);
  const layers = STATES.map((state, at) => {
    const upper = stands.map(({ time, sums: all }, n) => `${n ? `H${x(time)}V` : `M${x(time)} `}${y(all[at + 1])}`).join("");
    const lower = stands.toReversed().map(({ sums: all }, n) => `${n ? "V" : "L"}${n ? y(all[at]) : `${WIDTH} ${y(all[at])}`}H${x(stands[stands.length - 1 - n].time)}`).join("");
    return s("path", { class: `layer ${state}`, d: `${upper}H${WIDTH}${lower}z` });
  });
  const marks = found.milestones.map(({ time }) => s("path", { class: "mark", d: `M${x(time)} 0V${HEIGHT}` }));
  const picture = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": described(found, stands.at(-1)?.step) }, ...layers, ...marks);
  const used = STATES.filter((state, at) => stands.some(({ sums: all }) => all[at + 1] > all[at]));
  return [
    stateLine(found, from, until),
    h("div", { class: "plot" }, picture, h("span", { class: "top" }, plural(most, "member"))),
    h("div", { class: "times", "aria-hidden": "true" }, h("span", {}, clock(from)), h("span", {}, `${lasting(until - from)}${found.finishedTime ? " in all" : " until now"}`), h("span", {}, clock(until))),
    h("div", { class: "legend" }, ...used.map((state) => h("span", {}, h("i", { class: `key ${state}` }), state))),
    found.knownSince ? h("p", { class: "note" }, `What was before ${clock(found.knownSince / 1e6)} is not known to this replica.`) : null,
    h("ol", { class: "milestones" }, ...found.milestones.map((one) => h("li", {}, h("time", { title: exact(one.time / 1e6) }, after(one.time / 1e6 - from)), h("span", {}, one.text)))),
  ];
}

/** How many members are in the states up to each, from none on. */
function sums(step) {
  const found = [0];
  for (const state of STATES) found.push(found.at(-1) + step[state]);
  return found;
}

/** How long after the submission: to a tenth of a second in the first minute, to a second in the first hour. */
function after(ms) {
  if (ms < 1000) return `+${took(Math.max(0, ms))}`;
  if (ms < 60_000) return `+${(ms / 1000).toFixed(1)}\u202fs`;
  const seconds = Math.floor((ms % 60_000) / 1000);
  return `+${lasting(ms)}${ms < 3_600_000 && seconds ? ` ${seconds}\u202fs` : ""}`;
}

/** The states of the application, each as long as it lasted. */
function stateLine(found, from, until) {
  const line = h("div", { class: "states", "aria-hidden": "true" });
  found.states.forEach((one, at) => {
    const starts = Math.max(from, one.time / 1e6);
    const ends = found.states[at + 1] ? found.states[at + 1].time / 1e6 : until;
    const share = (ends - starts) / (until - from);
    if (share <= 0) return;
    const part = h("span", { "data-in": one.state, title: `${one.state} for ${lasting(ends - starts)}` }, share >= LEAST_NAMED ? one.state : "");
    part.style.flexGrow = share;
    line.append(part);
  });
  return line;
}

/** The chart as a sentence, for screen readers. */
function described(found, last) {
  const now = STATES.filter((state) => last?.[state]).map((state) => `${last[state]} ${state}`).join(", ");
  return `${plural(found.wanted, "member")} of the gang over time; at the end ${now || "none has a place"}`;
}
