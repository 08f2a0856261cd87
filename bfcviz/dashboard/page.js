// The page's side of a dashboard: sends user actions to Python, and fits the figure to the available width.
//
// Python answers through the other widgets. So a lost message costs one click.

const DEBOUNCE_MS = 45; // many wheel events in this time are one zoom
const HOVER_MS = 60; // the mouse rests so long on a holder before it is pointed at
const DOUBLE_CLICK_MS = 250;
const REST_MS = 400; // a step shown for so long is read out: not each one while a key is held
const LATE_MS = 1000; // header and figure show different steps for so long: the page says so
const LOST_MS = 10_000; // and after so long again, the newest state does not come by itself
// The keys that Python handles: see KEYS in inspector.py.
const KEYS = new Set(["ArrowLeft", "ArrowRight", "Home", "End", " ", "n", "N", "o", "w", "k", "f", "z", "Escape"]);

export default {
  render({ model, el }) {
    const removed = new AbortController(); // aborted when the view is removed
    const send = (message) => model.send(message);
    let root = null;
    let plot = null;
    let check_steps = null;
    let speak = null;
    let show_cursor = null;
    let width = 0; // of this element, in pixels
    let sent_width = 0; // the last one sent to Python

    const update = () => {
      root ??= el.closest(".bfcviz-dashboard");
      if (!root) return;
      if (!root.dataset.lmSuppressShortcuts) prepare_root(root, model, removed.signal);
      name_inputs(root);
      place_rows(root);
      (check_steps ??= watch_steps(root, send, removed.signal))();
      (speak ??= speaker(root, removed.signal))();
      const found = root.querySelector(".js-plotly-plot");
      if (found && found !== plot && found.on) {
        listen_to_plot((plot = found), send);
        plot.setAttribute("role", "figure");
        plot.setAttribute("aria-label", "pictures of the heap; the text above, the list and the tables tell the same");
      }
      if (plot) (show_cursor ??= map_cursor(root, send))(plot);
      if (width) fit_width(plot, width);
    };
    let requested_frame = 0; // at most one update per animation frame
    const schedule_update = () => {
      requested_frame ||= requestAnimationFrame(() => {
        requested_frame = 0;
        update();
      });
    };
    const content_observer = new MutationObserver(schedule_update);
    const size_observer = new ResizeObserver(([entry]) => {
      width = Math.round(entry.contentRect.width);
      if (width && Math.abs(sent_width - width) > 8) send({ do: "width", width: (sent_width = width) });
      update();
      if (!root) return;
      root.style.setProperty("--bfcviz-width", width); // what is printed keeps it
      content_observer.observe(root, { childList: true, subtree: true });
    });
    size_observer.observe(el);
    const theme_observer = new MutationObserver(() => send({ do: "theme", theme: theme() }));
    theme_observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
    send({ do: "theme", theme: theme() });
    return () => {
      removed.abort();
      for (const observer of [content_observer, size_observer, theme_observer]) observer.disconnect();
    };
  },
};

function theme() {
  const light = document.body.dataset.jpThemeLight;
  if (light !== undefined) return light === "false" ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

// A FigureWidget measures its width before it is in the page, and again only when the browser window changes.
// This reads the width that plotly knows: reading it from the page would force a page layout after every frame.
function fit_width(plot, width) {
  const drawn = plot?._fullLayout?.width;
  if (!drawn || Math.abs(drawn - width) <= 2) return;
  delete plot.layout.width; // plotly also fixes the width when a height is set
  window.dispatchEvent(new Event("resize"));
}

// Never show an old picture as the present one: header and figure name the step that they show. Where these differ for
// longer than a drawing takes, a sentence covers the figure, and both ask Python for their newest state. Either may be
// the older one: a page that reloads or reconnects asks for the state of all widgets, and where Python draws meanwhile,
// the answer brings texts that are older than what the page has.
function watch_steps(root, send, signal) {
  let since = 0; // when they began to differ
  let timer = 0;
  let cover = null;
  let drawn_before;
  const rest = () => {
    clearTimeout(timer);
    cover?.remove();
    [since, cover] = [0, null];
  };
  const check = () => {
    const figure = root.querySelector(".bfcviz-figure");
    const wanted = root.querySelector(".bfcviz-step-line [data-bfcviz-step]")?.dataset.bfcvizStep;
    const drawn = figure?.dataset.bfcvizStep;
    if (drawn !== drawn_before) rest(); // it follows, if late: only a figure that stands still is covered
    drawn_before = drawn;
    // A figure that draws nothing yet, or cannot, says so itself.
    if (!figure || wanted === drawn || figure.querySelector(".bfcviz-figure-sentence")) return rest();
    since ||= performance.now();
    const waited = performance.now() - since;
    const lost = waited >= LATE_MS + LOST_MS;
    clearTimeout(timer);
    if (!lost) timer = setTimeout(check, (waited < LATE_MS ? LATE_MS : LATE_MS + LOST_MS) - waited + 1);
    if (waited < LATE_MS) return;
    if (!cover) {
      cover = document.createElement("div");
      cover.className = "bfcviz-late";
      cover.setAttribute("role", "status");
      figure.after(cover); // below the panes beside the figure
      figure.dispatchEvent(new Event("bfcviz-ask"));
      send({ do: "texts" });
    }
    const step = wanted ?? drawn;
    const sentence = lost ? `Not all of step ${step} has arrived. Reload this page.` : `loading step ${step} …`;
    if (cover.textContent !== sentence) cover.textContent = sentence;
  };
  root.addEventListener("bfcviz-drawn", check, { signal });
  signal.addEventListener("abort", rest);
  return check;
}

// Read out the step at which the view rests. Its line is drawn anew at each step, which screen readers do not follow:
// this element stays, and only its text changes.
function speaker(root, signal) {
  const spoken = document.createElement("div");
  spoken.className = "bfcviz-spoken";
  spoken.setAttribute("role", "status");
  root.append(spoken);
  let timer = 0;
  let said = "";
  signal.addEventListener("abort", () => clearTimeout(timer));
  return () => {
    const line = root.querySelector(".bfcviz-step-line summary")?.textContent ?? "";
    if (line === said) return;
    said = line;
    clearTimeout(timer);
    timer = setTimeout(() => (spoken.textContent = line), REST_MS);
  };
}

// The keys on the region map: its arrow keys go from chunk to chunk, and Python says which one they are at. Only Tab
// leads there: after a click on the map the arrow keys step, as everywhere else.
const WAYS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down", Enter: "choose", " ": "choose" };

function map_cursor(root, send) {
  const map = document.createElement("div");
  map.className = "bfcviz-map";
  map.tabIndex = 0;
  map.setAttribute("role", "application"); // else a screen reader keeps the arrow keys
  map.setAttribute("aria-label", "region map: arrow keys go from chunk to chunk, Enter selects one, Escape leaves the map");
  const spoken = document.createElement("span");
  spoken.className = "bfcviz-spoken";
  spoken.setAttribute("role", "status");
  map.append(spoken);
  const go = (way) => send({ do: "cursor", way });
  map.addEventListener("focus", () => go("here"));
  map.addEventListener("blur", ({ relatedTarget }) => relatedTarget && go("leave")); // null also where the page is closed
  map.addEventListener("keydown", (event) => {
    const { key } = event;
    if (event.ctrlKey || event.altKey || event.metaKey || !(key in WAYS || key === "Escape")) return;
    event.preventDefault();
    event.stopPropagation(); // else it steps
    if (key === "Escape") focus(root);
    else go(WAYS[key]);
  });
  let shown = "";
  return (plot) => {
    const stage = plot.querySelector(".plot-container");
    if (!stage) return; // plotly has removed it
    if (map.parentElement !== stage) stage.append(map);
    const told = document.activeElement === map ? root.querySelector("[data-bfcviz-cursor]") : null;
    const { xaxis, yaxis } = plot._fullLayout; // the map is the first panel
    const boxes = JSON.parse(told?.dataset.bfcvizCursor ?? "[]").map(([left, right, row]) => {
      const [from, to] = [left, right].map((share) => xaxis.d2p(share * xaxis.maxallowed));
      const [top, bottom] = [row, row + 1].map((edge) => yaxis.d2p(edge));
      return `left:${from}px;top:${top}px;width:${Math.max(to - from, 1)}px;height:${Math.max(bottom - top, 1)}px`;
    });
    const [x, y] = [xaxis, yaxis].map(({ _offset, _length }) => [_offset, _length]);
    const wanted = JSON.stringify([boxes, told?.textContent, x, y]);
    if (wanted === shown) return; // each change here calls this once more
    shown = wanted;
    map.style.cssText = `left:${x[0]}px;top:${y[0]}px;width:${x[1]}px;height:${y[1]}px`;
    if (told) spoken.textContent = told.textContent;
    const elements = boxes.map((style) => {
      const box = document.createElement("i");
      box.style.cssText = style;
      return box;
    });
    map.replaceChildren(spoken, ...elements);
  };
}

// Say that the view is dead: after a restart or the end of the kernel, ipywidgets only marks each widget with a class;
// where the server ended or the network failed, it does nothing.
function watch_kernel(root, model, signal) {
  const { kernel } = model.widget_manager ?? {};
  let told = null;
  let timer = 0;
  const say = (sentence) => {
    if (sentence === (told?.textContent ?? "")) return;
    told?.remove();
    told = null;
    if (!sentence) return;
    told = document.createElement("div");
    told.className = "bfcviz-dead";
    told.setAttribute("role", "alert");
    told.textContent = sentence;
    root.prepend(told);
  };
  const check = () => {
    clearTimeout(timer);
    const status = kernel?.connectionStatus ?? "connected";
    const again = document.body.dataset.voila ? "Load the page again." : "Run the cell again."; // its pages have no cell
    if (root.classList.contains("jupyter-widgets-disconnected") || status === "disconnected") {
      say(`The kernel of this view restarted or ended: nothing here answers. ${again}`);
    } else if (status === "connected") {
      say("");
    } else {
      timer = setTimeout(() => say("This page has lost its server: nothing here answers until it is back."), LATE_MS);
    }
  };
  kernel?.connectionStatusChanged?.connect(check);
  const observer = new MutationObserver(check);
  observer.observe(root, { attributes: true, attributeFilter: ["class"] });
  signal.addEventListener("abort", () => {
    observer.disconnect();
    clearTimeout(timer);
    kernel?.connectionStatusChanged?.disconnect(check);
  });
  check();
}

function prepare_root(root, model, signal) {
  root.dataset.lmSuppressShortcuts = "true"; // else JupyterLab handles our keys as its own commands
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "bfcviz dashboard: arrow keys step through the events, space plays");
  const send = without_backlog(root, (message) => model.send(message), signal);
  const scrub = scrubbing(root, model, send, signal); // see scrubbing.js
  root.addEventListener("keydown", (event) => on_key(event, send, scrub), { signal });
  listen_to_release(root, send, signal);
  listen_to_clicks(root, send, signal);
  root.addEventListener("wheel", guard_wheel, { signal, capture: true, passive: false });
  listen_to_scrolls(root, send, signal); // see scrolling.js
  root.addEventListener("change", (event) => event.target.matches("select") && focus(root), { signal });
  keep_keys(root, signal);
  watch_kernel(root, model, signal);
  listen_to_holders(root, send, signal);
  listen_to_strip(root, send, scrub, signal);
  // In a page without a notebook (Voila calls its whole body one) nothing else wants the keys.
  const notebook = root.closest(".jp-Notebook");
  if (notebook && notebook !== document.body) return;
  const takes = (event) => event.target === document.body && root === document.querySelector(".bfcviz-dashboard");
  document.addEventListener("keydown", (event) => takes(event) && on_key(event, send, scrub), { signal });
}

function focus(element) {
  element.focus({ preventScroll: true });
}

const TYPED = "input, select, textarea, [role=slider], [contenteditable=true]"; // these need the keys themselves

// A click gives the keys to the dashboard, and a new drawing does not take them away.
function keep_keys(root, signal) {
  let focused = null; // the element in this dashboard that had the focus last; null: it is elsewhere
  const note = ({ target }) => (focused = root.contains(target) ? target : null);
  for (const type of ["focusin", "mousedown"]) document.addEventListener(type, note, { signal, capture: true });
  const click = ({ target }) => {
    if (target.closest(TYPED)) return;
    focus(root); // plotly prevents the browser's own move of the focus
    setTimeout(() => focus(root)); // the browser moves it to a button, which the answer to the click may remove
  };
  root.addEventListener("mousedown", click, { signal, capture: true });
  const observer = new MutationObserver(() => {
    if (!focused || focused.isConnected || document.activeElement !== document.body) return;
    const { bfcviz } = focused.dataset;
    const again = bfcviz && root.querySelector(`${focused.localName}[data-bfcviz="${CSS.escape(bfcviz)}"]`);
    focus(again || root);
  });
  observer.observe(root, { childList: true, subtree: true });
  signal.addEventListener("abort", () => observer.disconnect());
}

// Plotly would zoom at each turn of the wheel: it gets only those with Ctrl. The page scrolls at the others.
function guard_wheel(event) {
  if (!event.target.closest(".js-plotly-plot")) return;
  if (event.ctrlKey) event.preventDefault(); // else the browser zooms the whole page
  else event.stopPropagation();
}

// Send what the mouse points at once it rests there, and once it has left.
function listen_to_holders(root, send, signal) {
  let pointed = null; // the message of the element under the mouse, as text
  let sent = null;
  let timer = 0;
  const point = (text) => {
    if (text === pointed) return;
    pointed = text;
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (pointed !== sent) send((sent = pointed) ? JSON.parse(pointed) : { do: "hover" });
    }, HOVER_MS);
  };
  const found = (event) => event.target.closest("[data-bfcviz-hover]")?.dataset.bfcvizHover ?? null;
  root.addEventListener("mouseover", (event) => point(found(event)), { signal });
  root.addEventListener("mouseleave", () => point(null), { signal });
}

// The time strip: a drag chooses, moves or resizes the window of steps, or moves the line at the step; a click goes to a
// step.

const NEAR_PX = 6; // this close to an end of the window, a drag moves the end
const LINE_PX = 3; // this close to the line at the step, a drag moves it: also where the window ends there
const STILL_PX = 3; // a shorter drag is a click

function listen_to_strip(root, send, scrub, signal) {
  let click_timer = 0;
  let clicked = null; // the message of a click that may be the first half of a double click
  const finish_click = () => {
    clearTimeout(click_timer);
    if (clicked) send(clicked);
    clicked = null;
  };
  addEventListener("keydown", finish_click, { signal, capture: true }); // a key must not overtake it
  const strip_under = (event) => {
    const area = event.target;
    if (!area.classList.contains("nsewdrag")) return null;
    const strip = strip_of(root.querySelector(".js-plotly-plot"));
    return strip && area.dataset.subplot === strip.subplot ? { ...strip, area } : null;
  };
  const at = (event, strip) => {
    const box = strip.area.getBoundingClientRect();
    return Math.min(Math.max(event.clientX - box.x, 0), box.width);
  };
  root.addEventListener(
    "mousemove",
    (event) => {
      const strip = event.buttons ? null : strip_under(event);
      if (strip) strip.area.style.cursor = CURSORS[grip(at(event, strip), strip)];
    },
    { signal },
  );
  root.addEventListener("dblclick", (event) => {
    if (!strip_under(event)) return;
    clearTimeout(click_timer);
    clicked = null;
    send({ do: "brush" });
  }, { signal });
  root.addEventListener(
    "mousedown",
    (event) => {
      const strip = event.button ? null : strip_under(event);
      if (!strip) return;
      event.stopPropagation(); // plotly would zoom
      event.preventDefault(); // else the drag selects text
      const begin = at(event, strip);
      const held = grip(begin, strip);
      const brush = new Brush(root, strip);
      let dragged_step = false;
      let ends = null; // of the new window in pixels; null: the mouse has not moved yet
      const move = (moved) => {
        if (!moved.buttons) return drop(); // the release of the mouse was lost
        const now = at(moved, strip);
        if (held === "step") {
          if (dragged_step ||= Math.abs(now - begin) > STILL_PX) scrub.drag(strip.axis.p2d(now));
        } else if (ends || Math.abs(now - begin) > STILL_PX) brush.show((ends = dragged(held, begin, now, strip)));
      };
      const drop = () => {
        removeEventListener("mousemove", move);
        removeEventListener("mouseup", drop);
        if (dragged_step) scrub.drop();
        else if (ends) {
          brush.drop();
          send({ do: "brush", from: strip.axis.p2d(ends[0]), to: strip.axis.p2d(ends[1]) });
        } else {
          const go = { do: "click", panel: panel_number(strip.subplot), x: strip.axis.p2d(begin), y: 0 };
          clearTimeout(click_timer);
          clicked = !strip.ends || event.detail === 1 ? go : null;
          if (strip.ends) click_timer = setTimeout(finish_click, DOUBLE_CLICK_MS);
          else finish_click();
        }
      };
      addEventListener("mousemove", move, { signal });
      addEventListener("mouseup", drop, { signal, once: true });
    },
    { signal, capture: true },
  );
}

const CURSORS = { left: "ew-resize", right: "ew-resize", step: "col-resize", window: "grab", empty: "crosshair" };

// The part of the strip at this position: the line at the step, an end of the window, the window, or none.
function grip(x, { ends, line }) {
  if (line !== null && Math.abs(x - line) <= LINE_PX) return "step";
  if (!ends) return "empty";
  if (Math.abs(x - ends[0]) <= NEAR_PX) return "left";
  if (Math.abs(x - ends[1]) <= NEAR_PX) return "right";
  return ends[0] < x && x < ends[1] ? "window" : "empty";
}

// The ends of the window after a drag, in pixels.
function dragged(held, begin, now, { ends, axis }) {
  if (held === "left") return [now, ends[1]].sort(ascending);
  if (held === "right") return [ends[0], now].sort(ascending);
  if (held === "empty") return [begin, now].sort(ascending);
  const by = Math.min(Math.max(now - begin, -ends[0]), axis._length - ends[1]);
  return [ends[0] + by, ends[1] + by];
}

const ascending = (one, other) => one - other;

// The strip's subplot, its x axis, the ends of its window in pixels (null: it shows all steps), and the line at the step
// (null: the axis does not count steps).
function strip_of(plot) {
  // Not the full data: there, a trace without points is not visible.
  const trace = plot?.data?.find((each) => each.name === "shown window" && each.visible !== false);
  if (!trace) return null;
  const subplot = trace.xaxis + trace.yaxis;
  const axis = plot._fullLayout._plots[subplot].xaxis;
  const ends = trace.x?.length ? [axis.d2p(trace.x[0]), axis.d2p(trace.x[trace.x.length - 2])] : null;
  const at_step = plot.data.find((each) => each.name === "this step" && each.xaxis === trace.xaxis);
  const line = at_step?.meta === "step" && isFinite(at_step.x?.[0]) ? axis.d2p(at_step.x[0]) : null;
  return { plot, subplot, axis, ends, line };
}

// What a drag has chosen so far; it stays until the figure shows it.
class Brush {
  constructor(root, { plot, area }) {
    this.plot = plot;
    this.stage = root.querySelector(".bfcviz-stage");
    this.area = area;
    this.element = document.createElement("div");
    this.element.className = "bfcviz-brush";
  }
  show([left, right]) {
    const box = this.area.getBoundingClientRect();
    const origin = this.stage.getBoundingClientRect();
    const { style } = this.element;
    [style.left, style.width] = [`${box.x - origin.x + left}px`, `${Math.max(right - left, 1)}px`];
    [style.top, style.height] = [`${box.y - origin.y}px`, `${box.height}px`];
    this.stage.append(this.element);
  }
  drop() {
    const remove = () => this.element.remove();
    this.plot.once("plotly_afterplot", remove);
    setTimeout(remove, 2000); // the window is the one before: nothing is drawn
  }
}

// A held key repeats faster than figures are drawn: two repetitions at most are on their way, one in the kernel and one
// in the page, and the next is sent as soon as a figure is there. So the view stops where the key is released.
const ON_THEIR_WAY = 2;
function without_backlog(root, send, signal) {
  let sent = []; // when each key was sent whose figure is not drawn
  let waiting = null; // the last repetition, if it was not sent
  const pass = (message) => {
    waiting = null;
    if (message.do === "key") sent.push(performance.now());
    send(message);
  };
  const drawn = ({ detail }) => {
    sent.splice(0, detail.updates);
    if (waiting) pass(waiting);
  };
  root.addEventListener("bfcviz-drawn", drawn, { signal });
  return (message, repeated = false) => {
    sent = sent.filter((time) => performance.now() - time < LATE_MS);
    if (repeated && sent.length >= ON_THEIR_WAY) waiting = message;
    else pass(message); // also a release: nothing waits after it
  };
}

function on_key(event, send, scrub) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Enter" && run_marked(event, send)) return;
  if (event.target.closest(TYPED)) return;
  if (event.key === " " && event.target.closest("button")) return;
  if (!KEYS.has(event.key)) return;
  event.preventDefault();
  event.stopPropagation();
  if (scrub.key(event)) return;
  send(event.repeat ? { do: "key", key: event.key, held: true } : { do: "key", key: event.key }, event.repeat);
}

// While a key is held, Python draws the least; once it is released, or the page loses the keys, it draws the rest.
function listen_to_release(root, send, signal) {
  let held = false;
  const note = (event) => (held ||= event.repeat && KEYS.has(event.key));
  const release = () => {
    if (held) send({ do: "release" });
    held = false;
  };
  addEventListener("keydown", note, { signal, capture: true });
  for (const type of ["keyup", "blur"]) addEventListener(type, release, { signal, capture: true });
}

// An element may be drawn anew between the press of the mouse and its release: then the browser sends no click.
function listen_to_clicks(root, send, signal) {
  let pressed = null;
  const press = ({ button, target, clientX, clientY }) =>
    (pressed = button ? null : { marked: target.closest("[data-bfcviz]"), x: clientX, y: clientY });
  const release = ({ clientX, clientY }) => {
    const { marked, x, y } = pressed ?? {};
    const still = Math.hypot(clientX - x, clientY - y) <= STILL_PX;
    if (marked && !marked.isConnected && still) send(JSON.parse(marked.dataset.bfcviz));
    pressed = null;
  };
  root.addEventListener("mousedown", press, { signal });
  root.addEventListener("mouseup", release, { signal });
  root.addEventListener("click", (event) => {
    const copy = event.target.closest("[data-bfcviz-copy]");
    if (copy) copy_lines(copy);
    else run_marked(event, send);
  }, { signal });
}

// Copy the lines beside a button, or select them where the page may not write to the clipboard.
function copy_lines(button) {
  const lines = [...button.closest(".stack").querySelectorAll("pre")];
  const select = () => {
    const range = document.createRange();
    range.setStartBefore(lines[0]);
    range.setEndAfter(lines.at(-1));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  };
  const written = navigator.clipboard?.writeText(lines.map((each) => each.textContent).join("\n"));
  if (!written) return select();
  written.then(() => (button.textContent = "copied"), select);
}

// Send the message in the data-bfcviz attribute of the element; false if there is none.
function run_marked(event, send) {
  const marked = event.target.closest("[data-bfcviz]");
  if (!marked) return false;
  event.preventDefault();
  send(JSON.parse(marked.dataset.bfcviz));
  return true;
}

function listen_to_plot(plot, send) {
  let last = null; // the subplot of the last click
  let zoom_timer = 0;
  plot.on("plotly_click", (event) => {
    const { target, detail, clientX, clientY } = event.event ?? {};
    last = target?.dataset?.subplot ?? null;
    if (last === null || detail > 1) return;
    // Not the event's xvals: plotly computes them with the width of the first panel.
    const { xaxis, yaxis } = plot._fullLayout._plots[last];
    const area = target.getBoundingClientRect();
    send({ do: "click", panel: panel_number(last), x: xaxis.p2d(clientX - area.x), y: yaxis.p2d(clientY - area.y) });
  });
  plot.on("plotly_doubleclick", () => last !== null && send({ do: "whole", panel: panel_number(last) }));
  plot.on("plotly_relayout", (change) => {
    if (!Object.keys(change ?? {}).some((key) => key.includes(".range"))) return;
    clearTimeout(zoom_timer);
    const ranges = axis_ranges(plot); // now: until it is sent, Python's answer to an earlier zoom may change them
    zoom_timer = setTimeout(() => send({ do: "zoom", ranges }), DEBOUNCE_MS);
  });
}

// "x3y3" -> 3
function panel_number(subplot) {
  return Number(/^x(\d*)y/.exec(subplot)?.[1] || 1);
}

function axis_ranges(plot) {
  const found = {};
  for (const subplot of Object.keys(plot._fullLayout._plots)) {
    const { xaxis, yaxis } = plot._fullLayout._plots[subplot];
    found[panel_number(subplot)] = { x: [...xaxis.range], y: [...yaxis.range] };
  }
  return found;
}

// ipywidgets puts the name of an input into a label beside it, which screen readers do not read.
const UNNAMED = ["input", "select", "textarea", "[role=slider]"].map((each) => `${each}:not([aria-label])`).join();
function name_inputs(root) {
  for (const input of root.querySelectorAll(UNNAMED)) {
    let holder = input.parentElement;
    while (holder !== root && !holder.querySelector("label")) holder = holder.parentElement;
    const label = holder.querySelector("label");
    const texts = new Set([label?.textContent, label?.title || input.title].filter(Boolean));
    if (texts.size) input.setAttribute("aria-label", [...texts].join(": "));
  }
}
