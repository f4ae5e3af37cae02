// What a page needs for reading: folded code opens, long formulas fit a narrow screen, and what scrolls sideways can be
// reached from the keyboard (and only that: a formula that fits is no stop of the tabulator).
(() => {
  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("button.unfold");
    if (!button) return;
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", open);
    button.textContent = open ? "⋯ fold" : button.dataset.words;
  });

  // Where an inline formula may be broken: after a relation or a comma of its outermost row.
  const RELATIONS = "=≤≥<>≈∈⊆⊂→↦⇒⟺∼≡≠≪≫,;:∣";
  function row(element) { // the outermost row of more than one part
    let inner = element.querySelector("mjx-math") ?? element;
    while (inner.children.length === 1 && inner.firstElementChild.children.length) inner = inner.firstElementChild;
    return inner;
  }
  function split(formula) {
    const parts = row(formula);
    const groups = [[]];
    for (const child of [...parts.children]) {
      groups.at(-1).push(child);
      const sign = child.tagName === "MJX-MO" ? getComputedStyle(child.firstElementChild ?? child, "::before").content : "";
      if (RELATIONS.includes(sign.replace(/["']/g, "") || "none")) groups.push([]);
    }
    if (groups.length < 2) return;
    for (const group of groups.filter((g) => g.length)) {
      const piece = document.createElement("mjx-piece");
      group[0].before(piece);
      piece.append(...group);
    }
    formula.classList.add("broken");
  }

  // A full stop stays with the formula before it.
  function keepStops() {
    for (const formula of document.querySelectorAll("article span.math")) {
      const after = formula.nextSibling;
      const stop = after?.nodeType === Node.TEXT_NODE && after.data.match(/^[.,;:?!)’]+/)?.[0];
      if (!stop) continue;
      after.data = after.data.slice(stop.length);
      const kept = document.createElement("span");
      kept.className = "kept";
      formula.replaceWith(kept);
      kept.append(formula, stop);
    }
  }

  // The side bar's arrows have no words of their own.
  function name() {
    // Sphinx writes the arguments of a signature as definitions of nothing.
    for (const part of document.querySelectorAll("dt.sig > dl, dt.sig > dl > dd")) part.setAttribute("role", "none");
    for (const arrow of document.querySelectorAll("nav.bd-links summary:not([aria-label])")) {
      arrow.setAttribute("aria-label", `Pages below ${arrow.parentElement.previousElementSibling?.textContent.trim() ?? ""}`);
    }
  }

  const atEnd = (area) => area.classList.toggle("at-end", area.scrollLeft + area.clientWidth >= area.scrollWidth - 2);
  const SCROLLS = "mjx-container, figure.cell-figure, div.highlight pre, .cell_output .text_html, .live-out, table.dataframe, .pst-scrollable-table-container, .table-wrapper";
  function fit() {
    const room = (element) => element.closest("p, li, td, dd, dt, figcaption, div")?.clientWidth ?? Infinity;
    for (const formula of document.querySelectorAll("main mjx-container:not([display]):not(.broken)")) {
      if (formula.getBoundingClientRect().width > room(formula)) split(formula);
    }
    for (const formula of document.querySelectorAll("main mjx-container:not([display])")) {
      const pieces = formula.classList.contains("broken") ? [...formula.querySelectorAll("mjx-piece")] : [formula];
      const wide = pieces.some((piece) => piece.getBoundingClientRect().width > room(formula) + 1);
      formula.classList.toggle("wide", wide);
    }
    for (const area of document.querySelectorAll(`main :is(${SCROLLS})`)) {
      const scrolls = area.scrollWidth > area.clientWidth + 1 && getComputedStyle(area).overflowX !== "visible";
      area.classList.toggle("scrolls", scrolls);
      atEnd(area);
      if (scrolls) {
        area.tabIndex = 0;
        if (!area.hasAttribute("role") && area.tagName !== "TABLE") {
          area.setAttribute("role", "group");
          area.setAttribute("aria-label", area.tagName === "MJX-CONTAINER" ? "Formula, scrolls sideways" : "Scrolls sideways");
        }
      } else if (area.tabIndex === 0) area.removeAttribute("tabindex");
    }
  }

  let later;
  const soon = () => { clearTimeout(later); later = setTimeout(fit, 120); };
  async function begin() {
    name();
    while (!window.MathJax?.startup?.promise && document.querySelector(".math")) await new Promise((done) => setTimeout(done, 50));
    await window.MathJax?.startup?.promise;
    await document.fonts?.ready;
    keepStops();
    fit();
    document.documentElement.dataset.read = "ready";
    window.addEventListener("resize", soon);
    document.addEventListener("toggle", soon, true);
    document.addEventListener("scroll", ({ target }) => target.classList?.contains("scrolls") && atEnd(target), true);
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin); else begin();
})();
