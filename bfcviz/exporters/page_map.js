// The region map of a page without a kernel, painted on a canvas under plotly's axes: its cost depends on pixels and
// chunks, a few milliseconds for 50,000 chunks. It lays out rows as bfcviz/figures/map_rows.py and colours
// pixels as map_cells.py: each has the colour of one class of its bytes, paler by what is free.

import { FREE_CHUNK, IN_USE, NOTHING } from "./page_heap.js";

const WRAPPED_ROWS = 16; // rows, if the regions alone do not need more
export const MANY_REGIONS = 64; // of more, those of one size lie together
const TOP = 0.08; // the edges of a box, as parts of a row's height
const BOTTOM = 0.92;
const FAINTEST = 0.3; // of a pixel: a lone chunk in it stays visible
const FADE = 0.78; // the share of the paper's colour in a chunk outside of the chosen holder
const NARROW = 14; // pixels: a narrower outlined chunk gets a marker, too
const GAP = 4; // pixels: a narrower box has no line at its end
const MOST_TEXTS = 150;
const LETTER = 6.2; // pixels of a letter, on average
const MOST_FRAMES = 64; // rows with a frame
const MOST_CELLS = 250_000; // of the picture: with many rows they are wider than a pixel
const LEAST_GAPS = 3; // pixels of a row: less high ones have no gap
const ROUNDING = 1e-6; // of a cell: sums of parts are not exact

const THINNEST = 0.5; // pixels of an outline in low rows

export const STRONG = 3; // pixels of an outline that must be seen

// The rows of regions (by address): a long region wraps like text. Many regions lie by size, the largest first. `first`
// is the first row of each; they are in the order of their rows.
export function lay_out(regions) {
  const allowed = regions.length <= WRAPPED_ROWS / 2 ? WRAPPED_ROWS : regions.length + WRAPPED_ROWS;
  const needed = (width) => regions.reduce((sum, region) => sum + Math.ceil(region.size / width), 0);
  let width = 256;
  while (regions.length && needed(width) > allowed) width *= 2;
  let rows = 0;
  const in_order = regions.length > MANY_REGIONS ? [...regions].sort((one, other) => other.size - one.size) : regions;
  const placed = in_order.map((region) => {
    const first = rows;
    rows += Math.ceil(region.size / width);
    return { ...region, first };
  });
  return { width, rows, regions: placed, by_slot: new Map(placed.map((region) => [region.slot, region])) };
}

export function rgb(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

function mixed(one, other, share) {
  return one.map((part, at) => part + (other[at] - part) * share);
}

function contrasting(fill) {
  const [red, green, blue] = fill.map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#FFF";
}

// Calls `each(row, left, right)` for the pieces of an address range, in bytes from the left edge of a row.
function pieces(layout, region, address, size, each) {
  const { width } = layout;
  const begin = address - region.address;
  const end = begin + size;
  for (let row = Math.floor(begin / width); row * width < end; row += 1) {
    each(region.first + row, Math.max(begin - row * width, 0), Math.min(end - row * width, width));
  }
}

// Where the bytes of a cell change: lists of {colour, amount} by cell. A range of cells adds its bytes where it begins and
// takes them away where it ends; running sums along each line then give what a cell has of each colour.
class Changes {
  constructor() {
    this.first = new Int32Array(0); // the place of a cell's last change, plus one
    this.region = new Float64Array(0); // the change of the bytes of regions
    this.count = 0;
    this.room(1 << 16);
  }

  // Empty, for so many cells; the arrays are used again, for new ones cost a third of a picture.
  clear(cells) {
    this.count = 0;
    if (this.first.length < cells) [this.first, this.region] = [new Int32Array(cells), new Float64Array(cells)];
    else for (const each of [this.first, this.region]) each.fill(0, 0, cells);
  }

  room(size) {
    for (const [name, type] of [["next", Int32Array], ["colour", Uint8Array], ["amount", Float64Array]]) {
      const made = new type(size);
      if (this.count) made.set(this[name]);
      this[name] = made;
    }
  }

  // The cells of a line that begins at `base` have a colour from `begin` to `end`; those at its ends have a part of it.
  cover(base, begin, end, colour) {
    const [first, last] = [Math.floor(begin), Math.floor(end)];
    if (first === last) {
      this.add(base + first, end - begin, colour);
      this.add(base + first + 1, begin - end, colour);
      return;
    }
    this.add(base + first, first + 1 - begin, colour);
    this.add(base + first + 1, begin - first, colour);
    this.add(base + last, end - last - 1, colour);
    this.add(base + last + 1, last - end, colour);
  }

  add(cell, amount, colour) {
    this.region[cell] += amount;
    if (this.count === this.next.length) this.room(2 * this.count);
    const at = this.count++;
    this.next[at] = this.first[cell];
    this.colour[at] = colour;
    this.amount[at] = amount;
    this.first[cell] = at + 1;
  }
}

// The pixels of lines of cells; `colours` are [red, green, blue], that after the last is free; a line is `rows` rows.
//
// Two colours mixed can look like a third that means something else, such as free. So of neighbours that hold several,
// each colour has its share (ordered dithering): of 4 by 4 cells, or of 16 lines where each stands for several rows.
//
// A pixel that holds any of what lights up (`lit`) has its colour. Where no range begins or ends, a cell has what the one
// before has: of one colour it is the same pixel.
function pixels_of(changes, colours, lit, free, { lines, across, rows }) {
  const pixels = new Uint8ClampedArray(4 * lines * across);
  const cells = new Uint32Array(pixels.buffer);
  const held = new Float64Array(colours.length + 1);
  const { first, next, colour: changed, amount, region } = changes;
  const none = colours.length;
  const whole = new Uint32Array(Uint8ClampedArray.from([...colours, free].flatMap((colour) => [...colour, 255])).buffer);
  for (let line = 0; line < lines; line += 1) {
    const base = line * (across + 2);
    held.fill(0);
    // Of the colours that the cell holds: their bytes and number, and the sum of their indices, which is that of a lone one.
    let [all, used, count, sum, lights, cell] = [0, 0, 0, 0, false, line * across];
    for (let column = 0; column < across; column += 1, cell += 1) {
      let at = first[base + column];
      if (at) {
        for (; at; at = next[at - 1]) {
          const colour = changed[at - 1];
          const before = held[colour];
          const after = (held[colour] = before + amount[at - 1]);
          if (colour === none) continue;
          used += after - before;
          if (after > ROUNDING === before > ROUNDING) continue;
          const sign = after > ROUNDING ? 1 : -1;
          count += sign;
          sum += sign * colour;
        }
        all += region[base + column];
        lights = held[lit] > ROUNDING;
      } else if (column && (count < 2 || lights)) {
        cells[cell] = cells[cell - 1];
        continue;
      }
      if (all < ROUNDING) continue;
      const taken = lights ? 1 : count === 0 ? 0 : Math.min(Math.max(used / all, FAINTEST), 1);
      const shown = lights ? lit : count === 1 ? sum : choose(held, used, line, rows > 1 ? line >> 2 : column);
      const opacity = rows > 1 ? all * rows : all;
      if ((taken === 0 || taken === 1) && opacity >= 1) {
        cells[cell] = whole[taken ? shown : none];
        continue;
      }
      const colour = taken === 0 ? free : colours[shown];
      const to = 4 * cell;
      for (let part = 0; part < 3; part += 1) pixels[to + part] = colour[part] * taken + free[part] * (1 - taken);
      pixels[to + 3] = 255 * Math.min(opacity, 1);
    }
  }
  return pixels;
}

function choose(held, used, line, column) {
  const across = line ^ column;
  const turn = (across & 1) * 8 + (line & 1) * 4 + (across & 2) + ((line & 2) >> 1);
  let wanted = (used * (turn + 0.5)) / 16;
  let chosen = 0;
  for (let each = 0; each < held.length - 1; each += 1) {
    if (held[each] <= ROUNDING) continue;
    chosen = each;
    wanted -= held[each];
    if (wanted < 0) break;
  }
  return chosen;
}

export class MapCanvas {
  // `heap`: what is painted; `canvas`: the element.
  constructor(heap, canvas) {
    Object.assign(this, { heap, canvas, layout: null, version: -1, view: null });
    this.lines = document.createElement("canvas");
    this.changes = new Changes();
  }

  // The rows at the present step.
  get rows() {
    if (this.version !== this.heap.regions_version) {
      this.layout = lay_out(this.heap.regions_by_address());
      this.version = this.heap.regions_version;
    }
    return this.layout;
  }

  // Paint the chunks.
  //
  // view: {left, right} in bytes, {top, bottom} in rows, {width, height} of the canvas in pixels of the page.
  // look: {theme, fills, class_of(chunk), waste, is_faded(chunk) or null, is_found(chunk) or null, name_of(chunk), outlines: [{spans, colour,
  // width, dash, fill}]}; spans are [{address, size, region}].
  paint(view, look) {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const [wide, high] = [Math.round(view.width * ratio), Math.round(view.height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
    canvas.style.width = `${view.width}px`;
    canvas.style.height = `${view.height}px`;
    this.view = view;
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, wide, high);
    const layout = this.rows;
    if (!layout.rows || view.right <= view.left) return;
    const first = Math.max(Math.floor(view.top), 0);
    const stop = Math.min(Math.ceil(view.bottom), layout.rows);
    if (stop <= first) return;
    const cells = this.cells(layout, view, look, { first, stop, wide, high });
    this.draw_lines(context, cells, view, { first, stop, wide, high });
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.draw_frames(context, layout, look.theme, { first, stop });
    this.draw_boxes(context, layout, look, { first, stop });
    for (const outline of look.outlines) this.draw_outline(context, layout, outline);
  }

  // The pixels of cells: a line of cells a row, or several rows in one where there are more rows than pixels. A chunk costs
  // the same however wide it is, and next to nothing outside of the view.
  cells(layout, view, look, { first, stop, wide, high }) {
    // No more than whole pixels, else one line in a few hundred would not be drawn.
    const room = Math.floor(((stop - first) * high) / (view.bottom - view.top));
    const lines = Math.min(stop - first, Math.max(room, 1));
    const across = Math.min(wide, Math.ceil(MOST_CELLS / lines));
    const fills = look.fills.map(rgb);
    const paper = rgb(look.theme.paper);
    const colours = [...fills, ...fills.map((fill) => mixed(fill, paper, FADE)), rgb(look.theme.waste), rgb(look.theme.search)];
    const [waste, lit, none] = [colours.length - 2, colours.length - 1, colours.length];
    // In rows too low to outline all that a search finds, it lights up.
    const is_found = high / (view.bottom - view.top) < LEAST_GAPS ? look.is_found : null;
    const { changes } = this;
    changes.clear(lines * (across + 2)); // two more: where ranges end
    const scale = across / (view.right - view.left);
    const { state, address, size, requested, region: slots } = this.heap.chunks;
    const { class_of, is_faded } = look;
    const cover = (line, left, right, colour) => {
      const begin = Math.max((left - view.left) * scale, 0);
      const end = Math.min((right - view.left) * scale, across);
      if (end > begin) changes.cover(line * (across + 2), begin, end, colour);
    };
    const { width, by_slot } = layout;
    let [slot, place] = [-1, null];
    for (let chunk = 0; chunk < state.length; chunk += 1) {
      if (state[chunk] === NOTHING) continue;
      if (slots[chunk] !== slot) place = by_slot.get((slot = slots[chunk]));
      const begin = address[chunk] - place.address;
      const end = begin + size[chunk];
      const top = Math.floor(begin / width);
      if (place.first + top >= stop) continue;
      const below = Math.ceil(end / width);
      if (place.first + below <= first) continue;
      if (below === top + 1 && (begin - top * width >= view.right || end - top * width <= view.left)) continue;
      const in_use = state[chunk] === IN_USE;
      const faded = in_use && is_faded !== null && is_faded(chunk);
      const lights = in_use && is_found !== null && is_found(chunk);
      const colour = lights ? lit : in_use ? class_of(chunk) + (faded ? fills.length : 0) : none;
      const asked = in_use && look.waste && !faded && !lights ? begin + requested[chunk] : end;
      for (let row = Math.max(top, first - place.first); row < Math.min(below, stop - place.first); row += 1) {
        const line = Math.floor(((place.first + row - first) * lines) / (stop - first));
        const base = row * width;
        const right = Math.min(end - base, width);
        const middle = Math.min(Math.max(asked - base, 0), right);
        cover(line, Math.max(begin - base, 0), middle, colour);
        if (middle < right) cover(line, Math.max(begin - base, middle), right, waste);
      }
    }
    const size_of = { lines, across, rows: (stop - first) / lines };
    return { pixels: pixels_of(changes, colours, lit, rgb(look.theme.free), size_of), lines, across };
  }

  draw_lines(context, { pixels, lines, across }, view, { first, stop, wide, high }) {
    Object.assign(this.lines, { width: across, height: lines });
    this.lines.getContext("2d").putImageData(new ImageData(pixels, across, lines), 0, 0);
    context.imageSmoothingEnabled = false;
    const down = high / (view.bottom - view.top);
    const tall = ((stop - first) / lines) * down;
    const top = (first - view.top) * down;
    if (tall < LEAST_GAPS) {
      context.drawImage(this.lines, 0, 0, across, lines, 0, top, wide, tall * lines);
      return;
    }
    for (let line = 0; line < lines; line += 1) {
      const from = top + (line + TOP) * tall;
      context.drawImage(this.lines, 0, line, across, 1, 0, from, wide, (BOTTOM - TOP) * tall);
    }
  }

  // The pixels of a piece of a row: x, y, width, height.
  box(row, left, right) {
    const { view } = this;
    const across = view.width / (view.right - view.left);
    const down = view.height / (view.bottom - view.top);
    return [(left - view.left) * across, (row + TOP - view.top) * down, (right - left) * across, (BOTTOM - TOP) * down];
  }

  draw_frames(context, layout, theme, { first, stop }) {
    if (stop - first > MOST_FRAMES) return;
    context.strokeStyle = theme.pool_line;
    context.lineWidth = 1;
    for (const region of layout.regions) {
      if (region.first >= stop) break;
      pieces(layout, region, region.address, region.size, (row, left, right) => {
        if (row >= first && row < stop) context.strokeRect(...this.box(row, left, right));
      });
    }
  }

  // Lines between boxes, and names in those that have room.
  draw_boxes(context, layout, look, { first, stop }) {
    const { state, address, size, requested, region: slots } = this.heap.chunks;
    const tall = (this.view.height / (this.view.bottom - this.view.top)) * (BOTTOM - TOP);
    const across = this.view.width / (this.view.right - this.view.left);
    if (tall < LEAST_GAPS) return;
    const named = [];
    context.fillStyle = look.theme.paper;
    for (let chunk = 0; chunk < state.length; chunk += 1) {
      if (state[chunk] === NOTHING || size[chunk] * across < GAP) continue;
      const place = layout.by_slot.get(slots[chunk]);
      let widest = null;
      pieces(layout, place, address[chunk], size[chunk], (row, left, right) => {
        if (row < first || row >= stop) return;
        const [x, y, wide, high] = this.box(row, left, right);
        if (wide < GAP || x > this.view.width || x + wide < 0) return;
        context.fillRect(x + wide - 1, y, 1, high);
        const from = Math.max(x, 0);
        const to = Math.min(x + wide, this.view.width);
        if (widest === null || to - from > widest.wide) widest = { chunk, x: from, y, wide: to - from, high };
      });
      const asked = look.waste && state[chunk] === IN_USE && requested[chunk] ? requested[chunk] / size[chunk] : 1;
      if (widest && widest.wide * asked > 6 * LETTER + 12) named.push({ ...widest, wide: widest.wide * asked });
    }
    if (tall < 11) return;
    named.sort((one, other) => other.wide - one.wide);
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const { chunk, x, y, wide, high } of named.slice(0, MOST_TEXTS)) {
      if (look.is_faded !== null && state[chunk] === IN_USE && look.is_faded(chunk)) continue;
      const text = look.text_of(chunk, Math.floor((wide - 12) / LETTER));
      const fill = state[chunk] === FREE_CHUNK ? look.theme.free : look.fills[look.class_of(chunk)];
      context.fillStyle = contrasting(rgb(fill));
      context.fillText(text, x + wide / 2, y + high / 2);
    }
  }

  draw_outline(context, layout, { spans, colour, width, dash = [], fill = null, marker = true }) {
    const tall = this.view.height / (this.view.bottom - this.view.top);
    context.strokeStyle = colour;
    context.lineWidth = marker ? Math.min(width, Math.max(tall / 3, THINNEST)) : width; // many would hide low rows
    context.setLineDash(dash);
    for (const { address, size, region } of spans) {
      const place = layout.by_slot.get(region);
      if (!place) continue;
      pieces(layout, place, address, size, (row, left, right) => {
        const [x, y, wide, high] = this.box(row, left, right);
        if (x > this.view.width || x + wide < 0 || y > this.view.height || y + high < 0) return;
        if (fill) {
          context.fillStyle = fill;
          context.fillRect(x, y, Math.max(wide, 1), high);
        }
        context.strokeRect(x, y, Math.max(wide, 1), high);
        if (marker && wide < NARROW) {
          context.fillStyle = colour;
          context.beginPath();
          context.moveTo(x + wide / 2, y);
          context.lineTo(x + wide / 2 - 5, y - 7);
          context.lineTo(x + wide / 2 + 5, y - 7);
          context.fill();
        }
      });
    }
    context.setLineDash([]);
  }

  // The chunk under a pixel of the canvas: its row in the heap, or -1. A narrow chunk in use close to it wins.
  chunk_at(x, y) {
    const { view, heap } = this;
    const layout = this.rows;
    const across = (view.right - view.left) / view.width;
    const row = Math.floor(view.top + (y * (view.bottom - view.top)) / view.height);
    const offset = view.left + x * across;
    if (row < 0 || row >= layout.rows || offset < 0 || offset >= layout.width) return -1;
    const region = region_of(layout, row);
    const wanted = region.address + (row - region.first) * layout.width + offset;
    if (wanted >= region.address + region.size) return -1;
    const { state, address, size, region: slots } = heap.chunks;
    const reach = 3 * across;
    const order = heap.by_address();
    const at = heap.index_of(wanted);
    let [found, nearest] = [-1, Infinity];
    const look = (chunk) => {
      if (chunk === undefined || slots[chunk] !== region.slot) return false;
      const [begin, end] = [address[chunk], address[chunk] + size[chunk]];
      if (end < wanted - reach || begin > wanted + reach) return false;
      const middle = (begin + end) / 2;
      const close = state[chunk] === IN_USE && size[chunk] < 2 * reach && Math.abs(middle - wanted) <= reach;
      const distance = close ? Math.abs(middle - wanted) : begin <= wanted && wanted < end ? reach * 2 : Infinity;
      if (distance < nearest) [found, nearest] = [chunk, distance];
      return true;
    };
    for (let before = at; look(order[before]); before -= 1);
    for (let after = at + 1; look(order[after]); after += 1);
    return found;
  }

  // The chunk that has the byte at an address: its row in the heap, or -1.
  chunk_of(address) {
    const { address: begins, size } = this.heap.chunks;
    const chunk = this.heap.by_address()[this.heap.index_of(address)];
    return chunk !== undefined && address < begins[chunk] + size[chunk] ? chunk : -1;
  }

  // The row of an address, and its bytes from the left edge.
  place_of(address) {
    const { width, by_slot } = this.rows;
    const { first, address: begin } = by_slot.get(this.heap.chunks.region[this.chunk_of(address)]);
    return [first + Math.floor((address - begin) / width), (address - begin) % width];
  }

  // The address at a place; the last one of the row where it is behind the end of the region.
  address_at(row, offset) {
    const { address, size, first } = region_of(this.rows, row);
    return address + Math.min((row - first) * this.rows.width + Math.floor(offset), size - 1);
  }

  // The address that an arrow key goes to: in the chunk before or after, else in the nearest row with another chunk there.
  // As bfcviz/dashboard/map_cursor.py.
  beside(address, way) {
    const here = this.chunk_of(address);
    if (way === "left" || way === "right") {
      const order = this.heap.by_address();
      const next = order[order.indexOf(here) + (way === "left" ? -1 : 1)];
      return next === undefined ? address : this.middle_of(next);
    }
    let [row, offset] = this.place_of(address);
    for (row += way === "up" ? -1 : 1; row >= 0 && row < this.rows.rows; row += way === "up" ? -1 : 1) {
      const there = this.address_at(row, offset);
      if (this.chunk_of(there) !== here) return there;
    }
    return address;
  }

  // The address in the middle of the widest piece of a chunk.
  middle_of(chunk) {
    const { address, size, region } = this.heap.chunks;
    let widest = [0, 0, -1];
    pieces(this.rows, this.rows.by_slot.get(region[chunk]), address[chunk], size[chunk], (row, left, right) => {
      if (right - left > widest[1] - widest[2]) widest = [row, right, left];
    });
    return this.address_at(widest[0], (widest[1] + widest[2]) / 2);
  }
}

// The region that has a row.
function region_of(layout, row) {
  return layout.regions.findLast((each) => each.first <= row);
}
