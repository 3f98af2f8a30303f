/**
 * The tree of the network, where the cluster has one: domains within domains, each with how much of
 * a resource is used in it, and the nodes of the narrowest as cells.
 *
 * Limits: MAX_DOMAINS domains, the widest first, and MAX_CELLS nodes: of more, none.
 */
import { ask, within } from "./api.js";
import { bar } from "./bars.js";
import { atMostEvery, fill, h } from "./dom.js";
import { amount, count, label, ofWhole, plural } from "./format.js";

const MAX_DOMAINS = 500;
const MAX_CELLS = 2000;
const AGAIN_MS = 3000;

/** A section with the tree; `typeOf` gives the resource that is shown. */
export function network(typeOf) {
  const tree = h("div", {});
  const element = h("section", { class: "network", hidden: true }, h("h2", {}, "Network"), tree);
  let found = null;
  let isOver = false;
  const show = () => {
    element.hidden = !found?.levels?.length || !found.domains.length;
    if (element.hidden) return;
    const left = { domains: MAX_DOMAINS, cells: found.nodes <= MAX_CELLS };
    const { outside } = found;
    fill(tree, branch(found.domains, typeOf(), left), left.domains < 0 ? h("p", { class: "note" }, `${count(-left.domains)} more domains: muster topology lists them.`) : null,
      outside.length ? h("p", { class: "note" }, `${plural(outside.length, "node")} in no domain: ${outside.slice(0, 5).join(", ")}${outside.length > 5 ? " …" : ""}`) : null);
  };
  const load = atMostEvery(AGAIN_MS, async () => {
    const now = await ask(within("/v1/topology")).catch(() => null);
    if (isOver || !now) return;
    found = now;
    show();
  });
  return {
    element, show,
    update: load,
    dispose() {
      isOver = true;
      load.cancel();
    },
  };
}

/** Domains beside each other, each with those in it; single nodes are cells. */
function branch(domains, type, left) {
  const areNodes = domains.every((one) => one.nodes === 1 && !one.domains.length);
  if (areNodes) return left.cells ? h("ul", { class: "cells" }, ...domains.map((one) => h("li", {}, cell(one, type)))) : null;
  left.domains -= domains.length;
  const drawn = left.domains < 0 ? domains.slice(0, Math.max(0, domains.length + left.domains)) : domains;
  return h("ul", { class: "domains" }, ...drawn.map((one) => h("li", {}, ...head(one, type), one.domains.length ? branch(one.domains, type, left) : null)));
}

const of = (domain, key, type) => domain[key][type] ?? 0;

function head(domain, type) {
  const [used, others, has] = ["allocated", "occupied", "capacity"].map((key) => of(domain, key, type));
  const [free, whole, unit] = ofWhole(type, of(domain, "free", type), has);
  return [
    h("span", { class: "line" }, h("strong", {}, domain.name), h("span", {}, plural(domain.nodes, "node"))),
    bar(type, { used, foreign: others, max: has }, has),
    h("span", { class: "free" }, `${free} of ${whole} ${unit} free`.replace("  ", " ")),
  ];
}

function cell(domain, type) {
  const [used, has] = [of(domain, "allocated", type) + of(domain, "occupied", type), of(domain, "capacity", type)];
  const fills = h("i", {});
  fills.style.height = `${has > 0 ? Math.min(100, (100 * used) / has) : 0}%`;
  const says = `${domain.name}: ${amount(type, used)} of ${amount(type, has)} ${label(type)} used${domain.schedulable ? "" : ", drained"}`;
  return h("a", { href: `#/nodes/${encodeURIComponent(domain.name)}`, title: says, "aria-label": says, class: domain.schedulable ? null : "drained" }, fills);
}
