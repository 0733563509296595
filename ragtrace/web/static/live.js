// Refreshes the page while calls come in, and leads through a list by the keyboard. Without this script, the pages work
// by their links and forms.
"use strict";
(() => {
  document.documentElement.classList.add("script");
  const seconds = 5;

  // Make *shown* equal to *fresh* by changing only what differs, so that nothing flickers and the focus stays.
  function update(shown, fresh) {
    if (shown.isEqualNode(fresh)) return;
    if (shown.nodeType !== fresh.nodeType || shown.nodeName !== fresh.nodeName) {
      shown.replaceWith(document.adoptNode(fresh));
      return;
    }
    if (shown.nodeType !== Node.ELEMENT_NODE) {
      shown.nodeValue = fresh.nodeValue;
      return;
    }
    if (shown.nodeName !== "DETAILS") {
      for (const {name} of [...shown.attributes]) if (!fresh.hasAttribute(name)) shown.removeAttribute(name);
    }
    for (const {name, value} of fresh.attributes) if (shown.getAttribute(name) !== value) shown.setAttribute(name, value);
    const old = [...shown.childNodes];
    const now = [...fresh.childNodes];
    now.forEach((node, place) => {
      if (place < old.length) update(old[place], node);
      else shown.append(document.adoptNode(node));
    });
    old.slice(now.length).forEach((node) => node.remove());
  }

  async function refresh() {
    if (!document.hidden) {
      try {
        const response = await fetch(location.href, {credentials: "same-origin"});
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        const fresh = page.querySelector("[data-live]");
        if (!response.ok || !fresh) throw new Error();
        update(document.querySelector("[data-live]"), fresh);
        document.title = page.title;
        tell("");
      } catch {
        tell(" · not refreshed: ragtrace open does not answer");
      }
    }
    setTimeout(refresh, 1000 * seconds);
  }

  function tell(text) {
    const state = document.querySelector("[data-live-state]");
    if (state && state.textContent !== text) state.textContent = text;
  }

  if (document.querySelector("[data-live]")) setTimeout(refresh, 1000 * seconds);

  // Ticks of a list: their number stands on the button, and links and the filters carry them to other pages.
  const boxes = () => [...document.querySelectorAll("input[name=tick]")];
  function carry() {
    const elsewhere = document.querySelector("[data-elsewhere]");
    if (!elsewhere) return;
    const here = boxes().filter((box) => box.checked).map((box) => box.value);
    const all = [...elsewhere.value.split(",").filter(Boolean), ...here];
    document.querySelector("[data-count]").textContent = ` (${all.length})`;
    document.querySelector("[data-ticked]").value = all.join(",");
    for (const link of document.querySelectorAll('#content a[href^="/calls"]')) {
      const url = new URL(link.href);
      if (all.length) url.searchParams.set("ticked", all.join(","));
      else url.searchParams.delete("ticked");
      link.setAttribute("href", url.pathname + url.search);
    }
    const own = new URL(location.href);  // the address is the list with its ticks, after a reload, too
    if (all.length) own.searchParams.set("ticked", all.join(","));
    else own.searchParams.delete("ticked");
    if (own.href !== location.href) history.replaceState(null, "", own);
  }
  document.addEventListener("change", (event) => {
    if (event.target.matches("input[name=tick]")) carry();
  });
  window.addEventListener("pageshow", carry);  // a browser that goes back restores the ticks of then

  let current = -1;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.matches("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const rows = [...document.querySelectorAll("[data-row]")];
    const step = {j: 1, ArrowDown: 1, k: -1, ArrowUp: -1}[event.key];
    if (rows.length && step) {
      current = Math.max(0, Math.min(current + step, rows.length - 1));
      rows[current].focus();
    } else if (event.key === "x" && current >= 0 && boxes()[current]) {
      boxes()[current].click();
    } else {
      const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      if (!found || event.repeat) return;
      if (found.matches("input")) found.focus();
      else found.click();
    }
    event.preventDefault();
  });
})();
