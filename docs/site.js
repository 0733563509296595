// What a screen reader or a keyboard needs and the theme leaves out: a name of the search dialog, no landmark for the
// button of each block of code, and a stop at tables that scroll sideways. The theme makes some of them as one scrolls.
function completed(root) {
  for (const dialog of root.querySelectorAll(".md-search:not([aria-label])")) dialog.setAttribute("aria-label", "Search");
  for (const nav of root.querySelectorAll("nav.md-code__nav:not([role])")) nav.setAttribute("role", "presentation");
  for (const wrap of root.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) wrap.tabIndex = 0;
}

completed(document);
new MutationObserver(() => completed(document)).observe(document.body, { childList: true, subtree: true });
