// Acting in an environment: turns clicks, drags, wheel steps and keys on the screen into actions, and sends them in order.
"use strict";

(() => {
  const [NEAR_PIXELS, PAUSE_MS, LONGEST] = [5, 700, 200];
  const [WHEEL_STEP_PIXELS, WHEEL_STEP_LINES] = [100, 3];
  const KEYS = { " ": "Space" };
  // Keys that are no action on their own, and keys that an input method reads before it has composed a character.
  const SILENT = ["Shift", "Control", "Alt", "AltGraph", "Meta", "CapsLock", "Dead", "Process", "Unidentified"];
  let [typed, wheel, collected, pressed, timer] = ["", null, "", null, 0];
  let queue = Promise.resolve();

  const find = (selector) => document.querySelector(selector);
  const place = ([x, y]) => `(${x},${y})`;

  // Sends a form, and shows the page that the server answers with. A button belongs to the turn of its page, so that
  // the server ignores a second press. A gesture is for the turn that follows all gestures before it.
  async function send(path, fields) {
    const page = find("[data-play]");
    if (!page) return location.assign("/"); // the page of an error
    page.toggleAttribute("data-waiting", true);
    const body = new URLSearchParams(path === "/act" ? { turn: page.dataset.turn, ...fields } : fields);
    const answer = await fetch(path, { method: "POST", body, headers: { accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!fresh.querySelector("main")) throw new Error(fresh.body.textContent);
    const shown = document.importNode(fresh.querySelector("main"), true);
    // A pointer over a picture that has not arrived has no place in it: the page changes when its pictures are here.
    await Promise.allSettled([...shown.querySelectorAll("img")].map((image) => image.decode()));
    const [main, held] = [find("main"), document.activeElement];
    const [wasScreen, id] = [held?.matches("[data-screen]"), held?.id];
    const gesture = find("[data-gesture]")?.value;
    const written = find("#action")?.value;
    main.replaceChildren(...shown.childNodes);
    document.title = fresh.title;
    if (gesture && find("[data-gesture]")) find("[data-gesture]").value = gesture;
    // What is written while an action is on its way is the next action of the same episode.
    const field = find("#action:enabled");
    if (path === "/act" && field && written !== fields.action) field.value = written ?? "";
    (wasScreen ? find("[data-screen]") : id && document.getElementById(id))?.focus({ preventScroll: true });
  }

  function enqueue(path, fields) {
    queue = queue.then(() => send(path, fields)).catch((error) => {
      find("[data-play]")?.removeAttribute("data-waiting");
      const field = find("#action:enabled");
      if (field && !field.value) field.value = fields.action ?? "";
      const note = find("[data-said]") ?? find("h1");
      note.textContent = `The server sent no page, so the action may not have been applied: ${error.message}`;
    });
  }

  function act(action) {
    const page = find("[data-play]");
    if (!page || page.dataset.ended) return;
    find("#action").value = action;
    enqueue("/act", { action, episode: page.dataset.episode });
  }

  // Typed text or wheel steps are collected as one action until a pause, or until another action begins.
  function flush() {
    clearTimeout(timer);
    const action = collected;
    [typed, wheel, collected] = ["", null, ""];
    if (action) act(action);
  }

  function collect(action) {
    collected = action;
    const field = find("#action");
    if (field) field.value = action;
    clearTimeout(timer);
    timer = setTimeout(flush, PAUSE_MS);
  }

  function pointOf(screen, event) {
    const [image, box] = [screen.querySelector("img"), screen.querySelector("img").getBoundingClientRect()];
    const across = Math.floor(((event.clientX - box.left) / box.width) * image.naturalWidth);
    const down = Math.floor(((event.clientY - box.top) / box.height) * image.naturalHeight);
    return [Math.min(image.naturalWidth - 1, Math.max(0, across)), Math.min(image.naturalHeight - 1, Math.max(0, down))];
  }

  function release(screen, event) {
    const [from, to] = [pressed, pointOf(screen, event)];
    pressed = null;
    flush();
    const far = Math.hypot(event.clientX - from.event.clientX, event.clientY - from.event.clientY) > NEAR_PIXELS;
    const buttons = ["", "middle_click", "right_click"];
    if (far && !event.button) act(`drag ${place(from.at)} to ${place(to)}`);
    else act(`${buttons[event.button] || find("[data-gesture]").value} ${place(to)}`);
  }

  function key(event) {
    if (event.isComposing || SILENT.includes(event.key) || (event.key === "Tab" && !event.ctrlKey)) return;
    event.preventDefault();
    if (event.key === "Escape") return find("#action").focus();
    const [composed, modifiers] = [event.getModifierState("AltGraph"), { ctrl: "Control", alt: "Alt", meta: "Meta" }];
    const held = Object.keys(modifiers).filter((name) => event[`${name}Key`] && !composed).map((name) => modifiers[name]);
    if (event.key.length === 1 && !held.length) {
      if (!typed) flush();
      typed += event.key;
      collect(`type here "${typed.replaceAll("\\", "\\\\")}"`);
      if (typed.length >= LONGEST) flush();
      return;
    }
    if (event.repeat) return; // each would be a turn
    flush();
    if (event.shiftKey) held.push("Shift");
    act(`key ${[...held, KEYS[event.key] ?? event.key].join("+")}`);
  }

  const onScreen = (event) => event.target.closest?.("[data-screen]");

  document.addEventListener("pointerdown", (event) => {
    const screen = onScreen(event);
    if (screen) pressed = { at: pointOf(screen, event), event };
  });
  document.addEventListener("pointerup", (event) => {
    const screen = find("[data-screen]");
    if (pressed && screen) release(screen, event);
  });
  document.addEventListener("pointercancel", () => {
    pressed = null;
  });
  document.addEventListener("contextmenu", (event) => onScreen(event) && event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (onScreen(event)) key(event);
    else if (event.target.id === "action" && event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
  });
  document.addEventListener(
    "wheel",
    (event) => {
      const screen = onScreen(event);
      if (!screen) return;
      event.preventDefault();
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const way = sideways ? (event.deltaX > 0 ? "right" : "left") : event.deltaY > 0 ? "down" : "up";
      if (wheel?.way !== way) flush();
      // A touchpad sends many events for one step of a wheel.
      const step = event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? WHEEL_STEP_PIXELS : WHEEL_STEP_LINES;
      const turned = (wheel?.turned ?? 0) + Math.abs(sideways ? event.deltaX : event.deltaY) / step;
      wheel = { at: pointOf(screen, event), way, turned, count: Math.max(1, Math.round(turned)) };
      collect(`scroll ${place(wheel.at)} ${way} ${wheel.count}`);
    },
    { passive: false },
  );
  document.addEventListener("submit", (event) => {
    event.preventDefault();
    const { form, submitter } = { form: event.target, submitter: event.submitter };
    const [fields, field] = [Object.fromEntries(new FormData(form, submitter)), form.querySelector("#action")];
    const earlier = collected;
    flush();
    if (field && fields.action === earlier) return; // The field showed what was collected.
    // Written text, like a gesture, is for the next turn; so is a button that is pressed after a gesture.
    if (field || earlier) delete fields.turn;
    if (field) field.value = ""; // An empty field cannot be sent a second time.
    enqueue(form.getAttribute("action"), fields);
  });
})();
