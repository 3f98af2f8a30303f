/**
 * What the page knows of the cluster, kept by one stream of differences.
 *
 * Rule 1: a snapshot replaces everything; a difference is applied only if it is the next in number.
 *         After a gap the stream is opened again, and its snapshot replaces everything.
 * Rule 2: what has changed is gathered here and shown once a frame, however much came in between.
 * Rule 3: nothing here touches the document.
 *
 * Limits: MAX_EVENTS events, MAX_ENDED ended applications, MAX_USE points of the cluster's use.
 */
import { events, within } from "./api.js";

const MAX_EVENTS = 1000;
const MAX_ENDED = 500;
const MAX_USE = 240;
const USE_EVERY_MS = 1500;
const SILENT_MS = 4000;
const AGAIN_MS = [500, 1000, 2000, 5000];
export const ENDED = new Set(["Completed", "Failed", "Rejected", "Expired"]);

/** What has changed since it was shown last. */
class Changed {
  constructor(all = false) {
    this.all = all;
    this.nodes = new Set();
    this.queues = new Set();
    this.applications = new Set();
    this.events = all;
    this.evictions = all;
  }
}

export class Live {
  /** @param {() => void} onChange called whenever something is new; it is cheap to call often */
  constructor(onChange) {
    this.onChange = onChange;
    this.state = "connecting"; // live, lost, away, recovering, denied
    this.away = []; // what does not work, in sentences
    this.since = Date.now();
    this.epoch = 0;
    this.number = 0;
    this.skew = 0; // the server's clock less ours, in ms
    this.types = [];
    this.columns = {};
    this.partition = null;
    this.partitions = []; // to choose from; none while there is one
    this.isGone = false; // no such partition
    this.nodes = new Map();
    this.queues = new Map();
    this.applications = new Map();
    this.ended = new Set();
    this.events = [];
    this.eventsLeftOut = 0;
    this.evictions = 0;
    this.use = [];
    this.frames = 0;
    this.changed = new Changed(true);
    this.heard = 0;
    this.lag = 0;
    this.attempts = 0;
    this.source = null;
    setInterval(() => this.watch(), 1000);
  }

  async connect() {
    this.source?.abort();
    clearTimeout(this.again);
    const source = new AbortController();
    this.source = source;
    this.opened = Date.now();
    if (this.state === "denied") this.set("connecting");
    const takes = { snapshot: this.snapshot, difference: this.difference, beat: this.beat };
    let refused = null;
    try {
      for await (const { event, data } of events(within("/v1/live"), source.signal)) {
        if (source !== this.source) return;
        if (!takes[event]) continue;
        this.heard = Date.now();
        this.attempts = 0;
        const frame = JSON.parse(data);
        this.skew = frame.now - this.heard;
        takes[event].call(this, frame);
        this.onChange();
      }
    } catch (error) {
      refused = error;
    }
    if (source !== this.source) return;
    this.isGone = refused?.status === 404;
    if (refused?.status === 401 || refused?.status === 403) this.deny(refused.message);
    else this.lose();
  }

  /** Stop retrying until the user signs in. */
  deny(message) {
    this.source = null;
    this.refusal = message;
    this.set("denied");
  }

  /** The server's time, in ms. */
  now() {
    return Date.now() + this.skew;
  }

  /** What has changed since this was called last. */
  take() {
    const changed = this.changed;
    this.changed = new Changed();
    return changed;
  }

  lose() {
    this.source?.abort();
    this.source = null;
    this.set("lost");
    const wait = AGAIN_MS[Math.min(this.attempts++, AGAIN_MS.length - 1)];
    clearTimeout(this.again);
    this.again = setTimeout(() => this.connect(), wait);
  }

  watch() {
    const last = Math.max(this.heard, this.opened ?? 0);
    if (this.source && Date.now() - last > SILENT_MS) this.lose();
    this.onChange();
  }

  set(state) {
    if (this.state === state) return;
    this.state = state;
    this.since = Date.now();
    this.onChange();
  }

  beat(frame) {
    this.partitions = frame.partitions ?? [];
    this.away = frame.away ?? [];
    this.age = frame.age ?? 0;
    if (this.away.length) this.set("away");
    else if (!frame.isReady) this.set("recovering");
    else if (frame.number < this.number) this.connect();
    else this.set(this.partition ? "live" : "connecting");
  }

  snapshot(frame) {
    this.columns = frame.columns;
    this.number = frame.number;
    this.epoch = frame.epoch;
    this.types = frame.types;
    this.partition = frame.partition;
    this.evictions = frame.evictions;
    this.nodes = new Map(frame.nodes.map((row) => [row[0], this.row("nodes", row)]));
    this.queues = new Map(frame.queues.map((queue) => [queue.path, queue]));
    this.applications = new Map();
    this.ended = new Set();
    for (const row of frame.applications) this.application(row);
    this.events = frame.events.map((row) => this.row("events", row));
    this.changed = new Changed(true);
    this.frames++;
    this.set("live");
    this.noteUse();
  }

  difference(frame) {
    if (frame.number !== this.number + 1) {
      if (frame.number > this.number) this.connect();
      return;
    }
    this.number = frame.number;
    this.frames++;
    const { changed } = this;
    if (frame.types) this.types = frame.types;
    if (frame.partition) this.partition = frame.partition;
    for (const row of frame.nodes ?? []) {
      this.nodes.set(row[0], this.row("nodes", row));
      changed.nodes.add(row[0]);
    }
    for (const queue of frame.queues ?? []) {
      this.queues.set(queue.path, queue);
      changed.queues.add(queue.path);
    }
    for (const row of frame.applications ?? []) {
      this.application(row);
      changed.applications.add(row[0]);
    }
    for (const kind of ["nodes", "queues", "applications"]) {
      for (const name of frame[`${kind}Gone`] ?? []) {
        this[kind].delete(name);
        changed[kind].add(name);
      }
    }
    if (frame.events) {
      for (const row of frame.events) this.events.push(this.row("events", row));
      if (this.events.length > MAX_EVENTS) this.events.splice(0, this.events.length - MAX_EVENTS);
      this.eventsLeftOut += frame.eventsLeftOut;
      changed.events = true;
    }
    if (frame.evictions !== this.evictions) changed.evictions = true;
    this.evictions = frame.evictions;
    this.noteUse();
  }

  application(row) {
    const item = this.row("applications", row);
    this.applications.set(item.id, item);
    this.ended.delete(item.id);
    if (!ENDED.has(item.state)) return;
    this.ended.add(item.id);
    if (this.ended.size > MAX_ENDED) {
      const [oldest] = this.ended;
      this.ended.delete(oldest);
      this.applications.delete(oldest);
      this.changed.applications.add(oldest);
    }
  }

  row(kind, values) {
    const names = this.columns[kind];
    const item = {};
    for (let at = 0; at < names.length; at++) item[names[at]] = values[at];
    return item;
  }

  noteUse() {
    const last = this.use.at(-1);
    if (last && this.now() - last.time < USE_EVERY_MS) return;
    this.use.push({ time: this.now(), allocated: this.partition.allocated });
    if (this.use.length > MAX_USE) this.use.shift();
  }

  // --- reading ---------------------------------------------------------------------------------

  /** The amount of a resource type in a list of amounts; null stays null (no limit). */
  amount(amounts, type) {
    if (!amounts) return null;
    return amounts[this.types.indexOf(type)] ?? 0;
  }

  /** The types of which the cluster has some, the scarcest kind first. */
  offered() {
    const rank = (name) => (/gpu|tpu|npu|accelerator/i.test(name) ? 0 : { vcore: 1, memory: 2 }[name] ?? (name === "pods" ? 4 : 3));
    return this.types
      .filter((name) => this.amount(this.partition?.capacity, name) > 0)
      .sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  }

  /** How much of a resource type is in use, of 1; -1 where there is none of it. */
  share(type) {
    const whole = this.amount(this.partition?.capacity, type);
    return whole > 0 ? this.amount(this.partition.allocated, type) / whole : -1;
  }

  /** The resource types, the scarcest now first; pods last, which seldom are what lacks. */
  scarcest() {
    const rank = (name) => (name === "pods" ? 1 : 0);
    return this.offered().sort((a, b) => rank(a) - rank(b) || this.share(b) - this.share(a));
  }

  /** What holds each queue back, by path: [reason, message, since ms, pods], the most pods first. */
  heldBack() {
    const found = new Map();
    for (const item of this.waiting()) {
      const [code, message, since] = this.why(item) ?? [];
      if (!code) continue;
      if (!found.has(item.queue)) found.set(item.queue, new Map());
      const rows = found.get(item.queue);
      const key = `${code}\n${message}`;
      const row = rows.get(key) ?? [code, message, since, 0];
      row[2] = since && row[2] ? Math.min(row[2], since) : since || row[2];
      row[3] += item.pending;
      rows.set(key, row);
    }
    for (const [path, rows] of found) found.set(path, [...rows.values()].sort((a, b) => b[3] - a[3]));
    return found;
  }

  /** Why an application waits: [reason, message, since ms], or null. */
  why(application) {
    if (application.reason) return [application.reason, application.message, application.since];
    if (application.shape) {
      const queue = this.queues.get(application.queue);
      const wait = queue?.waiting.find(([shape]) => shape === application.shape);
      if (wait) return wait.slice(1);
    }
    return application.message ? ["", application.message, 0] : null;
  }

  /** The live applications that wait for something, those that wait longest first. */
  waiting() {
    const found = [];
    for (const item of this.applications.values()) {
      if (item.pending && !ENDED.has(item.state)) found.push(item);
    }
    return found.sort((a, b) => a.submitted - b.submitted);
  }
}
