/**
 * A table that sorts, filters and keeps both in the address. Only the rows in sight are elements, so
 * ten thousand rows cost what forty do.
 *
 * A column: {key, title, value(item) for sorting and copying, show(item, cell) to fill a cell,
 * isNumber, width and narrow (of a CSS grid), isLess (hidden where it is narrow), isUnder (has a line
 * of its own there)}.
 */
import { atMostEvery, attribute, copyButton, h, text } from "./dom.js";
import { count } from "./format.js";

const ROW = 34;
const TALL = 52;
const BEYOND = 8;
const SORT_EVERY_MS = 1000;
export const narrow = matchMedia("(max-width: 860px)");

export class Table {
  /**
   * @param {{columns: object[], items: () => Iterable<object>, id: (item) => string, empty: string,
   *   noun: string, link?: (item) => string, query: URLSearchParams, sort?: string,
   *   onQuery: (query: URLSearchParams) => void, hasFilter?: boolean, extra?: Node[]}} options
   */
  constructor(options) {
    this.options = options;
    this.query = options.query;
    this.rows = new Map();
    this.spare = [];
    this.items = [];
    this.filter = h("input", { type: "search", placeholder: `Filter ${options.noun}`, "aria-label": `Filter ${options.noun}`, spellcheck: "false", value: this.query.get("filter") ?? "" });
    this.filter.addEventListener("input", () => {
      this.keep("filter", this.filter.value);
      this.sortNow();
    });
    this.shown = h("span", { class: "count" });
    this.heads = options.columns.map((column) => this.head(column));
    this.body = h("div", { class: "rows", role: "rowgroup" });
    this.empty = h("p", { class: "empty", hidden: true }, options.empty);
    const tools = [this.filter, ...(options.extra ?? []), this.shown, copyButton(() => this.tsv())];
    this.grid = h("div", { class: "table", role: "table", "aria-label": options.noun },
      h("div", { class: "heads", role: "row" }, ...this.heads), this.body);
    const narrowWidth = (column) => column.narrow ?? (column.isNumber ? "4.4rem" : "minmax(0, 1fr)");
    this.grid.style.setProperty("--columns", options.columns.map((column) => column.width ?? "1fr").join(" "));
    this.grid.style.setProperty("--columns-narrow", options.columns.filter((column) => !column.isLess && !column.isUnder).map(narrowWidth).join(" "));
    this.element = h("section", { class: "listing" }, options.hasFilter === false ? null : h("div", { class: "tools" }, ...tools), this.grid, this.empty);
    this.scroll = () => this.show();
    addEventListener("scroll", this.scroll, { passive: true });
    addEventListener("resize", this.scroll);
    this.sortSoon = atMostEvery(SORT_EVERY_MS, () => this.sortNow());
  }

  dispose() {
    removeEventListener("scroll", this.scroll);
    removeEventListener("resize", this.scroll);
    this.sortSoon.cancel();
  }

  head(column) {
    const button = h("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      const [key, isDown] = this.order();
      this.keep("sort", key === column.key && !isDown ? `-${key}` : column.key);
      this.sortNow();
    });
    return h("div", { role: "columnheader", class: classes(column) }, button);
  }

  order() {
    const sort = this.query.get("sort") ?? this.options.sort ?? this.options.columns[0].key;
    return sort.startsWith("-") ? [sort.slice(1), true] : [sort, false];
  }

  keep(name, value) {
    if (value) this.query.set(name, value);
    else this.query.delete(name);
    this.options.onQuery(this.query);
  }

  /** Show again: rows that changed at once, their order once a second. */
  update(isNew = false) {
    if (isNew || !this.items.length) this.sortNow();
    else {
      this.show();
      this.sortSoon();
    }
  }

  sortNow() {
    const [key, isDown] = this.order();
    const { columns } = this.options;
    const column = columns.find((one) => one.key === key) ?? columns[0];
    const wanted = this.filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let total = 0;
    const found = [];
    for (const item of this.options.items()) {
      total++;
      if (wanted.length) {
        const line = columns.map((one) => one.value(item)).join(" ").toLowerCase();
        if (!wanted.every((word) => line.includes(word))) continue;
      }
      found.push(item);
    }
    const value = column.value;
    found.sort((a, b) => compare(value(a), value(b)) || compare(this.options.id(a), this.options.id(b)));
    if (isDown) found.reverse();
    this.items = found;
    this.heads.forEach((head, at) => {
      const isIt = columns[at] === column;
      head.setAttribute("aria-sort", isIt ? (isDown ? "descending" : "ascending") : "none");
    });
    text(this.shown, found.length === total ? count(total) : `${count(found.length)} of ${count(total)}`);
    this.grid.setAttribute("aria-rowcount", found.length + 1);
    this.empty.hidden = found.length > 0;
    this.grid.hidden = found.length === 0;
    this.empty.textContent = total && !found.length ? "Nothing matches the filter." : this.options.empty;
    this.show();
  }

  height() {
    return narrow.matches ? TALL : ROW;
  }

  show() {
    const height = this.height();
    this.body.style.height = `${this.items.length * height}px`;
    const top = this.body.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(-top / height) - BEYOND);
    const until = Math.min(this.items.length, Math.ceil((innerHeight - top) / height) + BEYOND);
    const seen = new Set();
    const { id } = this.options;
    for (let at = from; at < until; at++) seen.add(id(this.items[at]));
    for (const [name, row] of this.rows) {
      if (!seen.has(name)) {
        this.rows.delete(name);
        row.element.hidden = true;
        this.spare.push(row);
      }
    }
    for (let at = from; at < until; at++) this.place(this.items[at], at, height);
  }

  place(item, at, height) {
    const name = this.options.id(item);
    let row = this.rows.get(name);
    if (!row) {
      row = this.spare.pop() ?? this.makeRow();
      row.element.hidden = false;
      row.item = null;
      this.rows.set(name, row);
    }
    if (row.at !== at || row.height !== height) {
      row.at = at;
      row.height = height;
      row.element.style.transform = `translateY(${at * height}px)`;
      row.element.setAttribute("aria-rowindex", at + 2);
    }
    if (this.options.link) attribute(row.cells[0], "href", this.options.link(item));
    const isOther = row.item !== item;
    row.item = item;
    this.options.columns.forEach((column, n) => {
      if (column.show) column.show(item, row.cells[n], isOther);
      else text(row.cells[n], String(column.value(item) ?? ""));
    });
  }

  makeRow() {
    const cells = this.options.columns.map((column) => h("div", { role: "cell", class: classes(column), "data-title": column.title }));
    const element = h("div", { class: this.options.link ? "row linked" : "row", role: "row" }, ...cells);
    if (this.options.link) this.lead(element, cells);
    this.body.append(element);
    return { element, cells, item: null, at: -1, height: 0 };
  }

  /** Put a link into the first cell of a row; a click anywhere else on the row follows it too. */
  lead(element, cells) {
    const link = h("a", {});
    cells[0].append(link);
    cells[0] = link;
    element.addEventListener("click", (event) => {
      if (!event.target.closest("a") && !String(getSelection())) location.hash = link.getAttribute("href");
    });
  }

  tsv() {
    const { columns } = this.options;
    const clean = (value) => String(value ?? "").replaceAll(/[\t\r\n]+/g, " ");
    return [columns.map((column) => column.title), ...this.items.map((item) => columns.map((column) => clean(column.value(item))))]
      .map((line) => line.join("\t")).join("\n");
  }
}

const classes = (column) => [column.isNumber && "number", column.isLess && "less", column.isUnder && "under", column.class].filter(Boolean).join(" ");

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}

/** A small table of fixed rows: [[cell, …]], numbers to the right. */
export function smallTable(titles, rows, { numbers = [] } = {}) {
  const cell = (tag) => (value, at) => h(tag === "th" && !value ? "td" : tag, { class: numbers.includes(at) ? "number" : null, scope: tag === "th" && value ? "col" : null }, value ?? "");
  return h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": titles.join(", ") },
    h("table", {}, h("thead", {}, h("tr", {}, ...titles.map(cell("th")))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map(cell("td")))))));
}

