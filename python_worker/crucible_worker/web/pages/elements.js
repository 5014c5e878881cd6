// Elements of a page. Text from outside is set as text and never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `h("a", {href: "#/"}, "All runs")`. A function among the attributes is an event's listener ("onclick"). */
function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of SVG, likewise. */
function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** A table with a caption for screen readers. `columns` are texts or elements, `rows` are lists of cells. */
function table(caption, columns, rows, attributes) {
  const numeric = columns.map((_, n) => rows.length > 0 && rows.every((row) => isNumberCell(row[n])));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", attributes,
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column, n) =>
        h("th", { scope: "col", class: numeric[n] ? "number" : null }, column)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, n) =>
        h("td", { class: numeric[n] ? "number" : null }, cell)))))));
}

/** Likewise, without the columns in which no row has anything. */
function tableOfFilled(caption, columns, rows) {
  const filled = columns.map((_, n) => rows.some((row) => row[n] !== "" && row[n] !== null));
  const kept = (cells) => cells.filter((_, n) => filled[n]);
  return table(caption, kept(columns), rows.map(kept));
}

function isNumberCell(cell) {
  const text = cell instanceof HTMLSpanElement ? cell.dataset.number ?? cell.textContent : cell;
  return typeof text === "string" && (text === "" || /^[-+]?[\d,.]+(e[-+]?\d+)?( ?(s|ms|%))?$/.test(text));
}

/** A closed part that is filled when it is opened for the first time. */
function folded(title, fill, attributes) {
  const body = h("div", { class: "folded" });
  const part = h("details", attributes, h("summary", {}, title), body);
  part.addEventListener("toggle", () => {
    if (part.open && !body.hasChildNodes()) body.append(...[fill()].flat());
  });
  return part;
}

function section(title, ...children) {
  const id = `section-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** Ids in one part of an address, with commas between them. */
function joinedIds(ids) {
  return ids.map((id) => id.replace(/[%,]/g, (sign) => encodeURIComponent(sign))).join(",");
}

function splitIds(text) {
  return text.split(",").filter(Boolean).map(decodeURIComponent);
}

/** A link to a page: `link("All runs", [])`, `link("step 3", ["evaluation", id], {filter: "wrong"})`. */
function link(text, parts, query, attributes) {
  return h("a", { href: address(parts, query), ...attributes }, text);
}

function address(parts, query) {
  const given = Object.entries(query || {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const words = given.flatMap(([key, value]) =>
    [value].flat().map((one) => `${encodeURIComponent(key)}=${encodeURIComponent(one)}`));
  return `#/${parts.map(encodeURIComponent).join("/")}${words.length > 0 ? `?${words.join("&")}` : ""}`;
}
