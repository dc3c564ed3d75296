// Wide code, tables and figures scroll in their place: what scrolls can be reached by the keyboard, and has a name.
window.addEventListener("load", () => {
  const reach = (box, name) => {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", name);
    }
  };
  const mark = () => {
    document.querySelectorAll(".md-typeset__scrollwrap").forEach((box, k) => reach(box, `Table ${k + 1}`));
    document.querySelectorAll(".md-typeset p > img:only-child").forEach((image, k) => {
      image.parentElement.classList.toggle("wide-figure", image.naturalWidth > 1.8 * image.naturalHeight);
      reach(image.parentElement, `Figure ${k + 1}`);
    });
    document.querySelectorAll(".md-typeset pre > code").forEach((box, k) => {
      reach(box, `Code ${k + 1}`);
      const tools = box.parentElement.querySelector(".md-code__nav");
      if (tools) tools.setAttribute("aria-label", `Tools of code ${k + 1}`);
    });
  };
  setTimeout(mark, 100);
  window.addEventListener("resize", mark);
});
