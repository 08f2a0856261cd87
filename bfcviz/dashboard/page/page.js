// The page's side of a dashboard: sends user actions to Python, and fits the figure to the available width.
//
// Python answers through the widgets, except for the image of the moving map. So this works in every front end that
// has plotly's FigureWidget, and a lost message costs one click or one image.

const DEBOUNCE_MS = 45; // many wheel events in this time are one zoom
// The keys that Python handles: see KEYS in bfcviz/dashboard/page/messages.py.
const KEYS = new Set(["ArrowLeft", "ArrowRight", "Home", "End", " ", "n", "N", "o", "w", "k", "f", "z", "Escape"]);

export default {
  render({ model, el }) {
    const removed = new AbortController(); // aborted when the view is removed
    const send = (message) => model.send(message);
    let root = null;
    let plot = null;
    let width = 0; // of this element, in pixels
    let sent_width = 0; // the last one sent to Python

    const update = () => {
      root ??= el.closest(".bfcviz-dashboard");
      if (!root) return;
      if (!root.dataset.lmSuppressShortcuts) prepare_root(root, send, removed.signal);
      name_inputs(root);
      place_rows(root);
      const found = root.querySelector(".js-plotly-plot");
      if (found && found !== plot && found.on) listen_to_plot((plot = found), send);
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
      if (root) content_observer.observe(root, { childList: true, subtree: true });
    });
    size_observer.observe(el);
    const on_message = (message) => message.do === "image" && plot && show_image(plot, message);
    model.on("msg:custom", on_message);
    const theme_observer = new MutationObserver(() => send({ do: "theme", theme: theme() }));
    theme_observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
    send({ do: "theme", theme: theme() });
    return () => {
      removed.abort();
      model.off("msg:custom", on_message);
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

// Set the image in plotly's data and in the SVG: when plotly redraws the figure, it draws the same image.
function show_image(plot, { number, subplot, source }) {
  const image = plot.querySelector(`.cartesianlayer .subplot.${subplot} .imagelayer image`);
  for (const traces of [plot.data, plot._fullData]) if (traces?.[number]) traces[number].source = source;
  image?.setAttributeNS("http://www.w3.org/1999/xlink", "href", source);
}

function prepare_root(root, send, signal) {
  root.dataset.lmSuppressShortcuts = "true"; // else JupyterLab handles our keys as its own commands
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "bfcviz dashboard: arrow keys step through the events, space plays");
  root.addEventListener("keydown", (event) => on_key(event, send), { signal });
  root.addEventListener("click", (event) => run_marked(event, send), { signal });
  listen_to_scrolls(root, send, signal); // see scrolling.js
}

function on_key(event, send) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Enter" && run_marked(event, send)) return;
  if (event.target.closest("input, select, textarea, [role=slider], [contenteditable=true]")) return;
  if (event.key === " " && event.target.closest("button")) return;
  if (!KEYS.has(event.key)) return;
  event.preventDefault();
  event.stopPropagation();
  send({ do: "key", key: event.key });
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
    zoom_timer = setTimeout(() => send({ do: "zoom", ranges: axis_ranges(plot) }), DEBOUNCE_MS);
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
