// The page's side of a dashboard: tells Python what a person did there, and keeps the figure as wide as its place.
//
// Python answers through the widgets themselves, but for the image of a map that moves. So it works in every front
// end that has plotly's FigureWidget, and a message that is lost costs one click or one image.

const SETTLED_MS = 45; // a storm of wheel events is one zoom
// Those that Python knows: bfcviz/dashboard/page/dispatch.py says what each does.
const KEYS = new Set(["ArrowLeft", "ArrowRight", "Home", "End", " ", "n", "N", "o", "w", "k", "f", "z", "Escape"]);

export default {
  render({ model, el }) {
    const gone = new AbortController();
    const send = (message) => model.send(message);
    let root = null;
    let plot = null;
    let width = 0; // of this place; told once it is known, and when it changes
    let told = 0;

    const look = () => {
      root ??= el.closest(".bfcviz-dashboard");
      if (!root) return;
      if (!root.dataset.lmSuppressShortcuts) prepare(root, send, gone.signal);
      name_inputs(root);
      const found = root.querySelector(".js-plotly-plot");
      if (found && found !== plot && found.on) listen((plot = found), send);
      if (width) fit(plot, width);
    };
    let due = 0; // once a frame at most
    const look_soon = () => {
      due ||= requestAnimationFrame(() => {
        due = 0;
        look();
      });
    };
    const changed = new MutationObserver(look_soon);
    const resized = new ResizeObserver(([entry]) => {
      width = Math.round(entry.contentRect.width);
      if (width && Math.abs(told - width) > 8) send({ do: "width", width: (told = width) });
      look();
      if (root) changed.observe(root, { childList: true, subtree: true });
    });
    resized.observe(el);
    const told_of = (message) => message.do === "image" && plot && show_image(plot, message);
    model.on("msg:custom", told_of);
    const themed = new MutationObserver(() => send({ do: "theme", theme: theme() }));
    themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
    send({ do: "theme", theme: theme() });
    return () => {
      gone.abort();
      model.off("msg:custom", told_of);
      for (const observer of [changed, resized, themed]) observer.disconnect();
    };
  },
};

function theme() {
  const light = document.body.dataset.jpThemeLight;
  if (light !== undefined) return light === "false" ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

// A FigureWidget measures itself before it lies in the page, and again only when the browser's window changes.
// What plotly believes is asked, not the page, which would be laid out for it after every picture.
function fit(plot, width) {
  const drawn = plot?._fullLayout?.width;
  if (!drawn || Math.abs(drawn - width) <= 2) return;
  delete plot.layout.width; // plotly fixes the width as well, whenever it is told a height
  window.dispatchEvent(new Event("resize"));
}

// As plotly draws an image of this kind: where it draws the figure anew it finds the same.
function show_image(plot, { number, subplot, source }) {
  const image = plot.querySelector(`.cartesianlayer .subplot.${subplot} .imagelayer image`);
  for (const traces of [plot.data, plot._fullData]) if (traces?.[number]) traces[number].source = source;
  image?.setAttributeNS("http://www.w3.org/1999/xlink", "href", source);
}

function prepare(root, send, signal) {
  root.dataset.lmSuppressShortcuts = "true"; // or the lab would take our keys for its own commands
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "bfcviz dashboard: arrow keys step through the events, space plays");
  root.addEventListener("keydown", (event) => on_key(event, send), { signal });
  root.addEventListener("click", (event) => on_marked(event, send), { signal });
  root.addEventListener("wheel", (event) => on_wheel(event, send), { signal, passive: false });
}

function on_key(event, send) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Enter" && on_marked(event, send)) return;
  if (event.target.closest("input, select, textarea, [role=slider], [contenteditable=true]")) return;
  if (event.key === " " && event.target.closest("button")) return;
  if (!KEYS.has(event.key)) return;
  event.preventDefault();
  event.stopPropagation();
  send({ do: "key", key: event.key });
}

// Anything that carries data-bfcviz says itself what it does.
function on_marked(event, send) {
  const marked = event.target.closest("[data-bfcviz]");
  if (!marked) return false;
  event.preventDefault();
  send(JSON.parse(marked.dataset.bfcviz));
  return true;
}

let turned = 0;
function on_wheel(event, send) {
  const list = event.target.closest("[data-bfcviz-list]");
  if (!list) return;
  event.preventDefault();
  if (!turned) {
    setTimeout(() => {
      const rows = Math.round(turned / 30) || Math.sign(turned);
      turned = 0;
      if (rows) send({ do: "scroll", list: list.dataset.bfcvizList, rows });
    }, SETTLED_MS);
  }
  turned += event.deltaY || 1e-9;
}

function listen(plot, send) {
  let last = null;
  let waiting = 0;
  plot.on("plotly_click", (event) => {
    const { target, detail, clientX, clientY } = event.event ?? {};
    last = target?.dataset?.subplot ?? null;
    if (last === null || detail > 1) return;
    // Not the event's own xvals: they are of the first panel's width.
    const { xaxis, yaxis } = plot._fullLayout._plots[last];
    const area = target.getBoundingClientRect();
    send({ do: "click", panel: number(last), x: xaxis.p2d(clientX - area.x), y: yaxis.p2d(clientY - area.y) });
  });
  plot.on("plotly_doubleclick", () => last !== null && send({ do: "whole", panel: number(last) }));
  plot.on("plotly_relayout", (change) => {
    if (!Object.keys(change ?? {}).some((key) => key.includes(".range"))) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => send({ do: "zoom", ranges: ranges(plot) }), SETTLED_MS);
  });
}

// "x3y3" -> 3
function number(subplot) {
  return Number(/^x(\d*)y/.exec(subplot)?.[1] || 1);
}

function ranges(plot) {
  const found = {};
  for (const subplot of Object.keys(plot._fullLayout._plots)) {
    const { xaxis, yaxis } = plot._fullLayout._plots[subplot];
    found[number(subplot)] = { x: [...xaxis.range], y: [...yaxis.range] };
  }
  return found;
}

// ipywidgets writes what an input is for on a label beside it, where screen readers do not look.
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
