// What a dashboard's page paints over Python's figure while the reader moves: the map, the lines at the step, and the
// numbers of the header. The rest of the figure is faded: it is of another step. See scrubbing.js.

import { counted, format_bytes, HeapView, one_digit, PageData } from "../exporters/page_view.js";

const FADED = 0.35; // opacity

export class Scrubber extends HeapView {
  static async read({ look, ...sent }, root) {
    const scrubber = new Scrubber(await PageData.read({ ...sent, colourings: [look.colouring] }), root);
    await scrubber.take_look(look);
    return scrubber;
  }

  constructor(data, root) {
    super(data, document.createElement("canvas"));
    Object.assign(this, { root, ready: false, faded: null, frame: 0, shown: null });
  }

  // How Python draws the map: as the page would (`same`), or with what only Python knows.
  async take_look({ same, colouring, theme, faded, selected }) {
    this.ready = same;
    if (!same) return this.hide();
    await this.data.read_codes([colouring]);
    return Object.assign(this, { colouring, theme_name: theme, faded, selected });
  }

  fading() {
    const { label } = this.heap.chunks;
    return this.faded && ((chunk) => this.faded[label[chunk]]);
  }

  // Not the step that its events begin at: the event before is not here, unless the trace begins there.
  has(step) {
    const { first, last, trace_first } = this.data;
    return (step > first || step === trace_first) && step <= last;
  }

  event_text() {
    return this.step === this.data.trace_first ? "before the first event" : super.event_text();
  }

  // The step of the event before or after a step, as Python's keys go; null: the page does not have it.
  beside(step, way) {
    const { heap, data } = this;
    if (!this.has(step)) return null;
    if (way < 0) {
      const before = step > data.first ? heap.step_of(heap.place_of(step - 1)) : step;
      return this.has(before) ? before : null;
    }
    const place = heap.place_of(step);
    if (place < heap.count) return heap.step_of(place + 1);
    return data.last === data.trace_last ? data.last : null;
  }

  show(step) {
    if (!this.shown) this.begin();
    this.seek(step);
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (this.shown) this.draw();
    });
  }

  begin() {
    const plot = this.root.querySelector(".js-plotly-plot");
    const drawn = Number(plot.dataset.bfcvizStep);
    this.seek(drawn);
    const box = document.createElement("div");
    box.className = "bfcviz-scrub";
    const ticks = document.createElement("div");
    box.append(ticks, this.map.canvas);
    plot.querySelector(".plot-container").append(box);
    const copies = ["numbers", "step-line"].map((name) => {
      const original = this.root.querySelector(`.bfcviz-${name} .widget-html-content`); // ipywidgets fills it anew
      const copy = original.cloneNode(true);
      original.classList.add("bfcviz-scrubbed");
      original.after(copy);
      // Of the step that Python drew: the bars of its request, the paragraphs on its event.
      for (const each of copy.querySelectorAll(".bfcviz-bars, p")) each.remove();
      return copy;
    });
    const traces = plot._fullData.filter(({ name, visible }) => name === "this step" && visible === true);
    const subplot = ({ xaxis, yaxis }) => xaxis + yaxis;
    const on_steps = traces.filter(({ x, meta }) => meta === "step" && isFinite(x[0])); // else the axis is time
    this.shown = {
      plot,
      input: this.root.querySelector("input[type=number]"), // the step
      box,
      ticks,
      copies,
      rows: this.has(drawn) ? this.map.rows : null,
      lines: on_steps.map(({ uid, xaxis, x }) => ({
        axis: plot._fullLayout[xaxis.replace("x", "xaxis")],
        from: x[0], // while a key is held, Python draws no lines
        paths: [...plot.querySelectorAll(`.trace${uid}`)],
      })),
      faded: [...plot.querySelectorAll(".cartesianlayer > .subplot")].filter(
        (each) => !["xy", ...on_steps.map(subplot)].some((name) => each.classList.contains(name)),
      ),
    };
    for (const each of this.shown.faded) each.style.opacity = FADED;
    this.root.classList.add("bfcviz-scrubs");
  }

  hide() {
    if (!this.shown) return;
    const { box, copies, lines, faded } = this.shown;
    for (const each of [box, ...copies]) each.remove();
    for (const { paths } of lines) for (const path of paths) path.removeAttribute("transform");
    for (const each of faded) each.style.opacity = "";
    for (const each of this.root.querySelectorAll(".bfcviz-scrubbed")) each.classList.remove("bfcviz-scrubbed");
    this.root.classList.remove("bfcviz-scrubs");
    this.shown.input.value = this.root.querySelector(".bfcviz-step-line [data-bfcviz-step]").dataset.bfcvizStep;
    this.shown = null;
  }

  draw() {
    const { plot, box, lines } = this.shown;
    const { xaxis, yaxis } = plot._fullLayout;
    const before = this.shown.rows;
    const { rows } = this.map;
    const same = before && String(before.regions.map(key_of)) === String(rows.regions.map(key_of));
    const across = xaxis.range.map((each) => (each / xaxis.maxallowed) * rows.width);
    const [left, right] = same ? across : [0, rows.width];
    const [bottom, top] = same ? yaxis.range : [rows.rows, 0];
    box.style.left = `${xaxis._offset}px`;
    box.style.top = `${yaxis._offset}px`;
    this.map.canvas.style.background = this.theme.paper; // Python's map lies below
    this.map.paint({ left, right, top, bottom, width: xaxis._length, height: yaxis._length }, this.look());
    this.draw_ticks(same ? { tickvals: [] } : this.row_ticks(), yaxis._length / rows.rows, xaxis._offset);
    for (const { axis, from, paths } of lines) {
      const shift = axis.d2p(this.step) - axis.d2p(from);
      for (const path of paths) path.setAttribute("transform", `translate(${shift},0)`);
    }
    this.draw_header();
  }

  // Regions came or went: the labels beside the map are those of other rows.
  draw_ticks({ tickvals, ticktext }, high, room) {
    const { ticks } = this.shown;
    ticks.hidden = !tickvals.length;
    ticks.style.cssText = `left:${-room}px;width:${room - 2}px;background:${this.theme.paper};color:${this.theme.text}`;
    const made = tickvals.map((at, number) => {
      const tick = document.createElement("span");
      tick.textContent = ticktext[number].replace("<br>", "\n");
      tick.style.top = `${at * high}px`;
      return tick;
    });
    ticks.replaceChildren(...made);
  }

  // As bfcviz/dashboard/header.py.
  draw_header() {
    const { heap, data } = this;
    const [numbers, line] = this.shown.copies;
    const wasted = heap.bytes_in_use - heap.requested_bytes_in_use;
    const share = (part, whole, what) => (whole ? `${one_digit((100 * part) / whole)}% ${what}` : "\u00a0");
    const count = heap.chunks_free;
    const told = [
      [heap.bytes_in_use, share(heap.bytes_in_use, heap.pool_bytes, "of the pool")],
      [heap.free_bytes, `in ${counted(count)} chunk${count === 1 ? "" : "s"}`],
      [heap.largest_free_chunk, share(heap.free_bytes - heap.largest_free_chunk, heap.free_bytes, "fragmented")],
      [wasted, share(wasted, heap.bytes_in_use, "of in use")],
    ];
    for (const [at, tile] of numbers.querySelectorAll(".tile").entries()) {
      const [size, below] = told[at];
      tile.querySelector("b").textContent = format_bytes(size);
      tile.lastElementChild.textContent = below;
    }
    const [step, text] = line.querySelector("summary").childNodes;
    step.textContent = `step ${counted(this.step)} of ${counted(data.trace_last)}`;
    text.data = `: ${this.event_text()} `;
    this.shown.input.value = this.step;
  }
}

function key_of({ slot, first, size }) {
  return `${slot} ${first} ${size}`;
}
