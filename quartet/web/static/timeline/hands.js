// Keyboard, wheel and pointer on the canvas.

const MOVES = { ArrowLeft: -0.1, ArrowRight: 0.1, PageUp: -1, PageDown: 1 };
const ZOOMS = { "+": 0.5, "=": 0.5, "-": 2 };
const LEAST_DRAG_PIXELS = 4;

// Calls on `page`: move(windows), zoom(factor, time), drag(start), point(hit, event), keep(hit).
export function listen(picture, page) {
  const { canvas } = picture;
  const under = (event) => picture.under(event.offsetX, event.offsetY);
  let grabbed = null;

  canvas.addEventListener("keydown", (event) => {
    if (event.key in MOVES) page.move(MOVES[event.key]);
    else if (event.key in ZOOMS) page.zoom(ZOOMS[event.key]);
    else return;
    event.preventDefault();
  });

  const turn = (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    page.zoom(event.deltaY > 0 ? 1.25 : 0.8, picture.toTime(event.offsetX));
  };
  canvas.addEventListener("wheel", turn, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    grabbed = { x: event.offsetX, start: picture.stretch.start, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const pixels = grabbed ? event.offsetX - grabbed.x : 0;
    if (Math.abs(pixels) > LEAST_DRAG_PIXELS) {
      grabbed.moved = true;
      canvas.classList.add("dragging");
      page.drag(grabbed.start - (pixels / picture.wide) * picture.stretch.seconds);
    }
    page.point(grabbed?.moved ? null : under(event), event);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (grabbed && !grabbed.moved) page.keep(under(event));
    grabbed = null;
    canvas.classList.remove("dragging");
  });
  canvas.addEventListener("pointerleave", (event) => page.point(null, event));
}
