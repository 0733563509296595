// Keyboard control of the labelling page, and saving without loading the page anew. Without this script, the page
// works by its forms and links.
"use strict";
(() => {
  const root = document.documentElement;
  const shortcuts = document.getElementById("shortcuts");
  const said = document.getElementById("said");
  const failed = document.getElementById("failed");
  if (!said) return;
  let saving = Promise.resolve(true);  // resolves to whether everything so far is saved
  const unsaved = new Map();  // error message by what was to be saved
  let current = -1;  // index of the current statement or row
  root.classList.add("script");
  shortcuts.checked = localStorage.getItem("ragtrace-shortcuts") !== "off";
  shortcuts.addEventListener("change", () => {
    localStorage.setItem("ragtrace-shortcuts", shortcuts.checked ? "on" : "off");
  });

  const items = () => [...document.querySelectorAll("[data-statement], [data-row]")];
  const chunks = () => [...document.querySelectorAll("details.passage")];
  const comment = () => document.querySelector("textarea[name=comment]");
  const hasChangedComment = () => comment() !== null && comment().value !== comment().defaultValue;

  function select(index) {
    const all = items();
    if (!all.length) return;
    current = Math.max(0, Math.min(index, all.length - 1));
    all.forEach((item, place) => item.classList.toggle("current", place === current));
    all[current].focus({preventScroll: true});
    all[current].scrollIntoView({block: "nearest"});
  }

  // Put the saved state of the call in place of the shown one; a comment that is being typed stays.
  function show(page) {
    const typed = comment() === null ? null : comment().value;
    const wasSent = comment() === null || comment().dataset.sent === typed;
    const active = document.activeElement;
    const kept = active && active.name ? `[name="${active.name}"][value="${CSS.escape(active.value)}"]` : "";
    const isTyping = active === comment();
    const place = isTyping ? [comment().selectionStart, comment().selectionEnd] : [];
    const wereOpen = chunks().map((chunk) => chunk.open);
    document.getElementById("call").replaceWith(document.adoptNode(page.getElementById("call")));
    for (const name of [".progress", "#said"]) {
      const shown = page.querySelector(name);
      document.querySelector(name).replaceChildren(...shown.childNodes);
    }
    chunks().forEach((chunk, index) => { chunk.open = wereOpen[index]; });
    if (!wasSent) comment().value = typed;
    if (isTyping) {
      comment().focus({preventScroll: true});
      comment().setSelectionRange(...place);
    } else if (kept && active.tagName === "BUTTON" && document.querySelector(kept)) {
      document.querySelector(kept).focus({preventScroll: true});
    }
    if (current >= 0 && items().length) {
      const all = items();
      all.forEach((item, index) => item.classList.toggle("current", index === current));
      if (active && active.matches && active.matches("[data-statement]")) all[current].focus({preventScroll: true});
    }
  }

  async function send(address, fields, part) {
    try {
      // keepalive: the request is completed even if the page is left meanwhile.
      const response = await fetch(address, {method: "POST", body: fields, credentials: "same-origin", keepalive: true});
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      if (!response.ok || !page.getElementById("call")) {
        const message = page.getElementById("message");
        throw new Error(message ? message.textContent : `the server answered ${response.status}`);
      }
      unsaved.delete(part);
      unsaved.delete("comment");  // every form carries it
      show(page);
    } catch (error) {
      unsaved.set(part, error.message);
    }
    if (unsaved.size) said.textContent = "";
    failed.textContent = [...unsaved].map(([name, message]) => `NOT saved: ${name} (${message}).`).join(" ");
    return unsaved.size === 0;
  }

  function save(form, button, more = {}) {
    const fields = new URLSearchParams([...new FormData(form), ...Object.entries(more)]);
    if (button && button.name) fields.set(button.name, button.value);
    if (comment()) comment().dataset.sent = comment().value;
    // One after the other, so that the last label given is the one that stays.
    let part = button && button.name === "label" ? "label" : "comment";
    if (button && button.name === "statement") part = button.parentElement.getAttribute("aria-label");
    saving = saving.then(() => send(form.action, fields, part));
    return saving;
  }

  // Follow a link once everything is saved; stay where something is not.
  async function follow(link) {
    if (hasChangedComment()) save(comment().form);
    if (await saving) link.click();
  }

  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-save]")) return;
    event.preventDefault();
    save(event.target, event.submitter);
  });
  document.addEventListener("change", (event) => {
    if (event.target === comment() && hasChangedComment()) save(comment().form);
  });
  window.addEventListener("beforeunload", (event) => {
    if (hasChangedComment() && comment().dataset.sent !== comment().value) event.preventDefault();
  });

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (target.matches("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (!shortcuts.checked) return;
    const key = event.key;
    if (key === "j" || key === "ArrowDown") select(current + 1);
    else if (key === "k" || key === "ArrowUp") select(current - 1);
    else if (["1", "2", "3"].includes(key) && document.querySelector("[data-statement]")) {
      if (current < 0) select(0);
      const button = items()[current].querySelector(`[data-statement-key="${key}"]`);
      save(button.form, button, {keep: "yes"});  // a click takes the same label back, a key that is held down does not
      select(current + 1);
    } else if (key === "e" && chunks().length) {
      const isClosed = chunks().some((chunk) => !chunk.open);
      chunks().forEach((chunk) => { chunk.open = isClosed; });
    } else if (key === "p") history.back();
    else if (key === "q" && !document.querySelector('[data-key="q"]')) follow(document.querySelector("[data-queue]"));
    else {
      const found = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
      if (!found || event.repeat) return;
      if (found.matches("textarea, input")) found.focus();
      else if (found.matches("a") && found.target !== "_blank") follow(found);
      else if (found.form && !found.form.matches("[data-save]")) saving.then((done) => done && found.form.requestSubmit(found));
      else found.click();
    }
    event.preventDefault();
  });
})();
