// From the address to a page, and again when the address or the data change.

const PAGES = {
  "": indexPage,
  run: (source, parts, query) => (parts[1] === "sample" ? stepsPage(source, parts) : runPage(source, parts, query)),
  evaluation: (source, parts, query) => {
    if (parts[1] === "samples") return samplesPage(source, parts, query);
    return parts[1] === "sample" ? samplePage(source, parts, query) : evaluationPage(source, parts, query);
  },
  compare: comparePage,
};
const SHORTEST_PAUSE_MS = 1000;  // between two renewals of a page

function parsedAddress() {
  const [path, words] = location.hash.replace(/^#\/?/, "").split("?");
  const query = {};
  for (const [key, value] of new URLSearchParams(words || "")) {
    query[key] = key in query ? [query[key], value].flat() : value;
  }
  const [page, ...parts] = path.split("/").map(decodeURIComponent);
  return { page, parts, query };
}

function start(source, home) {
  const main = document.getElementById("main");
  let shown = null;
  let turn = 0;
  let renewal = null;

  async function show(moved) {
    const mine = ++turn;
    source.leave();
    let page;
    try {
      const { page: name, parts, query } = parsedAddress();
      const make = Object.hasOwn(PAGES, name) ? PAGES[name] : null;
      if (make === null) throw new Error(`There is no page ${name}.`);
      main.setAttribute("aria-busy", "true");
      page = await make(source, parts, query);
    } catch (error) {
      page = { title: "This page cannot be shown", concerns: () => false, content: [h("p", { class: "problem", role: "alert" }, error.message)] };
    }
    if (mine !== turn) return;  // another page was asked for meanwhile
    const heading = h("h1", { tabindex: "-1" }, page.title);
    const before = moved ? null : remembered(main);
    main.replaceChildren(heading, ...page.content.flat(Infinity).filter(Boolean));
    main.removeAttribute("aria-busy");
    document.title = `${page.title} – crucible-bridge`;
    if (before !== null) restore(main, before);
    else if (shown !== null) { window.scrollTo(0, 0); heading.focus({ preventScroll: true }); }
    shown = page;
    redrawCharts();
    if (page.again) renew(page.again);
  }

  function renew(pause) {
    if (renewal === null) renewal = setTimeout(() => { renewal = null; show(false); }, pause);
  }

  window.addEventListener("hashchange", () => show(true));
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; redrawCharts(); } });
  document.addEventListener("keydown", onKey);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();  // the address names a page, not a place in it
    main.querySelector("h1")?.focus();
  });
  let lost = false;
  source.listen((change) => { if (shown !== null && (change.all || shown.concerns(change))) renew(SHORTEST_PAUSE_MS); },
    (connected) => {
      document.getElementById("connection").textContent = connected ? "live" : "not connected";
      if (connected && lost) renew(0);  // what moved meanwhile
      lost = !connected;
    });
  if (location.hash === "" && home) location.replace(home);
  show(true);
}

/** What a reader has opened, typed and focused, so that new data do not take it away. */
function remembered(main) {
  const focus = document.activeElement;
  return {
    open: new Set([...main.querySelectorAll("details[open][data-key]")].map((part) => part.dataset.key)),
    chosen: new Set([...main.querySelectorAll("input:checked")].map((box) => box.value)),
    typed: new Map([...main.querySelectorAll("input[type=search], input[type=text]")].filter((box) => box.id && box.value !== box.defaultValue)
      .map((box) => [box.id, box.value])),
    focus: focus && main.contains(focus) ? focus.id || focus.getAttribute("href") : null,
    scroll: window.scrollY,
  };
}

function restore(main, before) {
  for (const part of main.querySelectorAll("details[data-key]")) part.open = before.open.has(part.dataset.key);
  for (const box of main.querySelectorAll("input[type=checkbox]")) {
    if (before.chosen.has(box.value)) { box.checked = true; box.dispatchEvent(new Event("change")); }
  }
  for (const [id, text] of before.typed) { if (document.getElementById(id)) document.getElementById(id).value = text; }
  if (before.focus) {
    const again = [...main.querySelectorAll("a, input, select, button")].find((one) => (one.id || one.getAttribute("href")) === before.focus);
    again?.focus({ preventScroll: true });
  }
  window.scrollTo(0, before.scroll);
}

/** j and k: the next and the previous sample or page; / : search. */
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const target = { j: "a[rel=next]", k: "a[rel=prev]", "/": "#search" }[event.key];
  const found = target ? document.querySelector(target) : null;
  if (found === null) return;
  event.preventDefault();
  if (event.key === "/") found.focus();
  else found.click();
}

function themeButton() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const say = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; say(); redrawCharts(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { say(); redrawCharts(); });
  window.addEventListener("beforeprint", () => redrawCharts());
  say();
}

themeButton();
{
  const data = blockOf("data");
  if (data.door === "file") start(new FileSource(data), data.home);
  else start(new LiveSource(), "");
}
