// The page without a kernel: steps, pictures, the chosen chunk, holders, search, and whether a request would fit.
//
// `exporters/interactive_page.py` writes the page: elements with the ids below, and the data. Plotly draws the axes, timelines
// and bars; the chunks are painted under its axes. While the step moves, only what must follow is drawn: the map, the
// line at the step, and the numbers; the rest follows when it rests.

import { bin_of, column, Heap, inflated } from "./page_heap.js";
import { ALLOCATE, EXTEND, FREE, KINDS, MARK, MERGE, OOM, SPLIT } from "./page_heap.js";
import { FREE_CHUNK, IN_USE, NOTHING, NUM_BINS } from "./page_heap.js";
import { MANY_REGIONS, MapCanvas, STRONG } from "./page_map.js";

const REST_MS = 120; // without a new step: then all is drawn
const REFIT_MS = 400; // between two axes of the map while the step moves: plotly takes longer than a frame for them
const POINTS = 1000; // of a timeline, at most
const LADDER_STEPS = 600;
const THUMB = 16; // pixels of the slider's thumb
const MOST_FOUND = 300; // matches that are outlined
const MOST_HOLDERS = 14;
const MOST_TICKS = 20; // of the rows of the map
const MOST_TAKERS = 300;
const MOST_BLOCKERS = 60;
const PADDING = 2; // flags of an event, as in bfcviz/events/schema.py
const HELD = 4;
const SMALL = 1 << 20; // PyTorch keeps requests up to this size apart
const SMALL_SEGMENT = 2 << 20;
const WAYS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down" }; // on the map
const MAP_KEYS = ["Enter", " ", "Escape"];
const CONFIG = { displaylogo: false, responsive: true, showSendToCloud: false, typesetMath: false };
CONFIG.modeBarButtonsToRemove = ["select2d", "lasso2d", "toImage"];

// ---------------------------------------------------------------------------------------------------------------------
// Texts.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// With one digit after the point, as Python writes it: of two that are as near, the even one.
export function one_digit(value) {
  const below = Math.floor(value * 10);
  return (value * 10 - below === 0.5 && below % 2 === 0 ? below / 10 : value).toFixed(1);
}

export function format_bytes(size) {
  let [value, unit] = [Math.abs(size), 0];
  for (; value >= 1023.95 && unit < UNITS.length - 1; unit += 1) value /= 1024;
  return `${size < 0 ? "-" : ""}${unit ? one_digit(value) : value.toFixed(0)} ${UNITS[unit]}`;
}

export const counted = (number) => number.toLocaleString("en");
const exact_bytes = (size) => (size < 1024 ? `${size} B` : `${format_bytes(size)} (${counted(size)} B)`);
const hex = (address) => `0x${address.toString(16)}`;
const short_bytes = (size) => format_bytes(size).replace(".0 ", " ");

// Bytes of a text such as "512MiB", "80 GB" (10^9) or "4096"; null: it is none.
export function parse_bytes(text) {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([KMGTPE]?)(i?B)?\s*$/i.exec(text);
  if (!match) return null;
  const power = " KMGTPE".indexOf(match[2].toUpperCase() || " ");
  const decimal = match[2] && (match[3] ?? "").toUpperCase() === "B";
  return Math.floor(Number(match[1]) * (decimal ? 1000 : 1024) ** power);
}

function axis_unit(largest) {
  const at = UNITS.findIndex((_, power) => largest < 2048 * 1024 ** power);
  const power = at < 0 ? UNITS.length - 1 : at;
  return [1024 ** power, UNITS[power]];
}

function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// ---------------------------------------------------------------------------------------------------------------------
// The data of the page: the heap, its labels, what holders are found by, and what chunks are coloured by.

export class PageData {
  static async read(data, tell) {
    const page = new PageData();
    Object.assign(page, data);
    page.labels = JSON.parse(new TextDecoder().decode(await inflated(data.labels)));
    page.heap = await Heap.read(data.heap, tell);
    page.codes = {};
    await page.read_codes([...data.groupings, ...data.colourings]);
    return page;
  }

  async read_codes(ways) {
    for (const { of, codes } of ways) {
      if (codes && !(of in this.codes)) this.codes[of] = this.by_allocation((await column(codes)).left());
    }
  }

  // Numbers of the rows that the page begins with, then of each ALLOCATE, as a look-up by `chunks.event`.
  by_allocation(values) {
    const { heap } = this;
    const rows = this.heap_rows;
    const found = { rows: values.slice(0, rows), events: new Uint32Array(heap.count) };
    let next = rows;
    for (let at = 0; at < heap.count; at += 1) if (heap.events.kind[at] === ALLOCATE) found.events[at] = values[next++];
    return found;
  }

  // The value of a chunk in use that a grouping or a colouring goes by.
  value_of(of, chunk) {
    const { chunks } = this.heap;
    if (of === "state") return 0;
    if (of === "bin") return bin_of(chunks.size[chunk]);
    if (of in this.codes) {
      const at = chunks.event[chunk];
      return at < 0 ? this.codes[of].rows[-1 - at] : this.codes[of].events[at];
    }
    return chunks[of][chunk]; // label, thread, stream
  }

  name_of(label) {
    return this.labels.names[label] || this.labels.places[label] || "";
  }

  stack_of(label) {
    return (this.labels.stacks[label] ?? []).map((frame) => this.labels.frames[frame]);
  }

  // Text that a search looks through.
  text_of(label) {
    const details = Object.values(this.labels.details[label] ?? {}).join("\n");
    return `${this.labels.names[label]}\n${details}\n${this.stack_of(label).join("\n")}`;
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Searches: by label, stack frame, file, address or size.

const SIZE_BOUND = /(?:^|\s)(>=|<=|>|<|=)\s*(\d+(?:\.\d+)?\s*[KMGTPE]?(?:i?B)?)(?=\s|$)/gi;
const COMPARED = {
  ">": (one, other) => one > other,
  "<": (one, other) => one < other,
  ">=": (one, other) => one >= other,
  "<=": (one, other) => one <= other,
  "=": (one, other) => one === other,
};

// A function that says whether a chunk matches a text, bounds of the size, or both; null for neither. Free chunks match
// addresses only. As `search_filter` in bfcviz/model/filters.py.
export function search_of(text, data) {
  const { chunks } = data.heap;
  const bounds = [];
  const rest = text.replace(SIZE_BOUND, (_, sign, size) => {
    bounds.push([COMPARED[sign], parse_bytes(size)]);
    return " ";
  });
  const words = rest.trim().replace(/\s+/g, " ");
  if (!words && !bounds.length) return null;
  const is_found = words ? text_search(words, data) : (chunk) => chunks.state[chunk] === IN_USE;
  return (chunk) => bounds.every(([holds, size]) => holds(chunks.size[chunk], size)) && is_found(chunk);
}

function text_search(wanted, data) {
  const { chunks } = data.heap;
  if (/^0x[0-9a-f]+$/i.test(wanted)) {
    const address = Number(wanted);
    return (chunk) => chunks.address[chunk] <= address && address < chunks.address[chunk] + chunks.size[chunk];
  }
  const lower = wanted.toLowerCase();
  const found = data.labels.names.map((_, label) => data.text_of(label).toLowerCase().includes(lower));
  return (chunk) => chunks.state[chunk] === IN_USE && found[chunks.label[chunk]];
}

// ---------------------------------------------------------------------------------------------------------------------
// Would it fit? As bfcviz/analysis/would_fit.py: the free chunks that take it; else the neighbours that need least freed.

export function fit_of(data, size) {
  const { heap } = data;
  const rounded = Math.max(Math.ceil(size / data.rounding), 1) * data.rounding;
  const answer = { size, rounded, known: data.free_known, takers: [], miss: null, blockers: [], grows: false };
  if (!answer.known) return answer;
  const usable = usable_regions(data, rounded);
  const { state, size: sizes, address, region } = heap.chunks;
  const order = heap.by_address();
  for (const chunk of order) {
    if (state[chunk] === FREE_CHUNK && sizes[chunk] >= rounded && usable(region[chunk])) answer.takers.push(chunk);
  }
  answer.takers.sort((one, other) => sizes[one] - sizes[other] || address[one] - address[other]);
  const room = data.limit === null ? Infinity : data.limit - heap.pool_bytes;
  answer.room = room;
  if (answer.takers.length) return answer;
  answer.grows = rounded <= room;
  const run = best_run(heap, order, rounded);
  if (run === null) return answer;
  const inside = [...order.subarray(run.first, run.stop)];
  const total = inside.reduce((sum, chunk) => sum + sizes[chunk], 0);
  answer.miss = { address: address[inside[0]], size: total, region: region[inside[0]] };
  answer.blockers = inside.filter((chunk) => state[chunk] === IN_USE).sort((one, other) => sizes[other] - sizes[one]);
  return answer;
}

// PyTorch and CuPy keep free memory per stream and private pool, PyTorch also apart for small requests: which regions
// serve this one, of the stream and pool that hold most. An empty region serves any stream.
function usable_regions(data, rounded) {
  if (!data.apart) return () => true;
  const { state, size, requested, region, stream, label } = data.heap.chunks;
  const regions = new Map();
  const held = new Map();
  for (let chunk = 0; chunk < state.length; chunk += 1) {
    if (state[chunk] === NOTHING) continue;
    let about = regions.get(region[chunk]);
    if (!about) regions.set(region[chunk], (about = { owner: null, lowest: Infinity, large: false, size: 0, bytes: 0 }));
    about.size += size[chunk];
    if (state[chunk] !== IN_USE) continue;
    about.bytes += size[chunk];
    about.large ||= requested[chunk] > SMALL;
    const address = data.heap.chunks.address[chunk];
    if (address < about.lowest) {
      const pool = data.apart === "torch" ? (data.labels.details[label[chunk]]?.private_pool ?? "") : "";
      Object.assign(about, { lowest: address, owner: `${stream[chunk]} ${pool}` });
    }
  }
  for (const { owner, bytes } of regions.values()) if (owner !== null) held.set(owner, (held.get(owner) ?? 0) + bytes);
  const most = [...held].reduce((one, other) => (other[1] > one[1] ? other : one), ["", -1])[0];
  return (slot) => {
    const { owner, large, size: whole } = regions.get(slot);
    if (owner !== null && owner !== most) return false;
    if (data.apart !== "torch") return true;
    return (owner !== null ? !large : whole === SMALL_SEGMENT) === rounded <= SMALL;
  };
}

// The run of neighbours of at least `wanted` bytes in one region with the fewest bytes in use: indices of `order`.
function best_run(heap, order, wanted) {
  const { state, size, region } = heap.chunks;
  let [best, first, total, used, count] = [null, 0, 0, 0, 0];
  for (let stop = 0; stop < order.length; stop += 1) {
    const chunk = order[stop];
    if (stop > first && region[order[stop - 1]] !== region[chunk]) [first, total, used, count] = [stop, 0, 0, 0];
    total += size[chunk];
    if (state[chunk] === IN_USE) [used, count] = [used + size[chunk], count + 1];
    while (total - size[order[first]] >= wanted) {
      const gone = order[first++];
      total -= size[gone];
      if (state[gone] === IN_USE) [used, count] = [used - size[gone], count - 1];
    }
    if (total >= wanted && (best === null || used < best.used || (used === best.used && count < best.count))) {
      best = { first, stop: stop + 1, used, count };
    }
  }
  if (best === null) return null;
  const joins = (at, beside) => at >= 0 && at < order.length && state[order[at]] === FREE_CHUNK && region[order[at]] === region[order[beside]];
  if (joins(best.first - 1, best.first)) best.first -= 1;
  if (joins(best.stop, best.stop - 1)) best.stop += 1;
  return best;
}

export function fit_sentence(answer, data) {
  const size = format_bytes(answer.size);
  const { heap } = data;
  if (!answer.known) return `${size} may fit or not: the file does not say what was free.`;
  if (answer.takers.length) {
    const [best] = answer.takers;
    const more = answer.takers.length - 1;
    const others = more ? `, ${counted(more)} more would take it` : "";
    return `${size} would fit: the best fit is ${hex(heap.chunks.address[best])} (${format_bytes(heap.chunks.size[best])})${others}.`;
  }
  if (answer.grows) {
    const left = answer.room === Infinity ? "no limit is known" : `the limit leaves ${format_bytes(answer.room)}`;
    const way = answer.miss === null ? "No region is so large" : `In the way in the pool as it is: ${blockers_text(answer, data)}`;
    return `${size} would fit if the pool grows: no free chunk is large enough, ${left}. ${way}.`;
  }
  if (answer.miss === null) return `${size} would not fit: no region is so large.`;
  return `${size} would not fit: free ${blockers_text(answer, data)}: then ${format_bytes(answer.miss.size)} fit.`;
}

// The names of what is in the way, with their bytes.
function blockers_text(answer, data) {
  const { heap } = data;
  const names = new Map();
  for (const chunk of answer.blockers) {
    const name = data.name_of(heap.chunks.label[chunk]) || "unnamed memory";
    names.set(name, (names.get(name) ?? 0) + heap.chunks.size[chunk]);
  }
  const ranked = [...names].sort((one, other) => other[1] - one[1]);
  const shown = ranked.slice(0, 2).map(([name, held]) => `${name} (${format_bytes(held)})`);
  if (ranked.length > 2) shown.push(`${ranked.length - 2} others`);
  return shown.join(", ");
}

// ---------------------------------------------------------------------------------------------------------------------
// What grew from a step to the one shown? As bfcviz/analysis/what_grew.py.

// The chunks in use at a step, by the step at which each was allocated: {size, path}. The heap stays there.
function in_use_at(data, grouping, step) {
  const { heap } = data;
  heap.seek(heap.place_of(step));
  const { state, size, born } = heap.chunks;
  const found = new Map();
  for (let chunk = 0; chunk < state.length; chunk += 1) {
    if (state[chunk] !== IN_USE) continue;
    const path = grouping.paths[data.value_of(grouping.of, chunk)] ?? grouping.unnamed;
    found.set(born[chunk], { size: size[chunk], path });
  }
  return found;
}

// What each holder gained and lost, {path, grew, new, gone, never_freed}, the most grown first.
export function growth_of(data, grouping, first, last) {
  const { heap } = data;
  const { place, regions_version } = heap;
  const [before, end, now] = [first, data.last, last].map((step) => in_use_at(data, grouping, step));
  heap.seek(place);
  heap.regions_version = regions_version; // the same regions as before: the map keeps its axes
  const rows = new Map();
  const add = ({ path, size }, ...names) => {
    if (!rows.has(path)) rows.set(path, { path, grew: 0, new: 0, gone: 0, never_freed: 0 });
    for (const name of names) rows.get(path)[name] += size;
  };
  for (const [born, chunk] of now) if (born >= first) add(chunk, "new", ...(end.has(born) ? ["never_freed"] : []));
  for (const [born, chunk] of before) if (!now.has(born)) add(chunk, "gone");
  for (const row of rows.values()) row.grew = row.new - row.gone;
  return [...rows.values()].sort((one, other) => other.grew - one.grew || other.new - one.new);
}

const signed_bytes = (size) => `${size > 0 ? "+" : ""}${format_bytes(size)}`;

export function growth_sentence(rows, first, last) {
  const total = (name) => rows.reduce((sum, row) => sum + row[name], 0);
  const [added, never] = [total("new"), total("never_freed")];
  const later = never === added ? "nothing new" : `all new but ${format_bytes(never)}`;
  const freed = added ? `; ${later} is freed later` : "";
  const changed = `${format_bytes(added)} new, ${format_bytes(total("gone"))} gone${freed}`;
  return `${signed_bytes(total("grew"))} from step ${counted(first)} to ${counted(last)}: ${changed}.`;
}

// ---------------------------------------------------------------------------------------------------------------------
// The lines of the timelines, at no more points than are seen. As bfcviz/figures/timeline_parts.py.

// Least and greatest values of places [start, stop) in intervals: {exact, x, low, high}; x has one more than the others
// unless each interval is one place.
export function envelope(data, values, start, stop) {
  const count = stop - start;
  const { heap } = data;
  if (count <= POINTS) {
    const x = Array.from({ length: count }, (_, at) => heap.step_of(start + at));
    const found = Array.from({ length: count }, (_, at) => values(start + at));
    return { exact: true, x, low: found, high: found };
  }
  const parts = POINTS / 2;
  const [x, low, high] = [[heap.step_of(start)], [], []];
  for (let part = 0; part < parts; part += 1) {
    const [from, to] = [part, part + 1].map((each) => start + Math.floor((count * each) / parts));
    let [least, most] = [Infinity, -Infinity];
    for (let place = from; place < to; place += 1) {
      const value = values(place);
      if (value < least) least = value;
      if (value > most) most = value;
    }
    low.push(least);
    high.push(most);
    x.push(heap.step_of(Math.min(to, stop - 1)));
  }
  return { exact: false, x, low, high };
}

// A closed line of shape `hv` around the area between least and greatest values.
function band({ exact, x, low, high }, divisor) {
  if (exact) return { x, y: high.map((value) => value / divisor), fill: "none" };
  const scaled = (values) => values.map((value) => value / divisor);
  const back = scaled(low).reverse();
  return { x: [...x, ...[...x].reverse()], y: [...scaled(high), high.at(-1) / divisor, ...back, back.at(-1)], fill: "toself" };
}

// A line of shape `hv` through one end of the intervals.
function edge({ exact, x, low, high }, end, divisor) {
  const y = (end === "min" ? low : high).map((value) => value / divisor);
  return { x, y: exact ? y : [...y, y.at(-1)] };
}

// ---------------------------------------------------------------------------------------------------------------------
// A heap at a step, and how its map looks; also of a dashboard whose page moves by itself (dashboard/scrubber.js).

export class HeapView {
  constructor(data, canvas) {
    Object.assign(this, { data, heap: data.heap, step: data.first, theme_name: "light" });
    this.selected = null; // {address, born or null, event, chunk}
    this.cursor = null; // the address that the arrow keys are at, while the map has the focus
    this.search = null;
    this.colouring = data.colourings[0];
    this.map = new MapCanvas(this.heap, canvas);
  }

  // The step of the heap; it moves to the last place that is not after it.
  seek(step) {
    const { data, heap } = this;
    this.step = Math.min(Math.max(Math.round(step), data.first), data.last);
    heap.seek(heap.place_of(this.step));
  }

  // Says whether a chunk in use is outside of the chosen holder; null: none is chosen.
  fading() {
    return null;
  }

  // The class of each value that the colouring goes by.
  get table() {
    return this.colouring.table;
  }

  get theme() {
    return this.data.themes[this.theme_name];
  }

  look() {
    const { data, heap, colouring, table } = this;
    const { label } = heap.chunks;
    const class_of =
      colouring.of === "label"
        ? (chunk) => table[label[chunk]] ?? table.at(-1)
        : (chunk) => table[data.value_of(colouring.of, chunk)] ?? table.at(-1);
    return {
      theme: this.theme,
      fills: colouring.fills[this.theme_name],
      class_of,
      waste: colouring.waste && data.requested_known,
      is_found: this.search,
      is_faded: this.fading(),
      text_of: (chunk, room) => this.box_text(chunk, room),
      outlines: this.outlines(),
    };
  }

  box_text(chunk, room) {
    const { state, label, size } = this.heap.chunks;
    const name = state[chunk] === FREE_CHUNK ? "free" : this.data.name_of(label[chunk]);
    const bytes = short_bytes(size[chunk]);
    const left = room - bytes.length - 2;
    const parts = name.split("/").filter(Boolean);
    let short = parts.pop() ?? "";
    while (parts.length && short.length + parts.at(-1).length + 1 <= left) short = `${parts.pop()}/${short}`;
    if (short.length > left) short = left > 3 ? `${short.slice(0, left - 1)}…` : "";
    return short ? `${short}, ${bytes}` : bytes.length <= room ? bytes : "";
  }

  span(chunk) {
    const { address, size, region } = this.heap.chunks;
    return { address: address[chunk], size: size[chunk], region: region[chunk] };
  }

  outlines() {
    const { theme, heap } = this;
    const found = [];
    if (this.hits?.length) {
      const largest = this.hits.slice(0, MOST_FOUND).map((chunk) => this.span(chunk));
      found.push({ spans: largest, colour: theme.search, width: 2 });
    }
    if (this.fit) {
      const { takers, miss, blockers, grows } = this.fit;
      const spans = takers.slice(0, MOST_TAKERS).map((chunk) => this.span(chunk));
      if (spans.length) found.push({ spans, colour: theme.fit, width: STRONG, fill: `${theme.fit}66`, marker: spans.length < 40 });
      else if (miss && !grows) {
        found.push({ spans: [miss], colour: theme.fit, width: STRONG, dash: [5, 3] });
        const inside = blockers.slice(0, MOST_BLOCKERS).map((chunk) => this.span(chunk));
        found.push({ spans: inside, colour: theme.text, width: 1, dash: [2, 2] });
      }
    }
    const touched = this.touched();
    if (touched.length) found.push({ spans: touched, colour: theme.highlight, width: 2 });
    const chosen = this.selected_chunk();
    if (chosen >= 0) found.push({ spans: [this.span(chosen)], colour: theme.selection, width: STRONG });
    const pointed = this.cursor === null ? -1 : this.map.chunk_of(this.cursor);
    if (pointed >= 0) {
      const outline = { spans: [this.span(pointed)], marker: false };
      found.push({ ...outline, colour: theme.paper, width: 6 }, { ...outline, colour: theme.text, width: 2 });
    }
    return found.map((each) => ({ ...each, spans: each.spans.filter(({ region }) => heap.regions.has(region)) }));
  }

  // What the event before the step touched, as bfcviz/figures/map_rows.py.
  touched() {
    const at = this.event_at();
    if (at < 0) return [];
    const { events, chunks } = this.heap;
    const kind = events.kind[at];
    const own = { address: events.address[at], size: events.size[at], region: events.region[at] };
    if (kind === EXTEND || kind === ALLOCATE || kind === FREE) return [own];
    if (kind !== SPLIT && kind !== MERGE) return [];
    const both = chunks.state[events.chunk[at]] === NOTHING ? [] : [this.span(events.chunk[at])];
    return kind === SPLIT ? [...both, own] : both;
  }

  // The event that led to the step; -1: it is of another heap, or there is none.
  event_at() {
    const at = this.heap.place - 1;
    return at >= 0 && this.heap.events.seq[at] + 1 === this.step ? at : -1;
  }

  // The row of the chosen chunk, if it is there at this step; else -1.
  selected_chunk() {
    if (this.selected === null) return -1;
    const { state, address, born } = this.heap.chunks;
    const { address: wanted, born: since } = this.selected;
    for (let chunk = 0; chunk < state.length; chunk += 1) {
      if (state[chunk] === NOTHING || address[chunk] !== wanted) continue;
      if (since === null ? state[chunk] === FREE_CHUNK : state[chunk] === IN_USE && born[chunk] === since) return chunk;
    }
    return -1;
  }

  event_text() {
    const at = this.event_at();
    if (at < 0) return this.step === this.data.first ? "the first step of this page" : "an event of another heap";
    const { events, handles } = this.heap;
    const kind = events.kind[at];
    const size = exact_bytes(events.size[at]);
    const label = this.data.name_of(events.label[at]);
    const about = label ? `, ${label}` : "";
    if (kind === OOM) return `OOM: ${exact_bytes(events.requested[at])} requested${about}`;
    if (kind === MARK) return `MARK ${label}`;
    const where = `chunk ${handles[events.chunk[at]]} at ${hex(events.address[at])}`;
    return `${KINDS[kind]} ${size}, ${where}${kind === ALLOCATE || kind === FREE ? about : ""}`;
  }

  // The label of each row of the map, where there is room: {tickvals, ticktext}.
  row_ticks() {
    const { rows, width, regions } = this.map.rows;
    if (regions.length > MANY_REGIONS) return this.size_ticks();
    const every = Math.max(Math.ceil(rows / MOST_TICKS), 1);
    const longest = regions.reduce((most, { size }) => Math.max(most, size), width);
    const [divisor, unit] = axis_unit(Math.max(width, longest / 5));
    const found = { tickvals: [], ticktext: [] };
    for (const region of regions) {
      for (let row = region.first; (row - region.first) * width < region.size; row += 1) {
        if (row % every) continue;
        const offset = (row - region.first) * width;
        found.tickvals.push(row + 0.5);
        found.ticktext.push(offset ? `+${counted(offset / divisor)} ${unit}` : `region ${region.slot}`);
      }
    }
    return found;
  }

  // Of many regions, how many have each size, beside the middle of their rows. As bfcviz/figures/region_map.py.
  size_ticks() {
    const { rows, regions } = this.map.rows;
    const sizes = [];
    for (const { first, size } of regions) {
      const text = short_bytes(size);
      if (sizes.at(-1)?.text !== text) sizes.push({ text, first, count: 0 });
      sizes.at(-1).count += 1;
    }
    const ends = sizes.map((_, at) => sizes[at + 1]?.first ?? rows);
    const places = sizes.map(({ first, ...size }, at) => ({ ...size, height: ends[at] - first, middle: (first + ends[at]) / 2 }));
    const apart = (2 * rows) / MOST_TICKS; // a label has two lines
    const kept = [];
    for (const place of places.sort((one, other) => other.height - one.height)) {
      const beside_ticks = place.middle > rows - apart / 2; // of the x axis
      if (!beside_ticks && kept.every(({ middle }) => Math.abs(middle - place.middle) >= apart)) kept.push(place);
    }
    return { tickvals: kept.map(({ middle }) => middle), ticktext: kept.map(({ count, text }) => `${counted(count)} of<br>${text}`) };
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The page.

const IDS =
  "app status step slider first back forward last shown colour theme search hits fit answer map map-plot canvas tip " +
  "stats fragmentation bins ladder numbers event pane by holders legend told grew growth";

class Page extends HeapView {
  constructor(data, plotly) {
    const ids = Object.fromEntries(IDS.split(" ").map((id) => [id, document.getElementById(id)]));
    super(data, ids.canvas);
    Object.assign(this, { plotly, ids });
    this.holder = null; // {by, path}
    this.since = null; // the step that growth counts from; null: the holders of the step are shown
    this.step_told = "";
    this.wanted = null;
    this.frame = 0;
    this.fitted = 0; // when the axes of the map were last fitted to its rows
    this.resting = 0;
    this.grouping = data.groupings[0];
    this.theme_name = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  get figures() {
    return this.data.figures[this.theme_name];
  }

  async begin() {
    const { ids, data } = this;
    document.documentElement.dataset.theme = this.theme_name;
    ids.app.hidden = false;
    for (const picture of document.querySelectorAll(".still")) picture.remove();
    for (const [select, choices] of [[ids.colour, data.colourings], [ids.by, data.groupings]]) {
      for (const { name, title } of choices) select.append(element("option", title, { value: name }));
    }
    Object.assign(ids.slider, { min: data.first, max: data.last });
    ids.shown.textContent = data.shown_name;
    ids.grew.hidden = !ids.stats; // without a history nothing grew
    this.seek(data.shown_step);
    await this.draw_figures();
    this.listen();
    ids.status.hidden = true;
    this.draw_all();
    ids.app.dataset.ready = "yes";
  }

  async draw_figures() {
    const { plotly, ids } = this;
    const copy = (name) => structuredClone(this.figures[name]);
    const draw = async (name, { data, layout }, config) => {
      ids[name].style.height = `${layout.height}px`; // else a figure drawn again has no height once the window changes its size
      await plotly.react(ids[name], data, this.fitted_layout(name, layout), { ...CONFIG, ...config });
    };
    const map = copy("map");
    map.layout = { ...map.layout, ...this.map_axes(map.layout), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
    await draw("map-plot", map, { scrollZoom: true });
    if (ids.stats) await draw("stats", this.stats_figure(copy("stats")));
    if (ids.fragmentation) await draw("fragmentation", this.fragmentation_figure(copy("fragmentation")));
    this.draw_bars();
  }

  // On paper as wide as its place: plotly keeps the width that a figure had first.
  fitted_layout(name, layout) {
    return this.screen_theme ? { ...layout, width: this.ids[name].clientWidth } : layout;
  }

  // ----- moving ------------------------------------------------------------------------------------------------------

  // Show a step; drawn with the next frame of the browser.
  go(step) {
    this.seek(step);
    this.soon();
  }

  // The next or the last step at which this heap changes.
  walk(events) {
    const place = Math.min(Math.max(this.heap.place + events, 0), this.heap.count);
    this.go(this.heap.step_of(place));
  }

  soon() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw_moving();
    });
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.draw_resting(), REST_MS);
  }

  draw_moving() {
    if (performance.now() > this.fitted + REFIT_MS) this.fit_map();
    this.draw_map();
    this.draw_step();
    this.draw_numbers();
  }

  draw_resting() {
    this.fit_map();
    this.draw_bars();
    this.draw_pane();
    this.draw_holders();
    this.draw_hits();
    this.draw_answer();
    this.draw_map();
    const told = `Step ${counted(this.step)}: ${this.event_text()}. ${format_bytes(this.heap.bytes_in_use)} in use.`;
    if (told !== this.step_told) this.ids.told.textContent = this.step_told = told; // else the chunk at the cursor stays
  }

  draw_all() {
    this.draw_moving();
    this.draw_resting();
  }

  // ----- the map -----------------------------------------------------------------------------------------------------

  // Where plotly has put the plot, in pixels; and its ranges.
  view() {
    const { xaxis, yaxis } = this.ids["map-plot"]._fullLayout;
    const [left, right] = xaxis.range.map((each) => each * this.divisor);
    const [bottom, top] = yaxis.range;
    return { left, right, top, bottom, x: xaxis._offset, y: yaxis._offset, width: xaxis._length, height: yaxis._length };
  }

  draw_map() {
    if (!this.ids["map-plot"]._fullLayout) return;
    const view = this.view();
    const { canvas } = this.ids;
    canvas.style.left = `${view.x}px`;
    canvas.style.top = `${view.y}px`;
    this.map.paint(view, this.look());
  }

  // The rows of the map changed: plotly gets other axes.
  fit_map() {
    if (this.map_version === this.heap.regions_version) return;
    this.fitted = performance.now();
    const box = this.ids["map-plot"];
    const axes = this.map_axes(box.layout);
    this.plotly.relayout(box, axes);
    box.style.height = `${axes.height}px`;
  }

  map_axes(layout) {
    const { rows, width } = this.map.rows;
    this.map_version = this.heap.regions_version;
    const [divisor, unit] = axis_unit(width);
    this.divisor = divisor;
    const plot = Math.min(Math.max(26 * rows, 200), 520);
    const { t = 0, b = 0 } = layout.margin ?? {};
    const title = `offset within the row (${unit})`;
    return {
      height: plot + t + b,
      xaxis: {
        ...layout.xaxis,
        range: [0, width / divisor],
        minallowed: 0,
        maxallowed: width / divisor,
        dtick: 2 ** Math.ceil(Math.log2(width / 8)) / divisor,
        title: { ...layout.xaxis.title, text: title },
      },
      yaxis: { ...layout.yaxis, range: [Math.max(rows, 1), -0.2], minallowed: -0.2, maxallowed: Math.max(rows, 1), ...this.row_ticks() },
    };
  }

  hover(x, y) {
    const { tip } = this.ids;
    const chunk = this.map.chunk_at(x, y);
    tip.hidden = chunk < 0;
    if (chunk < 0) return;
    tip.replaceChildren(...this.chunk_lines(chunk).map((line, at) => element(at ? "div" : "b", line)));
    const view = this.view();
    const left = x + view.x + 14;
    tip.style.left = `${left + tip.offsetWidth > view.x + view.width ? x + view.x - tip.offsetWidth - 14 : left}px`;
    tip.style.top = `${y + view.y + 14}px`;
  }

  chunk_lines(chunk) {
    const { state, size, requested, address, region, label, born, thread, stream } = this.heap.chunks;
    const place = `bin ${bin_of(size[chunk])}, chunk ${this.heap.handles[chunk]} at ${hex(address[chunk])}, region ${region[chunk]}`;
    if (state[chunk] === FREE_CHUNK) return [`free, ${exact_bytes(size[chunk])}`, place];
    const asked = this.data.requested_known
      ? [`requested ${exact_bytes(requested[chunk])}, waste ${exact_bytes(size[chunk] - requested[chunk])}`]
      : ["requested unknown, waste unknown"];
    const told = (name, value) => (this.data.unknown.includes(name) ? "unknown" : value);
    const allocated = this.data.unknown.includes("born") ? "allocated at an unknown step" : `allocated at step ${counted(born[chunk] + 1)}, ${counted(this.step - born[chunk] - 1)} steps ago`;
    const age = `${allocated}; thread ${told("thread", thread[chunk])}, stream ${told("stream", stream[chunk])}`;
    const frames = this.data.stack_of(label[chunk]).filter((_, at) => this.data.labels.own[this.data.labels.stacks[label[chunk]][at]]);
    return [`in use, size ${exact_bytes(size[chunk])}`, ...asked, place, age, this.data.name_of(label[chunk]) || "no label", ...frames.slice(0, 4)];
  }

  // ----- the chosen chunk --------------------------------------------------------------------------------------------

  choose(chunk) {
    const { state, address, born, event } = this.heap.chunks;
    if (chunk < 0) this.selected = null;
    else {
      const in_use = state[chunk] === IN_USE;
      this.selected = { address: address[chunk], born: in_use ? born[chunk] : null, event: event[chunk], size: this.heap.chunks.size[chunk] };
      if (in_use) Object.assign(this.selected, this.life(chunk));
    }
    this.draw_pane();
    this.draw_map();
  }

  // What is known of a chunk in use for its whole life, so that the pane stays while the step moves.
  life(chunk) {
    const { chunks, events, count, handles } = this.heap;
    const known = Object.fromEntries(["size", "requested", "label", "thread", "stream", "region"].map((name) => [name, chunks[name][chunk]]));
    let freed = this.heap.place;
    while (freed < count && !(events.kind[freed] === FREE && events.chunk[freed] === chunk)) freed += 1;
    const placed = chunks.event[chunk];
    const history = [];
    if (placed >= 0) history.push(["from", this.source_words(placed)]);
    if (freed < count) {
      history.push(["then", this.merge_words(freed)]);
      const next = this.next_user(freed);
      if (next >= 0) history.push(["next here", `${this.data.name_of(events.label[next]) || "no label"}, ${format_bytes(events.size[next])}`, next]);
    }
    return { ...known, handle: handles[chunk], freed: freed < count ? events.seq[freed] + 1 : null, history };
  }

  // Where the chunk of an ALLOCATE came from. As bfcviz/analysis/chunk_life.py, also the next two; the page does not
  // know for which request the pool grew.
  source_words(at) {
    const { kind, size, flags } = this.heap.events;
    let [rest, padded] = [0, false];
    for (let before = at - 1; before >= 0 && [MARK, SPLIT].includes(kind[before]); before -= 1) {
      if (kind[before] === SPLIT && flags[before] & PADDING) padded = true;
      else if (kind[before] === SPLIT) rest += size[before];
    }
    const source = rest ? `Split from a free chunk of ${format_bytes(size[at] + rest)}` : "Took a whole free chunk";
    return `${source}${padded ? ", behind alignment padding" : ""}.`;
  }

  // What the chunk of a FREE merged with.
  merge_words(freed) {
    const { events, count } = this.heap;
    const { kind, chunk, other, size, flags } = events;
    if (flags[freed] & HELD) return "it cannot merge until its timestamp is safe";
    const sides = [];
    for (let at = freed + 1; at < count && [MARK, MERGE].includes(kind[at]); at += 1) {
      if (kind[at] === MARK) continue;
      if (chunk[at] === chunk[freed]) sides.push(`the free chunk after it (${format_bytes(size[at])})`);
      else if (other[at] === chunk[freed]) sides.push("the free chunk before it");
      if (chunk[at] !== chunk[freed]) break; // merged away, or another chunk
    }
    return sides.length ? `merged with ${sides.join(" and ")}` : "no neighbour was free, so it did not merge";
  }

  // The place of the ALLOCATE that uses the address of a FREE next; -1: none does.
  next_user(freed) {
    const { events, count } = this.heap;
    const { kind, address, size } = events;
    for (let at = freed + 1; at < count; at += 1) {
      if (kind[at] === ALLOCATE && address[at] <= address[freed] && address[freed] < address[at] + size[at]) return at;
    }
    return -1;
  }

  draw_pane() {
    const { pane } = this.ids;
    const { selected, data } = this;
    if (selected === null) {
      pane.replaceChildren(element("p", "Click a chunk in the map: its stack, its life and its neighbours appear here.", { class: "muted" }));
      return;
    }
    const there = this.selected_chunk();
    const parts = [];
    const row = (name, value) => parts.push(pair(name, value));
    const in_use = selected.born !== null;
    const heading = element("h3", in_use ? data.name_of(selected.label) || "no label" : "free chunk");
    row("size", exact_bytes(there >= 0 ? this.heap.chunks.size[there] : selected.size));
    if (in_use && data.requested_known) {
      row("requested", exact_bytes(selected.requested));
      row("waste", exact_bytes(selected.size - selected.requested));
    }
    row("address", hex(selected.address));
    if (in_use) {
      row("chunk", `${selected.handle}, region ${selected.region}, bin ${bin_of(selected.size)}`);
      row("thread, stream", ["thread", "stream"].map((name) => (data.unknown.includes(name) ? "unknown" : selected[name])).join(", "));
      row("share", `${one_digit((100 * selected.size) / Math.max(this.heap.bytes_in_use, 1))} % of the bytes in use`);
      if (data.unknown.includes("born")) row("allocated", "unknown");
      else {
        const begins = selected.event < 0 && selected.born + 1 <= data.first;
        parts.push(pair("allocated", begins ? `at step ${counted(selected.born + 1)}, before this page begins` : this.jump(selected.born + 1)));
        parts.push(pair("freed", selected.freed === null ? "not on this page" : this.jump(selected.freed)));
        for (const [name, words, at] of selected.history) {
          row(name, words);
          if (at !== undefined) parts.at(-1)[1].append(", at ", this.jump(this.heap.events.seq[at] + 1));
        }
      }
      for (const [name, value] of Object.entries(data.labels.details[selected.label] ?? {})) row(name, value);
    }
    if (there < 0) parts.push(pair("now", "not there at this step"));
    else parts.push(...this.neighbours(there));
    const list = element("dl");
    list.append(...parts.flat());
    pane.replaceChildren(heading, list, ...(in_use ? this.stack(selected.label) : []));
  }

  // A button that goes to a step.
  jump(step) {
    const button = element("button", `step ${counted(step)}`, { type: "button", class: "link" });
    button.addEventListener("click", () => this.go(step));
    return button;
  }

  neighbours(chunk) {
    const order = this.heap.by_address();
    const { state, region, size, label } = this.heap.chunks;
    const at = order.indexOf(chunk);
    return [["before", at - 1], ["after", at + 1]].map(([name, beside]) => {
      const other = order[beside];
      if (other === undefined || region[other] !== region[chunk]) return pair(name, "the end of the region");
      const what = state[other] === FREE_CHUNK ? "free" : this.data.name_of(label[other]) || "no label";
      const button = element("button", `${what}, ${format_bytes(size[other])}`, { type: "button", class: "link" });
      button.addEventListener("click", () => this.choose(other));
      return pair(name, button);
    });
  }

  // The whole stack, Python first; other frames are folded.
  stack(label) {
    const { labels } = this.data;
    const frames = (labels.stacks[label] ?? []).map((frame) => ({ text: labels.frames[frame], own: labels.own[frame] }));
    if (!frames.length) return [];
    const lines = (wanted) => frames.filter(({ own }) => Boolean(own) === wanted).map(({ text }) => element("li", text));
    const [python, other] = [lines(true), lines(false)];
    const copy = element("button", "copy the stack", { type: "button" });
    copy.addEventListener("click", () => navigator.clipboard?.writeText(frames.map(({ text }) => text).join("\n")));
    const shown = element("ol");
    shown.append(...(python.length ? python : other));
    if (!python.length || !other.length) return [shown, copy];
    const rest = element("details");
    const list = element("ol");
    list.append(...other);
    rest.append(element("summary", `${other.length} frames of compiled code`), list);
    return [shown, rest, copy];
  }

  // ----- numbers, holders, search, fit -------------------------------------------------------------------------------

  draw_step() {
    const { ids } = this;
    ids.slider.value = this.step;
    if (document.activeElement !== ids.step) ids.step.value = this.step;
    for (const name of ["stats", "fragmentation"]) {
      const figure = ids[name];
      const axis = figure?._fullLayout?.xaxis;
      if (!axis) continue;
      const x = axis.d2p(this.step);
      const line = figure.parentElement.querySelector(".step-line");
      const { _offset: top, _length: height } = figure._fullLayout.yaxis;
      line.hidden = x < 0 || x > axis._length;
      line.style.transform = `translateX(${axis._offset + x}px)`;
      line.style.top = `${top}px`;
      line.style.height = `${height}px`;
      if (name !== "stats") continue;
      // The middle of the thumb, THUMB pixels wide, is below the line.
      ids.slider.style.marginLeft = `${axis._offset - THUMB / 2}px`;
      ids.slider.style.width = `${axis.d2p(this.data.last) - axis.d2p(this.data.first) + THUMB}px`;
    }
  }

  draw_numbers() {
    const { heap, data } = this;
    const share = (part, whole) => (whole ? `${one_digit((100 * part) / whole)} %` : "0 %");
    const unknown = (text) => (data.free_known ? text : "unknown");
    const rows = [
      ["in use", format_bytes(heap.bytes_in_use), `${counted(heap.chunks_in_use)} chunks`],
      ["pool", format_bytes(heap.pool_bytes), `${counted(heap.regions.size)} region${heap.regions.size === 1 ? "" : "s"}${data.limit === null ? "" : `, limit ${format_bytes(data.limit)}`}`],
      ["free", unknown(format_bytes(heap.free_bytes)), unknown(`${counted(heap.chunks_free)} chunks`)],
      ["largest free", unknown(format_bytes(heap.largest_free_chunk)), unknown(`external fragmentation ${share(heap.free_bytes - heap.largest_free_chunk, heap.free_bytes)}`)],
    ];
    if (data.requested_known) {
      const waste = heap.bytes_in_use - heap.requested_bytes_in_use;
      rows.push(["waste", format_bytes(waste), `internal fragmentation ${share(waste, heap.bytes_in_use)}`]);
    }
    const cells = this.ids.numbers.children;
    for (const [at, [name, value, note]] of rows.entries()) {
      const cell = cells[at] ?? this.ids.numbers.appendChild(number_cell());
      for (const [part, text] of [name, value, note].entries()) {
        if (cell.children[part].textContent !== text) cell.children[part].textContent = text;
      }
    }
    this.ids.event.textContent = this.event_text();
  }

  // Where growth is shown, the map shows what is new.
  fading() {
    const { holder, since, heap } = this;
    if (holder === null && since === null) return null;
    return (chunk) => (holder !== null && !this.holds(chunk)) || (since !== null && heap.chunks.born[chunk] < since);
  }

  // Compare the two ends of what the timeline shows where it is zoomed; else the begin of the history with this step.
  compare() {
    const { ids, data } = this;
    const shown = ids.stats?._fullLayout?.xaxis.range;
    const [first, last] = shown ? [Math.max(Math.ceil(shown[0]), data.first), Math.min(Math.floor(shown[1]), data.last)] : [];
    const zoomed = shown && (first > data.first || last < data.last);
    this.since = zoomed ? first : data.first_moment;
    this.go(zoomed ? last : this.step);
  }

  growth_of(first, last) {
    return growth_of(this.data, this.grouping, first, last);
  }

  draw_growth() {
    const { ids, since, step } = this;
    ids.grew.setAttribute("aria-pressed", since !== null);
    ids.growth.textContent = "";
    if (since === null) return false;
    if (since > step) {
      ids.growth.textContent = `Step ${counted(step)} is before step ${counted(since)}, since when growth counts.`;
      ids.holders.replaceChildren();
      return true;
    }
    const rows = this.growth_of(since, step);
    ids.growth.textContent = `${growth_sentence(rows, since, step)} Drag over the timeline for others.`;
    const largest = [...rows].sort((one, other) => Math.abs(other.grew) - Math.abs(one.grew)).slice(0, MOST_HOLDERS);
    const shown = rows.filter((row) => largest.includes(row)).map((row) => {
      const line = element("tr");
      const name = element("td");
      name.append(this.holder_button(row.path));
      const sizes = [signed_bytes(row.grew), ...["new", "gone"].map((each) => (row[each] ? `${format_bytes(row[each])} ${each}` : ""))];
      line.append(name, ...sizes.map((text) => element("td", text, { class: "value" })));
      line.title = `${format_bytes(row.never_freed)} of the new bytes are never freed on this page`;
      return line;
    });
    const rest = rows.length - shown.length;
    if (rest) shown.push(element("tr"));
    if (rest) shown.at(-1).append(element("td", `${counted(rest)} others`));
    ids.holders.replaceChildren(...shown);
    return true;
  }

  // Shows a holder alone.
  holder_button(path) {
    const { grouping } = this;
    const button = element("button", path, { type: "button", class: "link", title: path });
    const chosen = this.holder?.by === grouping.name && this.holder.path === path;
    button.setAttribute("aria-pressed", chosen);
    button.addEventListener("click", () => {
      this.holder = chosen ? null : { by: grouping.name, of: grouping.of, path };
      this.draw_all();
    });
    return button;
  }

  holds(chunk) {
    const { holder, data } = this;
    return data.groupings.find(({ name }) => name === holder.by).paths[data.value_of(holder.of, chunk)] === holder.path;
  }

  draw_holders() {
    this.draw_legend();
    if (this.draw_growth()) return;
    const { heap, grouping, data, colouring, table, search, theme } = this;
    const { state, size } = heap.chunks;
    const sums = new Map();
    for (let chunk = 0; chunk < state.length; chunk += 1) {
      if (state[chunk] !== IN_USE) continue;
      const path = grouping.paths[data.value_of(grouping.of, chunk)] ?? grouping.unnamed;
      let held = sums.get(path);
      if (!held) sums.set(path, (held = { path, bytes: 0, chunks: 0, found: false, classes: new Map() }));
      held.bytes += size[chunk];
      held.chunks += 1;
      held.found ||= search !== null && search(chunk);
      const number = table[data.value_of(colouring.of, chunk)] ?? table.at(-1);
      held.classes.set(number, (held.classes.get(number) ?? 0) + size[chunk]);
    }
    const ranked = [...sums.values()].sort((one, other) => other.bytes - one.bytes);
    const fills = colouring.fills[this.theme_name];
    const rows = ranked.slice(0, MOST_HOLDERS).map((held) => {
      const row = element("tr", "", held.found ? { class: "found" } : {});
      if (held.found) row.style.boxShadow = `inset 4px 0 ${theme.search}`;
      const [main] = [...held.classes].sort((one, other) => other[1] - one[1])[0];
      const swatch = element("span", "", { class: "swatch" });
      swatch.style.background = fills[main];
      const name = element("td");
      name.append(element("div", "", { class: "holder" }));
      name.firstChild.append(swatch, this.holder_button(held.path));
      const bar = element("span", "", { class: "bar" });
      bar.style.width = `${(100 * held.bytes) / Math.max(ranked[0].bytes, 1)}%`;
      bar.style.background = fills[main];
      const share = element("td", "", { class: "share" });
      share.append(bar);
      row.append(name, element("td", format_bytes(held.bytes), { class: "value" }), share, element("td", counted(held.chunks), { class: "value muted" }));
      return row;
    });
    const rest = ranked.slice(MOST_HOLDERS);
    if (rest.length) {
      const bytes = rest.reduce((sum, held) => sum + held.bytes, 0);
      const row = element("tr");
      row.append(element("td", `${counted(rest.length)} others`), element("td", format_bytes(bytes), { class: "value" }), element("td"), element("td"));
      rows.push(row);
    }
    this.ids.holders.replaceChildren(...rows);
  }

  draw_legend() {
    const { colouring, theme } = this;
    const fills = colouring.fills[this.theme_name];
    const named = [["free", theme.free], ...colouring.names.map((name, at) => [name, fills[at]]).filter(([name]) => name)];
    if (colouring.waste && this.data.requested_known) named.push(["waste (size - requested)", theme.waste]);
    const items = named.map(([name, fill]) => {
      const item = element("span", name);
      const swatch = element("i", "", { class: "swatch" });
      swatch.style.background = fill;
      item.prepend(swatch);
      return item;
    });
    this.ids.legend.replaceChildren(...items);
  }

  draw_hits() {
    const { ids, heap, search } = this;
    this.hits = null;
    ids.hits.textContent = "";
    if (search === null) return;
    const { state, size } = heap.chunks;
    const found = [];
    for (let chunk = 0; chunk < state.length; chunk += 1) if (state[chunk] !== NOTHING && search(chunk)) found.push(chunk);
    found.sort((one, other) => size[other] - size[one]);
    this.hits = found;
    const bytes = found.reduce((sum, chunk) => sum + size[chunk], 0);
    ids.hits.textContent = `${counted(found.length)} chunk${found.length === 1 ? "" : "s"}, ${format_bytes(bytes)}`;
  }

  // Bytes of the request that failed with the event before the step; null: none did.
  failed_request() {
    const at = this.event_at();
    const { kind, requested } = this.heap.events;
    return at >= 0 && kind[at] === OOM && requested[at] ? requested[at] : null;
  }

  draw_answer() {
    const { ids, data } = this;
    const failed = this.failed_request();
    this.fit = this.wanted === null && failed === null ? null : fit_of(data, this.wanted ?? failed);
    if (this.fit && this.fit.size === failed) this.fit.grows = false; // it failed: the pool did not grow for it
    ids.answer.textContent = this.fit ? fit_sentence(this.fit, data) : "";
  }

  // ----- figures -----------------------------------------------------------------------------------------------------

  // The places that a range of steps shows, and one beyond each end.
  shown_places(range) {
    const { heap } = this;
    if (!range) return [0, heap.count + 1];
    return [Math.max(heap.place_of(range[0]) - 1, 0), Math.min(heap.place_of(range[1]) + 2, heap.count + 1)];
  }

  stats_figure(figure, range = null) {
    const { heap, data } = this;
    const { series } = heap;
    const [start, stop] = this.shown_places(range);
    const divisor = data.divisor;
    const lines = (name) => envelope(data, (place) => series[name][place], start, stop);
    const [pool, used, asked, largest] = ["pool_bytes", "bytes_in_use", "requested_bytes_in_use", "largest_free_chunk"].map(lines);
    const fill = (at, values) => Object.assign(figure.data[at], values);
    fill(0, edge(pool, "max", divisor));
    fill(1, edge(used, "min", divisor));
    fill(2, band(used, divisor));
    fill(3, band(asked, divisor));
    fill(4, band(largest, divisor));
    fill(5, band(largest, divisor));
    let peak = data.heap_start_peak;
    for (let place = 0; place < start; place += 1) peak = Math.max(peak, series.bytes_in_use[place]);
    const highest = used.high.map((value) => (peak = Math.max(peak, value)) / divisor);
    fill(6, { x: used.exact ? used.x : used.x.slice(1), y: highest });
    return figure;
  }

  fragmentation_figure(figure, range = null) {
    const { data } = this;
    const { bytes_in_use: used, requested_bytes_in_use: asked, pool_bytes: pool, largest_free_chunk: largest } = this.heap.series;
    const [start, stop] = this.shown_places(range);
    const ratio = (part, whole) => (whole ? 1 - part / whole : 0);
    const measures = [
      (place) => ratio(largest[place], pool[place] - used[place]),
      (place) => ratio(asked[place], used[place]),
      (place) => ratio(used[place], pool[place]),
    ];
    for (const [at, measure] of measures.entries()) {
      Object.assign(figure.data[at], band(envelope(data, measure, start, stop), 0.01));
    }
    return figure;
  }

  draw_bars() {
    const { plotly, ids } = this;
    if (!ids.bins) return;
    for (const [name, make] of [["bins", "bins_figure"], ["ladder", "ladder_figure"]]) {
      const { data, layout } = this[make](structuredClone(this.figures[name]));
      plotly.react(ids[name], data, this.fitted_layout(name, layout), CONFIG);
    }
  }

  bins_figure({ data, layout }) {
    const bins = this.heap.bins();
    const names = ["free", "in_use"];
    const total = [...bins.free_bytes, ...bins.in_use_bytes].reduce((one, other) => one + other, 0);
    const most = Math.max(...bins.free_chunks, ...bins.in_use_chunks);
    const power = (value, factor, least) => {
      let top = least;
      while (top < value) top *= factor;
      return top;
    };
    const bars = (at, values, base, state) => {
      Object.assign(data[at], {
        y: values.map((value) => (value > 0 ? Math.max(value - base, base * 1e-3) : null)),
        hovertext: values.map((_, bin) => {
          const range = bin === NUM_BINS - 1 ? `${format_bytes(256 * 2 ** bin)} or more` : `${format_bytes(256 * 2 ** bin)} up to, not including, ${format_bytes(512 * 2 ** bin)}`;
          return `<b>${state.replace("_", " ")}</b>: ${counted(bins[`${state}_chunks`][bin])} chunks, ${exact_bytes(bins[`${state}_bytes`][bin])}<br>bin ${bin}: chunks of ${range}`;
        }),
      });
    };
    for (const [at, name] of names.entries()) {
      bars(1 + at, bins[`${name}_bytes`], 128, name);
      bars(7 + at, bins[`${name}_chunks`], 0.5, name);
    }
    const [bytes, chunks] = [power(total, 16, 2 ** 20), power(most, 10, 10)];
    const sizes = Array.from({ length: 12 }, (_, at) => 256 * 16 ** at).filter((tick) => tick <= bytes);
    const numbers = Array.from({ length: 12 }, (_, at) => 10 ** at).filter((tick) => tick <= chunks);
    Object.assign(layout.yaxis, { range: [128, bytes].map(Math.log10), tickvals: sizes, ticktext: sizes.map(short_bytes) });
    Object.assign(layout.yaxis2, { range: [0.5, chunks].map(Math.log10), tickvals: numbers, ticktext: numbers.map(counted) });
    return { data, layout };
  }

  ladder_figure({ data, layout }) {
    const { state, size, address, region } = this.heap.chunks;
    const free = [];
    for (let chunk = 0; chunk < state.length; chunk += 1) if (state[chunk] === FREE_CHUNK) free.push(chunk);
    free.sort((one, other) => size[other] - size[one] || address[one] - address[other]);
    const total = this.heap.free_bytes;
    const wanted = this.fit?.rounded ?? Infinity;
    const [divisor, unit] = axis_unit(Math.max(free.length ? size[free[0]] : 1, Number.isFinite(wanted) ? wanted : 1));
    const steps = [];
    let left = 0;
    for (const chunk of free) {
      const last = steps.at(-1);
      const pixel = Math.floor((left / Math.max(total, 1)) * LADDER_STEPS);
      const takes = size[chunk] >= wanted;
      if (free.length > LADDER_STEPS && last && last.pixel === pixel && last.takes === takes) {
        Object.assign(last, { count: last.count + 1, bytes: last.bytes + size[chunk], least: size[chunk] });
      } else steps.push({ chunk, pixel, takes, left, count: 1, bytes: size[chunk], size: size[chunk], least: size[chunk] });
      left += size[chunk];
    }
    const text = (step) => {
      const share = `${one_digit((100 * (step.left + step.bytes)) / Math.max(total, 1))}% of the free memory is in chunks of this size and larger ones`;
      if (step.count > 1) return `<b>${counted(step.count)} free chunks</b>: ${exact_bytes(step.bytes)}<br>each ${format_bytes(step.least)} to ${format_bytes(step.size)}<br>${share}`;
      return `<b>free chunk</b>: ${exact_bytes(step.size)}<br>at ${hex(address[step.chunk])}, region ${region[step.chunk]}<br>${share}`;
    };
    for (const [at, takes] of [false, true].entries()) {
      const mine = steps.filter((step) => step.takes === takes);
      Object.assign(data[at], {
        x: mine.map((step) => step.left / divisor),
        width: mine.map((step) => step.bytes / divisor),
        y: mine.map((step) => step.size / divisor),
        hovertext: mine.map(text),
        showlegend: mine.length > 0,
      });
      data[at].marker.line.width = mine.length < LADDER_STEPS / 4 ? 1 : 0;
    }
    const wide = steps.filter((step) => step.count === 1 && step.bytes >= 0.06 * total);
    const none = !free.length;
    Object.assign(data[3], {
      x: none ? [0.5] : wide.map((step) => (step.left + step.bytes / 2) / divisor),
      y: none ? [0.5] : wide.map((step) => step.size / divisor),
      text: none ? ["nothing is free"] : wide.map((step) => format_bytes(step.size)),
    });
    const right = Math.max(total, 1) / divisor;
    const asked = Number.isFinite(wanted) ? [wanted / divisor] : [];
    const top = (1.18 * Math.max(none ? 1 : size[free[0]], asked.length ? wanted : 1)) / divisor;
    Object.assign(data[4], { x: asked.length ? [0, right] : [], y: asked.length ? [...asked, ...asked] : [] });
    Object.assign(data[5], { x: asked.length ? [right] : [], y: asked.map((level) => level + 0.02 * top), text: asked.map(() => `<b>asked: ${format_bytes(this.fit.size)}</b>`) });
    Object.assign(layout.xaxis, { range: [0, 1.01 * right], title: { ...layout.xaxis.title, text: `free memory, largest chunk first (${unit})` } });
    Object.assign(layout.yaxis, { range: [0, top], title: { ...layout.yaxis.title, text: `size of the chunk (${unit})` } });
    layout.annotations[0].text = layout.annotations[0].text.replace(/Free chunks \(\w+\)/, `Free chunks (${unit})`).replace(/<span.*$/, "");
    return { data, layout };
  }

  // ----- what the reader does ----------------------------------------------------------------------------------------

  listen() {
    const { ids, data } = this;
    const on = (id, what, react) => ids[id].addEventListener(what, react);
    on("slider", "input", () => this.go(Number(ids.slider.value)));
    on("step", "change", () => this.go(Number(ids.step.value.replaceAll(",", "")) || 0));
    on("first", "click", () => this.go(data.first));
    on("last", "click", () => this.go(data.last));
    on("back", "click", () => this.walk(-1));
    on("forward", "click", () => this.walk(1));
    on("shown", "click", () => this.go(data.shown_step));
    on("colour", "change", () => {
      this.colouring = data.colourings.find(({ name }) => name === ids.colour.value);
      this.draw_all();
    });
    on("by", "change", () => {
      this.grouping = data.groupings.find(({ name }) => name === ids.by.value);
      this.holder = null;
      this.draw_all();
    });
    on("grew", "click", () => {
      if (this.since === null) this.compare();
      else this.since = null;
      this.draw_all();
    });
    on("theme", "click", () => this.show_theme(this.theme_name === "dark" ? "light" : "dark"));
    addEventListener("beforeprint", () => this.print(true));
    addEventListener("afterprint", () => this.print(false));
    matchMedia("print").addEventListener("change", ({ matches }) => this.print(matches));
    on("search", "input", () => {
      this.search = search_of(ids.search.value, data);
      this.draw_holders();
      this.draw_hits();
      this.draw_map();
    });
    on("fit", "input", () => {
      const size = parse_bytes(ids.fit.value);
      this.wanted = size > 0 ? size : null;
      this.draw_answer();
      this.draw_map();
      this.draw_bars();
    });
    this.listen_to_map();
    for (const name of ["stats", "fragmentation"]) if (ids[name]) this.listen_to_timeline(ids[name], name);
    addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.soon()).observe(ids.app);
  }

  // An arrow key on the map, or Enter and the space bar, which choose.
  map_key(key) {
    const { map, ids } = this;
    if (this.cursor !== null && map.chunk_of(this.cursor) < 0) this.cursor = null; // its region is gone
    if (this.cursor === null) {
      const chosen = this.selected_chunk();
      if (!map.rows.rows) return;
      this.cursor = chosen >= 0 ? map.middle_of(chosen) : map.address_at(Math.max(Math.floor(map.view.top), 0), map.view.left);
    } else if (key in WAYS) this.cursor = map.beside(this.cursor, WAYS[key]);
    const chunk = map.chunk_of(this.cursor);
    if (key === "Enter" || key === " ") this.choose(chunk);
    const [row, offset] = map.place_of(this.cursor);
    const name = this.heap.chunks.state[chunk] === FREE_CHUNK ? "free" : this.data.name_of(this.heap.chunks.label[chunk]) || "no label";
    const chosen = chunk === this.selected_chunk() ? ", chosen" : "";
    ids.told.textContent = `${name}, ${format_bytes(this.heap.chunks.size[chunk])}${chosen}, row ${counted(row + 1)} of ${counted(map.rows.rows)}`;
    this.bring_into_view(row, offset);
    this.draw_map();
  }

  // Move a zoomed map to a place that it does not show.
  bring_into_view(row, offset) {
    const { left, right, top, bottom } = this.view();
    const { rows, width } = this.map.rows;
    const moved = (low, high, place, whole) => {
      if (low <= place && place < high) return [low, high];
      const begin = Math.min(Math.max(place - (high - low) / 2, 0), Math.max(whole - (high - low), 0));
      return [begin, begin + high - low];
    };
    const [from, to] = moved(left, right, offset, width);
    const [above, below] = moved(top, bottom, row + 0.5, rows);
    if (from === left && above === top) return;
    const x = [from, to].map((each) => each / this.divisor);
    this.plotly.relayout(this.ids["map-plot"], { "xaxis.range": x, "yaxis.range": [below, above] });
  }

  listen_to_map() {
    const { ids, map } = this;
    ids.canvas.addEventListener("focus", () => this.map_key(""));
    ids.canvas.addEventListener("blur", () => {
      this.cursor = null;
      this.draw_map();
    });
    ids.canvas.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || !(event.key in WAYS || MAP_KEYS.includes(event.key))) return;
      event.preventDefault();
      event.stopPropagation(); // else it steps
      if (event.key === "Escape") ids.canvas.blur();
      else this.map_key(event.key);
    });
    const box = ids["map-plot"];
    for (const what of ["plotly_relayouting", "plotly_relayout", "plotly_afterplot"]) {
      box.on(what, () => {
        this.draw_map();
      });
    }
    const place = (event) => {
      const outer = ids.map.getBoundingClientRect();
      const view = this.view();
      return [event.clientX - outer.left - view.x, event.clientY - outer.top - view.y];
    };
    const inside = ([x, y]) => x >= 0 && y >= 0 && x < map.view.width && y < map.view.height;
    ids.map.addEventListener("mousemove", (event) => {
      const at = place(event);
      if (inside(at) && !event.buttons) this.hover(...at);
      else ids.tip.hidden = true;
    });
    ids.map.addEventListener("mouseleave", () => (ids.tip.hidden = true));
    on_click(ids.map, (event) => {
      const at = place(event);
      if (inside(at)) this.choose(map.chunk_at(...at));
    });
    // The wheel scrolls the page; with Ctrl or Command it zooms the map.
    ids.map.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) event.preventDefault();
      else event.stopPropagation();
    }, { capture: true, passive: false });
  }

  listen_to_timeline(figure, name) {
    const { plotly } = this;
    figure.on("plotly_relayout", (change) => {
      if (!Object.keys(change).some((key) => key.startsWith("xaxis"))) return;
      const range = change["xaxis.autorange"] ? null : figure._fullLayout.xaxis.range;
      const whole = this.figures[name].layout.xaxis.range;
      const make = name === "stats" ? "stats_figure" : "fragmentation_figure";
      const made = this[make](structuredClone(this.figures[name]), range);
      made.layout.xaxis.range = range ?? whole;
      plotly.react(figure, made.data, made.layout, CONFIG).then(() => {
        this.draw_step();
        if (this.since !== null && name === "stats") this.compare();
      });
      for (const other of ["stats", "fragmentation"]) {
        const beside = this.ids[other];
        const same = beside && String(beside._fullLayout.xaxis.range) === String(made.layout.xaxis.range);
        if (beside && beside !== figure && !same) plotly.relayout(beside, { "xaxis.range": [...made.layout.xaxis.range] });
      }
    });
    on_click(figure, (event) => {
      const { xaxis, yaxis } = figure._fullLayout;
      const box = figure.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left - xaxis._offset, event.clientY - box.top - yaxis._offset];
      if (x >= 0 && x <= xaxis._length && y >= 0 && y <= yaxis._length) this.go(xaxis.p2d(x));
    });
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const typing = /^(input|select|textarea)$/i.test(event.target.tagName) && event.target.type !== "range";
    if (typing) return;
    const far = Math.max(Math.round(this.heap.count / 100), 1);
    const moves = {
      ArrowLeft: () => this.walk(event.shiftKey ? -10 : -1),
      ArrowRight: () => this.walk(event.shiftKey ? 10 : 1),
      PageUp: () => this.walk(-far),
      PageDown: () => this.walk(far),
      Home: () => this.go(this.data.first),
      End: () => this.go(this.data.last),
      Escape: () => this.choose(-1),
      "/": () => this.ids.search.focus(),
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  }

  async show_theme(name) {
    this.theme_name = document.documentElement.dataset.theme = name;
    await this.draw_figures();
    this.draw_all();
  }

  fit_to_screen() {
    for (const name of ["map-plot", "stats", "fragmentation", "bins", "ladder"]) {
      if (this.ids[name]) this.plotly.Plots.resize(this.ids[name]);
    }
  }

  // Paper is light, and less wide. All promises of this are kept at once: the figures are drawn before the browser prints.
  print(is_paper) {
    if (is_paper === Boolean(this.screen_theme)) return;
    const name = is_paper ? "light" : this.screen_theme;
    this.screen_theme = is_paper ? this.theme_name : null;
    document.documentElement.toggleAttribute("data-paper", is_paper);
    this.show_theme(name).then(() => is_paper || this.fit_to_screen());
  }
}

// Plotly takes the mouse while it is pressed: a click is a press and a release in one place.
function on_click(box, react) {
  let pressed = null;
  box.addEventListener("pointerdown", (event) => (pressed = [event.clientX, event.clientY]), true);
  addEventListener("pointerup", (event) => {
    const still = pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) < 4;
    pressed = null;
    if (still) react(event);
  }, true);
}

function pair(name, value) {
  const told = element("dd");
  told.append(value);
  return [element("dt", name), told];
}

function number_cell() {
  const cell = element("div");
  cell.append(element("span", "", { class: "muted" }), element("b"), element("span", "", { class: "muted" }));
  return cell;
}

// The text of an element that holds it compressed.
async function text_in(id) {
  return new TextDecoder().decode(await inflated(document.getElementById(id).textContent));
}

// Runs a script whose hash the policy of the page names.
function add_script(text) {
  document.head.append(element("script", text));
}

export async function start() {
  const status = document.getElementById("status");
  try {
    status.textContent = "reading the events …";
    add_script(await text_in("plotly"));
    const sent = JSON.parse(await text_in("data"));
    const data = await PageData.read(sent, (share) => (status.textContent = `reading the events … ${(100 * share).toFixed(0)} %`));
    const page = new Page(data, globalThis.Plotly);
    await page.begin();
    globalThis.bfcviz = page;
  } catch (error) {
    console.error(error);
    status.textContent = `The page cannot be drawn: ${error}.`;
  }
}
