// Keeps the elements marked data-live up to date: requests the page again and applies the differences.
// Unchanged elements are kept, so that focus, selection and animations continue. Before the differences are applied,
// the event `refreshing` has the fresh page as its `detail`.
"use strict";

(() => {
  const PERIOD_MS = 2000;

  function adopt(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh.cloneNode(true));
    } else if (old.nodeType === Node.ELEMENT_NODE) {
      adoptAttributes(old, fresh);
      adoptChildren(old, fresh);
    } else if (old.nodeValue !== fresh.nodeValue) {
      old.nodeValue = fresh.nodeValue;
    }
  }

  function adoptAttributes(old, fresh) {
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }

  function adoptChildren(old, fresh) {
    const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
    after.forEach((child, place) =>
      place < before.length ? adopt(before[place], child) : old.append(child.cloneNode(true)),
    );
    before.slice(after.length).forEach((child) => child.remove());
  }

  async function refresh() {
    if (document.hidden) return;
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.dispatchEvent(new CustomEvent("refreshing", { detail: page }));
    const [old, fresh] = [document.querySelectorAll("[data-live]"), page.querySelectorAll("[data-live]")];
    old.forEach((element, place) => fresh[place] && adopt(element, fresh[place]));
  }

  async function keepFresh() {
    try {
      await refresh();
      document.documentElement.removeAttribute("data-lost");
    } catch (error) {
      document.documentElement.setAttribute("data-lost", "");
    }
    setTimeout(keepFresh, PERIOD_MS);
  }

  setTimeout(keepFresh, PERIOD_MS);
})();
