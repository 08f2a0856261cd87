// Move through the steps without waiting for the kernel: while an arrow key is held, and while the line at the step is
// dragged on the time strip.
//
// The page asks once for the events around the step (see bfcviz/dashboard/scrubbing.py) and shows the steps itself, with
// the scripts of the page without a kernel (scrubber.js). Python gets the step where the reader stops, and its figure
// takes the place of what the page painted. Without these events each step is asked of Python.

const WALKS = { ArrowLeft: -1, ArrowRight: 1 };
const GIVE_UP_MS = 15_000; // without a figure of the step: what Python last drew is shown again

function scrubbing(root, model, send, signal) {
  let scrubber = null;
  let asked = false; // for the events
  let refused = false; // until the key or the mouse is released
  let script = null; // promise of the module
  let target = null; // the step that the page shows or asks for; null: it shows what Python drew
  let requested = null; // the step that Python was asked for, until its figure is there
  let moving = false; // a key or the mouse is held
  let timer = 0;

  const ask = () => {
    if (asked || refused) return;
    asked = true;
    send({ do: "scrub", ...(script ? {} : { script: true }) });
  };
  const end = () => {
    clearTimeout(timer);
    scrubber?.hide();
    target = requested = null;
  };
  const request = () => {
    if (requested !== null || target === null) return;
    requested = target;
    send({ do: "step", step: target });
    clearTimeout(timer);
    timer = setTimeout(end, GIVE_UP_MS);
  };
  const show = (step) => {
    target = step;
    scrubber.show(step);
  };
  const drawn_step = () => Number(root.querySelector(".bfcviz-figure")?.dataset.bfcvizStep ?? NaN);
  const drawn = () => {
    const step = drawn_step();
    if (step === requested) requested = null;
    if (target === null) return;
    if (step !== target && !moving) request();
    if (step === target && !moving) end();
  };
  root.addEventListener("bfcviz-drawn", drawn, { signal });

  const take = async ({ scrub, data, module }) => {
    if (scrub === "none") {
      end();
      [asked, refused, scrubber] = [false, true, null];
    }
    if (scrub === "look") await scrubber?.take_look(JSON.parse(data));
    if (scrub !== "events" || !asked) return; // another view of this dashboard asked
    if (module) script ??= imported(module);
    const { Scrubber } = await script;
    const before = target;
    end();
    scrubber = await Scrubber.read(JSON.parse(data), root);
    root.dataset.bfcvizScrubs = `${scrubber.data.first} ${scrubber.data.last}`;
    if (moving && before !== null && scrubber.has(before)) show(before);
  };
  let taking = Promise.resolve(); // one message after the other
  const on_message = (message) => {
    if (message?.scrub) taking = taking.then(() => take(message)).catch((error) => console.error("bfcviz:", error));
  };
  model.on("msg:custom", on_message);
  signal.addEventListener("abort", () => {
    model.off("msg:custom", on_message);
    clearTimeout(timer);
  });

  const release = () => {
    refused = false;
    if (!moving) return;
    moving = false;
    if (target === drawn_step()) end();
    else request();
  };
  for (const type of ["keyup", "blur"]) addEventListener(type, release, { signal, capture: true });

  return {
    // Show the step before or after; false: Python must.
    key(event) {
      const way = WALKS[event.key];
      if (!way) return false;
      const shown = target ?? Number(root.querySelector(".bfcviz-step-line [data-bfcviz-step]")?.dataset.bfcvizStep);
      const step = scrubber?.ready ? scrubber.beside(shown, way) : null;
      if (step === null) {
        if (target !== null) send({ do: "step", step: target }); // Python goes on from there
        end();
        if (scrubber?.ready) [asked, scrubber] = [false, null]; // the step is outside of the events that the page has
        if (event.repeat) ask();
        return false;
      }
      show(step);
      moving = event.repeat;
      if (!moving) request();
      return true;
    },
    // While the mouse drags the line at the step.
    drag(position) {
      ask();
      moving = true;
      const step = Math.round(position);
      if (scrubber?.ready && scrubber.has(step)) return show(step);
      target = step;
      return request();
    },
    drop: release,
  };
}

async function imported(text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  try {
    return await import(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}
