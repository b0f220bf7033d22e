// Names for landmarks that the theme adds, and wide tables and code that the keyboard can scroll.
function complete() {
  document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((nav, i) => {
    nav.setAttribute("aria-label", `Code ${document.querySelectorAll("nav.md-code__nav[aria-label]").length + 1}`);
  });
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((wrap) => {
    wrap.setAttribute("tabindex", "0");
  });
  document.querySelectorAll("pre > code:not([tabindex])").forEach((code) => {
    if (code.scrollWidth > code.clientWidth) code.setAttribute("tabindex", "0");
  });
}
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
complete();
