// A figure that draws what Python last said, also on a page that needs long to start.
//
// Plotly's script (1.2 MB) is in a widget of its own, see bfcviz/dashboard/figure_widget.py: a kernel sends it once,
// and a page evaluates it once for all figures. A page may show notebooks with different versions of plotly: the digest
// of the script says which is meant.
//
// A slow page must lose no change while it evaluates that script. anywidget drops every message to a widget that was not
// ready within 2 s, and nothing here can prevent that: the page may be busy with something else. So the changes come
// through a plain widget, whose model in the page keeps each under its own name until it is taken here. They are
// numbered: where one is missing, the page asks for the whole figure.

const evaluated = (globalThis.bfcvizPlotly ??= new Map()); // digest -> promise of plotly
const RELOAD = "Reload this page.";
const ASK_AGAIN_MS = 2000; // then after twice this time, and so on: the kernel may be busy
const MOST_PARTS = 3; // of an update, that cost less than the whole figure
const REACH_PX = 20; // so far beyond the end of a row, its last chunk is named
const KEEP_MS = 1000; // from a change to the state that a saved notebook has

async function shared_plotly(model) {
  const shared = await model.widget_manager.get_model(model.get("_script_model_id"));
  const digest = shared.get("digest");
  if (!evaluated.has(digest)) evaluated.set(digest, evaluate(digest, shared.get("script")));
  return evaluated.get(digest);
}

async function evaluate(digest, packed) {
  globalThis.PlotlyConfig ??= { MathJaxConfig: "local" }; // else plotly changes the page's MathJax
  let url = "";
  try {
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = await new Response(stream).blob();
    url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    return (await import(url)).default;
  } catch (error) {
    evaluated.delete(digest); // the next figure tries again
    throw error;
  } finally {
    URL.revokeObjectURL(url);
  }
}

export default () => {
  let figure = null;
  return {
    // Returns at once: it waits neither for plotly nor for another widget.
    initialize({ model }) {
      figure = new Figure(model);
      return () => figure.stop();
    },
    render({ el }) {
      const view = new View(figure, el);
      return () => view.remove();
    },
  };
};

// The newest state of the figure, and the views that draw it.
class Figure {
  constructor(model) {
    this.model = model;
    this.views = new Set();
    this.asking = 0; // the timer of the next question
    this.keeping = 0; // the timer of `keep`
    this.forget = () => {};
    const { number, step } = model.get("_shown");
    Object.assign(this, { number, step });
    [this.data, this.layout] = restored([model.get("_widget_data"), model.get("_widget_layout")]);
    this.listen().catch((error) => console.error("bfcviz: a figure cannot follow its kernel", error));
  }

  async listen() {
    const { model } = this;
    const updates = await model.widget_manager.get_model(model.get("_updates_model_id"));
    const take = () => {
      const { attributes } = updates; // not unset(): the model would note each name, to send it back some day
      const numbers = Object.keys(attributes).map((name) => Number(/^update (\d+)$/.exec(name)?.[1] ?? NaN));
      for (const number of numbers.filter((each) => !isNaN(each)).sort((one, other) => one - other)) {
        const update = attributes[`update ${number}`];
        delete attributes[`update ${number}`];
        this.take(restored(update));
      }
    };
    updates.on("change", take);
    this.forget = () => updates.off("change", take);
    take();
  }

  take({ number, step, parts }) {
    const whole = parts.some((part) => part.data);
    if (!whole && number <= this.number) return; // it is in what this page began with
    if (!whole && number > this.number + 1) {
      if (!this.asking) this.ask();
      return;
    }
    for (const part of parts) this.change(part);
    Object.assign(this, { number, step });
    if (whole) {
      clearTimeout(this.asking);
      this.asking = 0;
    }
    this.keeping ||= setTimeout(() => this.keep(), KEEP_MS);
    for (const view of this.views) view.note(parts);
  }

  // Let the model have the newest state: a notebook that is saved with its widgets keeps it, and a page without a kernel
  // then shows the figure of the step that the header names. Nothing is sent.
  keep() {
    this.keeping = 0;
    this.model.set("_widget_data", sendable(this.data));
    this.model.set("_widget_layout", sendable(this.layout));
    this.model.set("_shown", { number: this.number, step: this.step });
  }

  // Ask Python for the whole figure, since a change is missing, until it comes.
  ask(wait = ASK_AGAIN_MS) {
    this.model.send({ do: "whole" });
    this.asking = setTimeout(() => this.ask(2 * wait), wait);
  }

  stop() {
    clearTimeout(this.asking);
    clearTimeout(this.keeping);
    this.forget();
  }

  change({ data, layout, restyle, relayout, traces, add, image, source }) {
    if (data) Object.assign(this, { data, layout });
    if (add) this.data.push(...add);
    if (source) this.data[image].source = source;
    for (const [path, value] of Object.entries(relayout ?? {})) assign(this.layout, path, value);
    for (const [path, values] of Object.entries(restyle ?? {})) {
      for (const [at, trace] of traces.entries()) {
        const value = Array.isArray(values) ? values[at % values.length] : values;
        if (value !== undefined) assign(this.data[trace], path, value);
      }
    }
  }
}

// One view of a figure in the page.
class View {
  constructor(figure, el) {
    Object.assign(this, { figure, el, plotly: null, drawn: false, drawing: false, removed: false });
    this.waiting = []; // the changes that are not drawn yet, update by update
    el.classList.add("bfcviz-figure");
    el.style.minHeight = `${figure.layout.height ?? 360}px`; // what is beside it finds its place
    this.say("status", "loading the figure …");
    el.addEventListener("mousemove", (event) => this.hover(event), { capture: true });
    this.ask = () => !figure.asking && figure.ask(); // the page found that another part shows another step
    el.addEventListener("bfcviz-ask", this.ask);
    figure.views.add(this);
    this.begin();
  }

  async begin() {
    try {
      await new Promise((done) => setTimeout(done)); // the page first shows what else came, and the line above
      this.plotly = await shared_plotly(this.figure.model);
    } catch (error) {
      return this.say("alert", `The figure cannot be drawn: plotly's script did not load (${error}). ${RELOAD}`);
    }
    return this.draw();
  }

  note(parts) {
    this.waiting.push(parts);
    this.draw();
  }

  async draw() {
    if (this.drawing || !this.plotly) return;
    this.drawing = true;
    try {
      while (!this.removed && (this.waiting.length || !this.drawn)) {
        const { step } = this.figure;
        const updates = this.waiting.splice(0);
        await this.draw_newest(updates);
        this.drawn = true;
        this.el.style.minHeight = `${this.figure.layout.height ?? 360}px`; // a tab may have no panels below the map
        this.say();
        if (step !== null) this.el.dataset.bfcvizStep = step;
        this.el.dispatchEvent(new CustomEvent("bfcviz-drawn", { bubbles: true, detail: { updates: updates.length } }));
      }
    } catch (error) {
      console.error(error);
      this.broken = true; // the next change draws the whole figure
      this.say("alert", `The figure cannot be drawn: ${error}. ${RELOAD}`);
    } finally {
      this.drawing = false;
    }
  }

  // Draw the newest state: by the changes of one update, or whole where more than one came meanwhile, or one has many
  // parts: plotly draws the figure for each of them.
  async draw_newest(updates) {
    const { plotly, el, figure } = this;
    const parts = updates.flat();
    const redrawing = updates.filter((update) => !update.every(is_image));
    const many = redrawing.flat().length > MOST_PARTS;
    if (!this.drawn) {
      const layout = { ...copied(figure.layout), height: figure.layout.height ?? 360 };
      const config = { ...figure.model.get("_config"), editSelection: false };
      await plotly.newPlot(el, copied(figure.data), layout, config);
    } else if (this.broken || redrawing.length > 1 || many || parts.some((part) => part.data)) {
      await plotly.react(el, copied(figure.data), copied(figure.layout));
      this.broken = false;
    } else {
      for (const part of copied(parts)) await draw_part(plotly, el, part);
    }
  }

  // Name the chunk under the mouse. Plotly takes the nearest point, and all within 3 pixels are equal: rows of a map of
  // many regions are lower. A row has no point only where the map has too many chunks, with points on an even grid.
  hover(event) {
    const { el, plotly } = this;
    if (event.buttons || event.target.dataset.subplot !== "xy") return;
    const number = el._fullData.findIndex(({ yaxis, mode, meta }) => yaxis === "y" && mode === "none" && meta);
    if (number < 0) return;
    const { xaxis, yaxis } = el._fullLayout;
    const { x, y } = el._fullData[number];
    const box = event.target.getBoundingClientRect();
    const [at, row] = [xaxis.p2d(event.clientX - box.x), Math.floor(yaxis.p2d(event.clientY - box.y))];
    let point = -1;
    let ends = [Infinity, -Infinity];
    for (let each = 0; each < x.length; each++) {
      if (Math.floor(y[each]) !== row) continue;
      ends = [Math.min(ends[0], x[each]), Math.max(ends[1], x[each])];
      if (point < 0 || Math.abs(x[each] - at) < Math.abs(x[point] - at)) point = each;
    }
    if (point < 0) return;
    event.stopPropagation(); // before plotly has it
    const reach = xaxis.p2d(REACH_PX) - xaxis.p2d(0);
    if (at < ends[0] - reach || at > ends[1] + reach) return plotly.Fx.unhover(el, event, "xy");
    const found = el.calcdata[number][point];
    const place = [found.x, found.y];
    [found.x, found.y] = [at, row + 0.5]; // where the text appears
    plotly.Fx.hover(el, [{ curveNumber: number, pointNumber: point }], "xy");
    [found.x, found.y] = place;
  }

  // Cover the figure with a sentence; without one, show it.
  say(role, sentence) {
    this.sentence?.remove();
    this.el.style.position = role ? "relative" : "";
    if (!role) return;
    this.sentence = document.createElement("div");
    this.sentence.className = "bfcviz-figure-sentence";
    this.sentence.setAttribute("role", role);
    this.sentence.textContent = sentence;
    this.sentence.style.cssText =
      "position:absolute;inset:0;z-index:1;padding:12px 0;font:13px system-ui,sans-serif;" +
      "background:var(--jp-layout-color0,#fff);color:var(--jp-ui-font-color1,#222)";
    this.el.append(this.sentence);
  }

  remove() {
    this.removed = true;
    this.figure.views.delete(this);
    this.el.removeEventListener("bfcviz-ask", this.ask);
    if (this.drawn) this.plotly.purge(this.el);
  }
}

const is_image = (part) => part.source !== undefined;

async function draw_part(plotly, el, part) {
  if (part.add) await plotly.addTraces(el, part.add);
  else if (is_image(part)) show_image(el, part);
  else await plotly.update(el, part.restyle, part.relayout, part.traces);
}

// Set the image in plotly's data and in the SVG: when plotly redraws the figure, it draws the same image.
function show_image(el, { image, subplot, source }) {
  const shown = el.querySelector(`.cartesianlayer .subplot.${subplot} .imagelayer image`);
  for (const traces of [el.data, el._fullData]) if (traces?.[image]) traces[image].source = source;
  shown?.setAttributeNS("http://www.w3.org/1999/xlink", "href", source);
}

// Set "xaxis.range[0]" of an object; null removes it.
function assign(target, path, value) {
  const keys = path.match(/[^.[\]]+/g);
  const last = keys.pop();
  let at = target;
  for (const [number, key] of keys.entries()) at = at[key] ??= /^\d+$/.test(keys[number + 1] ?? last) ? [] : {};
  if (value === null) delete at[last];
  else at[last] = value;
}

// What Python sent, with its arrays: {dtype, shape, value or buffer} -> Float64Array and so on.
const ARRAYS = { int8: Int8Array, int16: Int16Array, int32: Int32Array, uint8: Uint8Array, uint16: Uint16Array };
Object.assign(ARRAYS, { uint32: Uint32Array, float32: Float32Array, float64: Float64Array });

function restored(sent) {
  if (sent === "_undefined_") return undefined;
  if (Array.isArray(sent)) return sent.map(restored);
  if (sent === null || typeof sent !== "object" || ArrayBuffer.isView(sent)) return sent;
  const bytes = sent.buffer ?? sent.value;
  if (sent.dtype && sent.shape && bytes) {
    const { buffer, byteOffset, byteLength } = bytes;
    return new ARRAYS[sent.dtype](buffer.slice(byteOffset, byteOffset + byteLength)); // aligned
  }
  return Object.fromEntries(Object.entries(sent).map(([key, value]) => [key, restored(value)]));
}

// As Python would send it: the opposite of `restored`.
function sendable(value) {
  if (Array.isArray(value)) return value.map(sendable);
  if (value === null || typeof value !== "object") return value;
  const dtype = Object.keys(ARRAYS).find((name) => value instanceof ARRAYS[name]);
  if (dtype) return { dtype, shape: [value.length], value: new DataView(value.slice().buffer) };
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, sendable(each)]));
}

// For plotly, which writes into what it is given, such as the range of an axis; not into typed arrays.
function copied(value) {
  if (Array.isArray(value)) return value.map(copied);
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, copied(each)]));
}
