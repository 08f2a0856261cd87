// Move through the steps without waiting for the kernel: while an arrow key is held, and while the line at the step is
// dragged on the time strip.
//
// The page asks once for the events around the step (see bfcviz/dashboard/scrubbing.py) and shows the steps itself, with
// the scripts of the page without a kernel (scrubber.js). Python gets the step where the reader stops, and its figure
// takes the place of what the page painted. Without these events each step is asked of Python.

const WALKS = { ArrowLeft: -1, ArrowRight: 1 };
const GIVE_UP_MS = 15_000; // without a figure of the step: what Python last drew is shown again
const ANSWER_MS = 1000; // what only Python answers takes no longer: a step of the page must not overtake it

function scrubbing(root, model, send, signal) {
  let scrubber = null;
  let asked = false; // for the events
  let waits = false; // for them: those that another view of this dashboard asked for are not for this one
  let refused = false; // until the key or the mouse is released
  let script = null; // promise of the module
  let target = null; // the step that the page shows or asks for; null: it shows what Python drew
  let requested = null; // the step that Python was asked for, until its figure is there
  let moving = false; // a key or the mouse is held
  let left = -Infinity; // when Python was last told something that only it answers
  let timer = 0;
  let overtaken = 0; // timer: a figure of another step came while one was awaited

  const ask = () => {
    if (asked || refused) return;
    asked = waits = true;
    send({ do: "scrub", ...(script ? {} : { script: true }) });
  };
  const end = () => {
    clearTimeout(timer);
    clearTimeout(overtaken);
    overtaken = 0;
    scrubber?.hide();
    target = requested = null;
  };
  const at = () => root.querySelector(".bfcviz-step-line [data-bfcviz-step]")?.dataset ?? {}; // Python
  const drawn_step = () => Number(root.querySelector(".bfcviz-figure")?.dataset.bfcvizStep ?? NaN);
  const request = () => {
    if (requested !== null || target === null) return;
    if (target === drawn_step()) {
      if (!moving) end();
      return;
    }
    requested = target;
    send({ do: "step", step: target });
    clearTimeout(timer);
    timer = setTimeout(end, GIVE_UP_MS);
  };
  // Let Python go on from the step shown.
  const hand_over = () => {
    if (target !== null && target !== requested) send({ do: "step", step: target });
    end();
  };
  const leave = () => {
    hand_over();
    left = performance.now();
  };
  const drawn = () => {
    if (drawn_step() === requested) requested = null;
    if (moving && scrubber?.shown) {
      scrubber.hide(); // it lay over the figure before
      scrubber.show(target);
    } else if (requested === null) request();
    else if (!moving) overtaken ||= setTimeout(end, ANSWER_MS);
  };
  root.addEventListener("bfcviz-drawn", drawn, { signal });
  root.addEventListener("mousedown", leave, { signal, capture: true });

  const take = async ({ scrub, data, module }) => {
    if (scrub === "none") {
      if (scrubber) end(); // it was of another heap
      [asked, waits, refused, scrubber] = [false, false, true, null];
    }
    if (scrub === "look") await scrubber?.take_look(JSON.parse(data));
    if (scrub !== "events" || !waits || !(module || script)) return;
    waits = false;
    if (module) script ??= imported(module);
    const { Scrubber } = await script;
    const made = await Scrubber.read(JSON.parse(data), root);
    scrubber?.hide();
    scrubber = made;
    root.dataset.bfcvizScrubs = `${made.data.first} ${made.data.last}`;
    if (moving && target !== null && made.ready && made.has(target)) made.show(target);
  };
  let taking = Promise.resolve(); // one message after the other
  const on_message = (message) => {
    if (message?.scrub) taking = taking.then(() => take(message)).catch((error) => console.error("bfcviz:", error));
  };
  model.on("msg:custom", on_message);
  signal.addEventListener("abort", () => {
    model.off("msg:custom", on_message);
    for (const each of [timer, overtaken]) clearTimeout(each);
  });

  const release = () => {
    refused = false;
    if (!moving) return;
    moving = false;
    request();
  };
  for (const type of ["keyup", "blur"]) addEventListener(type, release, { signal, capture: true });

  return {
    // Show the step before or after; false: Python must.
    key(event) {
      const way = WALKS[event.key];
      if (!way) {
        leave();
        return false;
      }
      const has_figure = !Number.isNaN(drawn_step());
      const may = scrubber?.ready && has_figure && performance.now() - left > ANSWER_MS;
      const step = may ? scrubber.beside(target ?? Number(at().bfcvizStep), way) : null;
      if (step === null) {
        hand_over();
        if (may) [asked, scrubber] = [false, null]; // the step is outside of the events that the page has
        if (event.repeat) ask();
        return false;
      }
      target = step;
      scrubber.show(step);
      moving = event.repeat;
      if (!moving) request();
      return true;
    },
    // While the mouse drags the line at the step.
    drag(position) {
      left = -Infinity; // its press was no click, which Python would answer
      ask();
      moving = true;
      target = Math.min(Math.round(position), Number(at().bfcvizLast)); // the strip ends after the last step
      if (scrubber?.ready && scrubber.has(target)) return scrubber.show(target);
      scrubber?.hide();
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
