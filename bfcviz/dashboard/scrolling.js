// Long lists: the page scrolls them by itself, and asks Python for the rows that come into sight.
//
// A list has an attribute data-bfcviz-rows: {first, made: the rows that the page holds, count: all rows, above: pixels
// above the first, height: of all rows, row: pixels of one, moves, top: Python moved it so often, the last time to row
// top}. A very long list is lower than all its rows: there, a short way scrolls row by row, a long one by its share.

const SCROLL_MS = 45; // many scroll events in this time are one message
const places = new WeakMap(); // scrolled element -> the rows that it held last

function listen_to_scrolls(root, send, signal) {
  let timer = 0;
  const on_scroll = (event) => {
    const box = event.target;
    if (!box.classList?.contains("bfcviz-rows") || timer) return;
    timer = setTimeout(() => {
      timer = 0;
      const list = box.querySelector("[data-bfcviz-rows]");
      if (!list || !box.clientHeight) return;
      const rows = JSON.parse(list.dataset.bfcvizRows);
      const top = Math.max(0, Math.round(row_at_top(box, rows)));
      const place = places.get(box);
      if (place?.sent === top) return;
      if (place) place.sent = top;
      send({ do: "scroll", list: list.dataset.bfcvizList, top });
    }, SCROLL_MS);
  };
  root.addEventListener("scroll", on_scroll, { signal, capture: true, passive: true }); // it does not bubble
}

// The row at the upper edge; between two rows it is not whole.
function row_at_top(box, rows) {
  const near = rows.first + (box.scrollTop - rows.above) / rows.row;
  if (rows.count * rows.row <= rows.height) return near;
  const lowest = box.scrollHeight - box.clientHeight;
  if (box.scrollTop <= 0) return 0;
  if (box.scrollTop >= lowest - 1) return rows.count;
  if (near >= Math.max(rows.first - rows.made, 0) && near < rows.first + 2 * rows.made) return near;
  return (box.scrollTop / lowest) * rows.count;
}

// After Python changed a list: scroll where it wants, or keep the row at the upper edge.
function place_rows(root) {
  for (const box of root.querySelectorAll(".bfcviz-rows")) {
    const list = box.querySelector("[data-bfcviz-rows]");
    if (!list || box.parentElement.style.display === "none") continue;
    const before = places.get(box);
    if (before?.text === list.dataset.bfcvizRows) continue;
    if (!box.clientHeight) continue; // last: it lays out the page, which takes long while steps are drawn
    const rows = JSON.parse(list.dataset.bfcvizRows);
    const moved = before?.rows.moves !== rows.moves;
    const top = moved ? rows.top : row_at_top(box, before.rows);
    const pixels = rows.above + (top - rows.first) * rows.row;
    if (Math.abs(pixels - box.scrollTop) > 1) box.scrollTop = pixels;
    places.set(box, { text: list.dataset.bfcvizRows, rows, sent: moved ? rows.top : before.sent });
  }
}
