// Wide code and tables scroll in their place: what scrolls can be reached by the keyboard, and has a name.
window.addEventListener("load", () => {
  const mark = () => {
    document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap").forEach((box, k) => {
      const name = (box.matches("code") ? "Code " : "Table ") + (k + 1);
      if (box.scrollWidth > box.clientWidth) {
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", name);
      }
      box.parentElement.querySelectorAll(".md-code__nav").forEach(nav => nav.setAttribute("aria-label", name + ", tools"));
    });
  };
  setTimeout(mark, 100);
  window.addEventListener("resize", mark);
});
