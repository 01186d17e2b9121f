"use strict";
(() => {
  const all = (query, root = document) => Array.from(root.querySelectorAll(query));
  const form = document.getElementById("filters");
  const says = form.querySelector("output");
  const nodes = all("details.node").map((section) => ({
    section,
    index: section.id.slice(1),
    rows: all(`tr[data-row="${section.id.slice(1)}"]`),
    open: section.open,
    found: all(".f", section).map((element) => ({ element, kind: element.dataset.o })),
  }));
  const total = nodes.reduce((sum, node) => sum + node.found.length, 0);
  const textOf = (item, element) => (item.text ??= element.textContent.toLowerCase());

  function apply() {
    const kinds = new Set(all("input[name=kind]:checked", form).map((box) => box.value));
    const wanted = form.elements.node.value;
    const text = form.elements.text.value.trim().toLowerCase();
    const active = wanted !== "" || text !== "" || kinds.size < form.elements.kind.length;
    let shown = 0;
    for (const node of nodes) {
      const here = wanted === "" || wanted === node.index;
      const header = node.section.querySelector("summary");
      const named = text === "" || textOf(node, header).includes(text);
      let some = 0;
      for (const item of node.found) {
        const fits = here && kinds.has(item.kind)
          && (named || textOf(item, item.element).includes(text));
        item.element.hidden = !fits;
        some += fits;
      }
      // A node that was never reached has no finding, and must not vanish with "fail" wanted.
      // One in quarantine has no outcome to be left out by.
      const kind = node.section.dataset.kind;
      const bare = node.found.length === 0 && here && named
        && (kind === "kept_out" || kinds.has(kind));
      node.section.hidden = !some && !bare;
      for (const row of node.rows) row.hidden = node.section.hidden;
      node.section.open = active ? !node.section.hidden && (wanted !== "" || shown < 60) : node.open;
      shown += some;
    }
    const word = total === 1 ? "finding" : "findings";
    says.textContent = active ? `${shown} of ${total} ${word}` : `${total} ${word}`;
  }

  let waiting = 0;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(apply, 120);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const [name, open] of [["open", true], ["close", false]]) {
    form.elements[name].addEventListener("click", () => {
      for (const node of nodes) node.section.open = open;
    });
  }
  function follow() {
    const target = /^#n\d+$/.test(location.hash) && document.querySelector(location.hash);
    if (!target) return;
    target.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", follow);
  form.hidden = false;
  apply();
  follow();
})();
