// The heap of a page without a kernel: bfcviz/model/pool_state.py in the page. exporters/interactive_page.py makes what it
// reads.
//
// Each event can be undone from its own fields, so time runs backwards as fast as forwards. The events were checked when
// the page was made; here they are only applied. Numbers are float64, exact below 2^53. A `place` is a number of events:
// the state before events[place].

export const KINDS = ["", "EXTEND", "SPLIT", "ALLOCATE", "FREE", "MERGE", "RELEASE", "OOM", "MARK"];
export const [, EXTEND, SPLIT, ALLOCATE, FREE, MERGE, RELEASE, OOM, MARK] = KINDS.keys();
export const NOTHING = 0;
export const FREE_CHUNK = 1;
export const IN_USE = 2;
export const NUM_BINS = 21;
const GREW = 1; // EXTEND: an existing region became longer
const KEYFRAME_EVERY = 1 << 16; // events: a jump costs no more than so many

// ---------------------------------------------------------------------------------------------------------------------
// Columns of numbers.

export async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Reads one zigzag varint after the other.
class Column {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  next() {
    const { bytes } = this;
    let byte = bytes[this.at++];
    let value = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = bytes[this.at++];
      value += (byte & 127) * scale;
    }
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }

  left() {
    const found = [];
    while (this.at < this.bytes.length) found.push(this.next());
    return found;
  }
}

export async function column(text) {
  return new Column(await inflated(text));
}

async function columns(texts) {
  const names = Object.keys(texts);
  const found = await Promise.all(names.map((name) => column(texts[name])));
  return Object.fromEntries(names.map((name, at) => [name, found[at]]));
}

export function bin_of(size) {
  return Math.max(Math.min(Math.floor(Math.log2(size / 256)), NUM_BINS - 1), 0); // log2 of a power of two is exact
}

// ---------------------------------------------------------------------------------------------------------------------
// The largest of many numbers, some of which change: node i is the larger of nodes 2i and 2i+1.

class LargestOf {
  constructor(count) {
    this.first = 1;
    while (this.first < count) this.first *= 2;
    this.nodes = new Float64Array(2 * this.first);
  }

  set(at, value) {
    const { nodes } = this;
    let node = this.first + at;
    nodes[node] = value;
    while (node > 1) {
      const largest = Math.max(nodes[node], nodes[node ^ 1]);
      node >>= 1;
      if (nodes[node] === largest) return;
      nodes[node] = largest;
    }
  }

  get largest() {
    return this.nodes[1];
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The heap: chunks in rows by handle (numbered from 0 without gaps; `handles` has the numbers of the file).

const CHUNK_COLUMNS = {
  state: Uint8Array,
  address: Float64Array,
  size: Float64Array,
  requested: Float64Array,
  born: Float64Array, // seq of its ALLOCATE
  event: Float64Array, // place of its ALLOCATE, or -1 - its row in the state that the page begins with
  label: Uint32Array,
  thread: Uint16Array,
  stream: Uint16Array,
  region: Uint16Array,
};
const OWNED = ["requested", "born", "event", "label", "thread", "stream"]; // 0 where the chunk is free

const EVENT_COLUMNS = {
  kind: Uint8Array,
  flags: Uint8Array,
  seq: Float64Array,
  time: Float64Array,
  chunk: Uint32Array,
  other: Uint32Array,
  address: Float64Array,
  size: Float64Array,
  requested: Float64Array,
  born: Float64Array,
  event: Float64Array,
  label: Uint32Array,
  thread: Uint16Array,
  stream: Uint16Array,
  region: Uint16Array,
};

EVENT_COLUMNS.kept = EVENT_COLUMNS.waste = Float64Array; // of a SPLIT, of an ALLOCATE: as they are sent

// The columns of each kind, as in exporters/interactive_page.py.
const FIELDS = [
  [],
  ["chunk", "address", "size", "region", "flags"],
  ["chunk", "other", "kept", "flags"],
  ["chunk", "waste", "label", "thread", "stream", "flags"],
  ["chunk", "flags"],
  ["chunk", "other"],
  ["chunk"],
  ["address", "size", "requested", "label", "thread", "stream"],
  ["size", "label", "thread"],
];

// What the numbers of a column are differences to: `chunk` of the event before, or the number before in the column.
function base_of(kind, name) {
  if (name === "chunk") return kind === FREE ? null : "before";
  if (name === "other") return kind === MERGE ? "before" : "other";
  return kind === EXTEND && name === "address" ? "address" : null;
}

const SERIES = ["bytes_in_use", "requested_bytes_in_use", "pool_bytes", "largest_free_chunk"];
const TOTALS = ["bytes_in_use", "requested_bytes_in_use", "pool_bytes", "chunks_in_use", "chunks_free", "num_allocs", "ooms"];

function rows_of(types, count) {
  return Object.fromEntries(Object.entries(types).map(([name, Type]) => [name, new Type(count)]));
}

export class Heap {
  // The heap of what `packed_heap` made, at its first place. `tell(share)` is called while it is read.
  static async read(packed, tell = () => {}) {
    const heap = new Heap(packed);
    await heap.begin(packed.start);
    await heap.decode(await columns(packed.columns), tell);
    heap.seek(0);
    return heap;
  }

  constructor({ count, handles }) {
    this.count = count;
    this.place = 0;
    this.chunks = rows_of(CHUNK_COLUMNS, handles);
    this.free_sizes = new LargestOf(handles);
    this.regions = new Map(); // slot -> {slot, address, size}
    this.regions_version = 0; // another one where regions differ
    this.events = rows_of(EVENT_COLUMNS, count);
    this.series = Object.fromEntries(SERIES.map((name) => [name, new Float64Array(count + 1)])); // by place
    this.keyframes = [];
    for (const name of TOTALS) this[name] = 0;
  }

  async begin(start) {
    const { chunks, free_sizes } = this;
    this.start = start;
    const rows = Object.fromEntries(
      Object.entries(await columns(start.chunks)).map(([name, each]) => [name, each.left()]),
    );
    for (const [row, handle] of rows.handle.entries()) {
      for (const [name, values] of Object.entries(rows)) if (name !== "handle") chunks[name][handle] = values[row];
      if (rows.state[row] === IN_USE) {
        chunks.event[handle] = -1 - row;
        this.bytes_in_use += rows.size[row];
        this.chunks_in_use += 1;
      } else {
        free_sizes.set(handle, rows.size[row]);
        this.chunks_free += 1;
      }
    }
    const { slot, address, size } = await columns(start.regions);
    for (const number of slot.left()) {
      const region = { slot: number, address: address.next(), size: size.next() };
      this.regions.set(number, region);
      this.pool_bytes += region.size;
    }
    for (const name of ["requested_bytes_in_use", "num_allocs", "ooms"]) this[name] = start[name];
  }

  // Read the events: what the state implies is not in the columns, so each event is applied at once.
  async decode(from, tell) {
    const { events, chunks } = this;
    this.handles = from.handles.left();
    for (let at = 1; at < this.handles.length; at += 1) this.handles[at] += this.handles[at - 1];
    const readers = FIELDS.map((names, kind) =>
      names.map((name) => ({ into: events[name], from: from[`${KINDS[kind]}.${name}`], base: base_of(kind, name) })),
    );
    const sums = { address: 0, other: 0 }; // of the numbers before in a column of differences
    let [seq, time, before] = [this.start.step - 1, 0, 0];
    this.note();
    for (let at = 0; at < this.count; at += 1) {
      const kind = from.kind.next();
      events.kind[at] = kind;
      events.seq[at] = seq += 1 + from.seq.next();
      events.time[at] = time += from.time.next();
      for (const { into, from: each, base } of readers[kind]) {
        const value = each.next();
        if (base === null) into[at] = value;
        else if (base === "before") into[at] = before + value;
        else into[at] = sums[base] += value;
      }
      this.complete(at);
      before = kind <= RELEASE ? events.chunk[at] : 0;
      this.forward();
      this.note();
      if (at % KEYFRAME_EVERY === KEYFRAME_EVERY - 1) {
        tell(at / this.count);
        await new Promise((done) => setTimeout(done)); // the page stays alive
      }
    }
  }

  // Set the fields of an event that the state implies.
  complete(at) {
    const { events, chunks } = this;
    const [kind, chunk, other] = [events.kind[at], events.chunk[at], events.other[at]];
    if (kind === EXTEND || kind > RELEASE) return;
    events.region[at] = chunks.region[chunk];
    if (kind === SPLIT) {
      events.address[at] = chunks.address[chunk] + events.kept[at];
      events.size[at] = chunks.size[chunk] - events.kept[at];
      return;
    }
    const about = kind === MERGE ? other : chunk;
    events.address[at] = chunks.address[about];
    events.size[at] = chunks.size[about];
    if (kind === ALLOCATE) {
      events.requested[at] = events.size[at] - events.waste[at];
      events.born[at] = events.seq[at];
      events.event[at] = at;
    } else if (kind === FREE) for (const name of OWNED) events[name][at] = chunks[name][chunk];
  }

  // The values after the last event, for the timelines; and now and then the whole state.
  note() {
    const { place, series } = this;
    for (const name of SERIES) series[name][place] = this[name];
    if (place % KEYFRAME_EVERY) return;
    const chunks = Object.fromEntries(Object.entries(this.chunks).map(([name, values]) => [name, values.slice()]));
    const regions = [...this.regions.values()].map((region) => ({ ...region }));
    const totals = Object.fromEntries(TOTALS.map((name) => [name, this[name]]));
    this.keyframes.push({ chunks, regions, totals, nodes: this.free_sizes.nodes.slice() });
  }

  get free_bytes() {
    return this.pool_bytes - this.bytes_in_use;
  }

  get largest_free_chunk() {
    return this.free_sizes.largest;
  }

  // The step at a place: the number of events of all heaps of the file that were applied.
  step_of(place) {
    return place === 0 ? this.start.step : this.events.seq[place - 1] + 1;
  }

  // The last place whose step is not after this one.
  place_of(step) {
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.step_of(middle) <= step) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // Move to a place: from here, or from a keyframe where that is nearer.
  seek(place) {
    const nearest = Math.min(Math.round(place / KEYFRAME_EVERY), this.keyframes.length - 1);
    if (Math.abs(nearest * KEYFRAME_EVERY - place) < Math.abs(this.place - place) - KEYFRAME_EVERY / 4) {
      this.restore(nearest);
    }
    while (this.place < place) this.forward();
    while (this.place > place) this.back();
  }

  restore(number) {
    const { chunks, regions, totals, nodes } = this.keyframes[number];
    for (const [name, values] of Object.entries(chunks)) this.chunks[name].set(values);
    this.regions = new Map(regions.map((region) => [region.slot, { ...region }]));
    this.regions_version += 1;
    this.free_sizes.nodes.set(nodes);
    Object.assign(this, totals);
    this.place = number * KEYFRAME_EVERY;
  }

  forward() {
    const at = this.place;
    const { kind } = this.events;
    if (kind[at] === ALLOCATE) {
      this.occupy(at);
      this.num_allocs += 1;
    } else if (kind[at] === FREE) this.vacate(at);
    else if (kind[at] === SPLIT) this.cut(at);
    else if (kind[at] === MERGE) this.append(at);
    else if (kind[at] === EXTEND) this.grow(at);
    else if (kind[at] === RELEASE) this.shrink(at);
    else if (kind[at] === OOM) this.ooms += 1;
    this.place += 1;
  }

  back() {
    this.place -= 1;
    const at = this.place;
    const { kind } = this.events;
    if (kind[at] === ALLOCATE) {
      this.vacate(at);
      this.num_allocs -= 1;
    } else if (kind[at] === FREE) this.occupy(at);
    else if (kind[at] === SPLIT) this.append(at);
    else if (kind[at] === MERGE) this.cut(at);
    else if (kind[at] === EXTEND) this.shrink(at);
    else if (kind[at] === RELEASE) this.grow(at);
    else if (kind[at] === OOM) this.ooms -= 1;
  }

  // ALLOCATE, or FREE undone.
  occupy(at) {
    const { chunks, events } = this;
    const chunk = events.chunk[at];
    chunks.state[chunk] = IN_USE;
    chunks.requested[chunk] = events.requested[at];
    chunks.born[chunk] = events.born[at];
    chunks.event[chunk] = events.event[at];
    chunks.label[chunk] = events.label[at];
    chunks.thread[chunk] = events.thread[at];
    chunks.stream[chunk] = events.stream[at];
    this.free_sizes.set(chunk, 0);
    this.bytes_in_use += chunks.size[chunk];
    this.requested_bytes_in_use += chunks.requested[chunk];
    this.chunks_in_use += 1;
    this.chunks_free -= 1;
  }

  // FREE, or ALLOCATE undone.
  vacate(at) {
    const { chunks } = this;
    const chunk = this.events.chunk[at];
    this.bytes_in_use -= chunks.size[chunk];
    this.requested_bytes_in_use -= chunks.requested[chunk];
    chunks.state[chunk] = FREE_CHUNK;
    for (const name of OWNED) chunks[name][chunk] = 0;
    this.free_sizes.set(chunk, chunks.size[chunk]);
    this.chunks_in_use -= 1;
    this.chunks_free += 1;
  }

  // SPLIT, or MERGE undone: `other` is cut off the end of `chunk`.
  cut(at) {
    const { chunks, events } = this;
    const chunk = events.chunk[at];
    this.add(events.other[at], events.address[at], events.size[at], events.region[at]);
    chunks.size[chunk] -= events.size[at];
    this.free_sizes.set(chunk, chunks.size[chunk]);
  }

  // MERGE, or SPLIT undone: `other` becomes the end of `chunk`.
  append(at) {
    const { chunks, events } = this;
    const chunk = events.chunk[at];
    this.drop(events.other[at]);
    chunks.size[chunk] += events.size[at];
    this.free_sizes.set(chunk, chunks.size[chunk]);
  }

  // EXTEND, or RELEASE undone.
  grow(at) {
    const { events, regions } = this;
    const [slot, address, size] = [events.region[at], events.address[at], events.size[at]];
    if (events.kind[at] === EXTEND && events.flags[at] & GREW) regions.get(slot).size += size;
    else regions.set(slot, { slot, address, size });
    this.regions_version += 1;
    this.add(events.chunk[at], address, size, slot);
    this.pool_bytes += size;
  }

  // RELEASE, or EXTEND undone.
  shrink(at) {
    const { events, regions } = this;
    const [slot, size] = [events.region[at], events.size[at]];
    if (events.kind[at] === EXTEND && events.flags[at] & GREW) regions.get(slot).size -= size;
    else regions.delete(slot);
    this.regions_version += 1;
    this.drop(events.chunk[at]);
    this.pool_bytes -= size;
  }

  add(chunk, address, size, region) {
    const { chunks } = this;
    chunks.state[chunk] = FREE_CHUNK;
    chunks.address[chunk] = address;
    chunks.size[chunk] = size;
    chunks.region[chunk] = region;
    this.free_sizes.set(chunk, size);
    this.chunks_free += 1;
  }

  drop(chunk) {
    const { chunks } = this;
    chunks.state[chunk] = NOTHING;
    chunks.address[chunk] = chunks.size[chunk] = chunks.region[chunk] = 0;
    this.free_sizes.set(chunk, 0);
    this.chunks_free -= 1;
  }

  // The chunks (rows) by address; they tile the regions. Sorted once for each place.
  by_address() {
    if (this.sorted?.place === this.place) return this.sorted.order;
    const { state, address } = this.chunks;
    const found = [];
    for (let chunk = 0; chunk < state.length; chunk += 1) if (state[chunk] !== NOTHING) found.push(chunk);
    const order = Uint32Array.from(found).sort((one, other) => address[one] - address[other]);
    this.sorted = { place: this.place, order };
    return order;
  }

  // The index of a byte's chunk in `by_address`: of the last that begins at or before it; -1 before the first.
  index_of(byte) {
    const { address } = this.chunks;
    const order = this.by_address();
    let [low, high] = [0, order.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (address[order[middle]] <= byte) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  // The regions by address.
  regions_by_address() {
    return [...this.regions.values()].sort((one, other) => one.address - other.address);
  }

  // Bytes and number of the chunks of each bin, free and in use.
  bins() {
    const found = { free_bytes: [], free_chunks: [], in_use_bytes: [], in_use_chunks: [] };
    for (const values of Object.values(found)) values.push(...new Array(NUM_BINS).fill(0));
    const { state, size } = this.chunks;
    for (let chunk = 0; chunk < state.length; chunk += 1) {
      if (state[chunk] === NOTHING) continue;
      const [bin, which] = [bin_of(size[chunk]), state[chunk] === IN_USE ? "in_use" : "free"];
      found[`${which}_bytes`][bin] += size[chunk];
      found[`${which}_chunks`][bin] += 1;
    }
    return found;
  }

  // The totals, as `ModelStats`: peaks from the first step of the file.
  stats() {
    const most = (values, least) => values.subarray(0, this.place + 1).reduce((one, other) => Math.max(one, other), least);
    const { events, start } = this;
    let largest = start.largest_alloc_size;
    for (let at = 0; at < this.place; at += 1) if (events.kind[at] === ALLOCATE) largest = Math.max(largest, events.size[at]);
    return {
      num_allocs: this.num_allocs,
      bytes_in_use: this.bytes_in_use,
      requested_bytes_in_use: this.requested_bytes_in_use,
      peak_bytes_in_use: most(this.series.bytes_in_use, start.peak_bytes_in_use),
      pool_bytes: this.pool_bytes,
      peak_pool_bytes: most(this.series.pool_bytes, start.peak_pool_bytes),
      largest_alloc_size: largest,
      free_bytes: this.free_bytes,
      largest_free_chunk: this.largest_free_chunk,
      chunks_in_use: this.chunks_in_use,
      chunks_free: this.chunks_free,
      ooms: this.ooms,
    };
  }
}
