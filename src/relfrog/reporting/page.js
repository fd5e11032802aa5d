"use strict";
(() => {
  const tip = document.getElementById("tip");
  const all = (where, what) => Array.from(where.querySelectorAll(what));

  // A line of text beside the pointer, instead of the browser's slow one.
  const say = (text, event) => {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const x = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18 + tip.offsetHeight < window.innerHeight;
    tip.style.left = Math.max(8, x) + "px";
    tip.style.top = (below ? event.clientY + 18 : event.clientY - tip.offsetHeight - 12) + "px";
  };
  for (const drawing of all(document, "svg")) {
    for (const title of all(drawing, "title")) {
      const holder = title.parentNode;
      if (holder === drawing) { title.remove(); continue; } // its label says the same
      holder.dataset.tip = title.textContent;
      title.remove();
    }
    drawing.addEventListener("pointermove", (event) => {
      const held = event.target.closest("[data-tip], [role=graphics-symbol][aria-label]");
      let text = "";
      if (held && drawing.contains(held)) {
        text = held.dataset.tip || (/axis|legend|line mark$|rule/.test(held.getAttribute("aria-roledescription") || "")
          ? "" : held.getAttribute("aria-label"));
      }
      say(text.replaceAll("; ", "\n"), event);
    });
    drawing.addEventListener("pointerleave", () => say("", null));
  }

  // Schemas: point to see, click to hold. Rows of the table of roles do the same.
  const schemas = all(document, "svg.schema");
  let held = null;
  const show = (choice) => {
    for (const drawing of schemas) {
      drawing.classList.toggle("busy", choice !== null);
      for (const part of all(drawing, ".on")) part.classList.remove("on");
      if (choice === null) continue;
      if (choice.route !== undefined) {
        for (const strand of all(drawing, ".strand, .mark")) {
          if (strand.dataset.route !== choice.route) continue;
          strand.classList.add("on");
          const key = strand.closest(".key");
          for (const table of all(drawing, ".table")) {
            if ([key.dataset.child, key.dataset.parent].includes(table.dataset.table)) table.classList.add("on");
          }
        }
      } else {
        for (const key of all(drawing, ".key")) {
          if (![key.dataset.child, key.dataset.parent].includes(choice.table)) continue;
          for (const strand of all(key, ".strand, .mark")) strand.classList.add("on");
          for (const table of all(drawing, ".table")) {
            if ([key.dataset.child, key.dataset.parent].includes(table.dataset.table)) table.classList.add("on");
          }
        }
        for (const table of all(drawing, ".table")) {
          if (table.dataset.table === choice.table) table.classList.add("on");
        }
      }
    }
  };
  const describe = (drawing, choice) => {
    const panel = document.getElementById("panel-" + drawing.id.split("-")[1]);
    if (!panel) return;
    panel.replaceChildren();
    if (choice === null) return;
    const strong = document.createElement("strong");
    const lines = [];
    if (choice.route !== undefined) {
      const strand = all(drawing, ".strand").find((s) => s.dataset.route === choice.route);
      if (!strand) return;
      const cut = strand.dataset.tip.lastIndexOf(": gate ");
      strong.textContent = strand.dataset.tip.slice(0, cut);
      lines.push(strand.dataset.tip.slice(cut + 2));
      for (const s of all(drawing, ".strand")) {
        if (s.dataset.route === choice.route) lines.push("along " + s.closest(".key").dataset.key);
      }
    } else {
      const table = all(drawing, ".table").find((t) => t.dataset.table === choice.table);
      if (!table) return;
      strong.textContent = table.dataset.words;
      for (const key of all(drawing, ".key")) {
        if (![key.dataset.child, key.dataset.parent].includes(choice.table)) continue;
        const count = all(key, ".strand").length;
        lines.push(key.dataset.key + (count ? ", " + count + " route" + (count > 1 ? "s" : "") : ""));
      }
    }
    const list = document.createElement("ul");
    for (const line of lines) {
      const item = document.createElement("li");
      item.textContent = line;
      list.append(item);
    }
    panel.append(strong, list);
  };
  const hold = (choice) => {
    const same = held && choice && held.route === choice.route && held.table === choice.table;
    held = same ? null : choice;
    show(held);
    for (const drawing of schemas) describe(drawing, held);
    for (const part of all(document, ".held")) part.classList.remove("held");
    if (held && held.route !== undefined) {
      for (const row of all(document, `tr[data-route="${held.route}"]`)) row.classList.add("held");
    }
  };
  const choiceAt = (target) => {
    const strand = target.closest(".strand");
    if (strand) return { route: strand.dataset.route };
    const table = target.closest(".table");
    return table ? { table: table.dataset.table } : null;
  };
  for (const drawing of schemas) {
    drawing.addEventListener("pointerover", (event) => { if (!held) show(choiceAt(event.target)); });
    drawing.addEventListener("pointerleave", () => { if (!held) show(null); });
    drawing.addEventListener("click", (event) => hold(choiceAt(event.target)));
    drawing.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); hold(choiceAt(event.target)); }
    });
  }
  for (const row of all(document, "tr[data-route]")) {
    row.addEventListener("click", () => hold({ route: row.dataset.route }));
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") hold({ route: row.dataset.route }); });
    row.addEventListener("pointerenter", () => { if (!held) show({ route: row.dataset.route }); });
    row.addEventListener("pointerleave", () => { if (!held) show(null); });
  }

  // Tables that sort by a click on a header.
  for (const table of all(document, "table.sorts")) {
    all(table, "th").forEach((head, column) => {
      head.firstElementChild.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const other of all(table, "th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => {
          const cell = row.cells[column];
          const given = cell.dataset.value ?? cell.textContent.replaceAll(",", "");
          return given !== "" && !isNaN(given) ? Number(given) : given;
        };
        const rows = all(table.tBodies[0], "tr");
        rows.sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
          return down ? -order : order;
        });
        table.tBodies[0].append(...rows);
      });
    });
  }
  for (const field of all(document, ".filter")) {
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of all(document.getElementById(field.dataset.for), "tbody tr")) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
  }

  for (const button of all(document, ".enlarge")) {
    button.addEventListener("click", () => {
      const large = button.closest("figure").classList.toggle("large");
      button.textContent = large ? "Smaller" : "Larger";
    });
  }

  const root = document.documentElement;
  document.getElementById("theme").addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  });
  addEventListener("beforeprint", () => { for (const part of all(document, "details")) part.open = true; });
})();
