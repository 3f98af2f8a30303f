/**
 * A gang as a row or a grid of members, a cell each, in six states with a shape of their own:
 * running (full), held (lower half), wanted (empty), ended (a dot), lost (a cross), evicted (a stroke).
 */
import { attribute, colour, h, sharp } from "./dom.js";
import { count } from "./format.js";
import { ENDED } from "./live.js";

export const STATES = ["running", "held", "wanted", "ended", "lost", "evicted"];
const MAX_CELLS = 2000;
const LEAST = 5; // of a bar, in pixels, for a state that occurs

/** How many members of an application are in each state; wanted are those that nothing stands for. */
export function members(item) {
  const pending = ENDED.has(item.state) ? 0 : item.pending;
  const coming = ENDED.has(item.state) ? 0 : Math.max(0, item.wanted - item.replaced - item.held - item.timedout);
  const counts = {
    running: item.running,
    held: item.held,
    wanted: Math.max(pending, item.wanted ? Math.min(coming, item.wanted) : 0),
    ended: item.ended,
    lost: item.lost,
    evicted: item.evicted,
  };
  return { counts, total: STATES.reduce((sum, state) => sum + counts[state], 0) };
}

/** How many pods an application has, or asks for; 0 of none. */
export const podsOf = (item) => (item ? item.running + item.held + item.pending : 0);

export function described({ counts }) {
  return STATES.filter((state) => counts[state]).map((state) => `${count(counts[state])} ${state}`).join(", ") || "no members yet";
}

function paint(context, state, x, y, size) {
  const ink = colour(`state-${state}`);
  context.fillStyle = context.strokeStyle = ink;
  const box = () => context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  context.lineWidth = 1;
  if (state === "running") context.fillRect(x, y, size, size);
  else if (state === "held") {
    box();
    context.fillRect(x, y + size / 2, size, size / 2);
  } else if (state === "wanted") box();
  else if (state === "ended") {
    context.beginPath();
    context.arc(x + size / 2, y + size / 2, size / 5, 0, 7);
    context.fill();
  } else {
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x + 1, y + size - 1);
    context.lineTo(x + size - 1, y + 1);
    if (state === "lost") {
      context.moveTo(x + 1, y + 1);
      context.lineTo(x + size - 1, y + size - 1);
    }
    context.stroke();
    context.lineWidth = 1;
  }
}

/** Draw members into a canvas of a given width; in one line they become parts of a bar when many. */
export function drawMembers(canvas, all, width, size, { oneLine = false } = {}) {
  const pitch = size + (size > 9 ? 3 : 2);
  const across = Math.max(1, Math.floor(width / pitch));
  const isBar = all.total > (oneLine ? across : MAX_CELLS);
  const lines = oneLine || isBar ? 1 : Math.max(1, Math.ceil(all.total / across));
  const context = sharp(canvas, width, lines * pitch);
  context.clearRect(0, 0, width, lines * pitch);
  let at = 0;
  const spare = width - LEAST * STATES.filter((state) => all.counts[state]).length;
  for (const state of STATES) {
    if (isBar) {
      const part = all.counts[state] && LEAST + (all.counts[state] / all.total) * spare;
      if (part > 0) {
        context.fillStyle = context.strokeStyle = colour(`state-${state}`);
        if (state === "wanted") context.strokeRect(at + 0.5, 0.5, Math.max(1, part - 2), size - 1);
        else if (state === "held") {
          context.strokeRect(at + 0.5, 0.5, Math.max(1, part - 2), size - 1);
          context.fillRect(at, size / 2, Math.max(1, part - 1), size / 2);
        } else if (state === "ended") context.fillRect(at, size / 2 - 1, Math.max(1, part - 1), 2);
        else context.fillRect(at, 0, Math.max(1, part - 1), size);
      }
      at += part;
    } else {
      for (let n = 0; n < all.counts[state]; n++, at++) {
        paint(context, state, (at % across) * pitch, Math.floor(at / across) * pitch, size);
      }
    }
  }
  attribute(canvas, "aria-label", described(all));
}

/** What the cells mean, those that occur. */
export function memberLegend(all) {
  return STATES.filter((state) => all.counts[state]).map((state) => {
    const canvas = h("canvas", { "aria-hidden": "true" });
    paint(sharp(canvas, 11, 11), state, 0, 0, 11);
    return h("span", {}, canvas, `${count(all.counts[state])} ${state}`);
  });
}
