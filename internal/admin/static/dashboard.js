"use strict";

// The page asks for /streams every two seconds while it can be seen, and draws
// the answer. All text is set as text: nothing that came from outside is markup.

const every = 2000;
const meaning = {
  exact: "everything after the place was kept",
  current: "nothing had been missed",
  evicted: "events after the place had gone; the client was told which",
  diverged: "the store lost events the client had seen; it was told",
  gone: "the stream had been dropped; the call was answered by an error",
  unknown: "the cursor is not known here",
  dead: "the client came back to a stream it had been told is unknown",
  other: "none of these",
};

const $ = (id) => document.getElementById(id);
const count = new Intl.NumberFormat();
const svgns = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line", "title"].includes(name);
  const e = svg ? document.createElementNS(svgns, name) : document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let u = 0;
  while (n >= 1024 && u < units.length - 1) { n /= 1024; u++; }
  return `${u ? n.toFixed(1) : n} ${units[u]}`;
}

function ago(time, now) {
  const s = Math.max(0, Math.round((new Date(now) - new Date(time)) / 1000));
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.round(s / 60)} min ago`;
  return `${(s / 3600).toFixed(1)} h ago`;
}

// The window of a stream: what is gone, what is kept, and who is where.
function bar(st) {
  const top = Math.max(1, st.top);
  const x = (seq) => (100 * seq / top).toFixed(2);
  const readers = st.readers || [];
  const said = st.state === "dropped" ? "dropped, nothing kept" :
    `events ${count.format(st.floor + 1)} to ${count.format(st.top)} are kept` +
    (readers.length ? "; connections at " + readers.map((r) => `${count.format(r.cursor)} (${r.role})`).join(", ") : "; nobody is connected");
  const svg = element("svg", { viewBox: "0 0 100 16", preserveAspectRatio: "none", role: "img", "aria-label": said }, element("title", {}, said));
  svg.append(element("rect", { class: "gone", x: 0, y: 4, width: 100, height: 8 }));
  if (st.state !== "dropped") {
    for (let i = 1; i < Number(x(st.floor)); i += 2) svg.append(element("line", { class: "stripe", x1: i, x2: i, y1: 4, y2: 12, "vector-effect": "non-scaling-stroke" }));
    svg.append(element("rect", { class: "kept", x: x(st.floor), y: 4, width: x(st.top - st.floor), height: 8 }));
  }
  for (const r of readers) svg.append(element("line", { class: `reader ${r.role === "spare" ? "spare" : ""}`, x1: x(r.cursor), x2: x(r.cursor), y1: 0, y2: 16 }));
  return svg;
}

function streamRow(st) {
  const row = element("div", { class: "stream" });
  row.append(element("span", {}, element("span", { class: "mono" }, st.stream), ` ${st.kind === "own" ? "session's own" : st.kind}, ${st.state}`));
  row.append(bar(st));
  row.append(element("span", { class: "facts" }, `${count.format(st.events)} of ${count.format(st.top)} events, ${bytes(st.bytes)}`));
  return row;
}

// A session's element is kept while it is shown, so that what is folded or
// focused stays so; its content is drawn anew only if it changed.
const shown = new Map();

function sessionBox(s, now) {
  let box = shown.get(s.session);
  if (!box) {
    box = element("details", { class: "session", open: "" }, element("summary"), element("div"));
    shown.set(s.session, box);
  }
  const streams = s.streams.filter((st) => !$("only-running").checked || st.state === "running");
  const facts = [s.client, s.revision, s.principal && `principal ${s.principal}`, s.live ? `seen ${ago(s.seen, now)}` : "kept only",
    s.child ? "process runs" : "no process", `${streams.length} streams`, bytes(s.bytes)].filter(Boolean).join(" · ");
  const key = JSON.stringify([streams, facts]);
  if (box.key !== key) {
    box.key = key;
    box.firstChild.replaceChildren(element("code", {}, s.session), ` ${facts}`);
    box.lastChild.replaceChildren(...streams.map(streamRow));
    if (s.more) box.lastChild.append(element("p", { class: "quiet" }, "and more streams"));
  }
  return box;
}

// arrange puts the children in order and touches only those out of place.
function arrange(parent, children) {
  children.forEach((c, i) => { if (parent.children[i] !== c) parent.insertBefore(c, parent.children[i] || null); });
  while (parent.children.length > children.length) parent.lastElementChild.remove();
}

const servers = new Map();

function drawServers(status) {
  const alive = new Set();
  const boxes = status.servers.map((server) => {
    const name = server.name || "";
    if (!servers.has(name)) servers.set(name, element("div", {}, element("h3"), element("p", { class: "quiet" }), element("div")));
    const box = servers.get(name);
    const [title, note, list] = box.children;
    title.textContent = [server.name, server.url, server.instance && `· instance ${server.instance}`].filter(Boolean).join(" ");
    note.textContent = server.notReady ? `not ready: ${server.notReady}` : server.sessions.length ? "" : "No sessions yet.";
    arrange(list, server.sessions.map((s) => { alive.add(s.session); return sessionBox(s, status.now); }));
    if (server.more) note.textContent += ` The first ${server.sessions.length} sessions are shown.`;
    return box;
  });
  for (const id of shown.keys()) if (!alive.has(id)) shown.delete(id);
  arrange($("servers"), boxes);
}

function drawResumes(resumes) {
  const all = Object.values(resumes).reduce((a, b) => a + b, 0);
  const rows = Object.keys({ ...Object.fromEntries(Object.keys(meaning).map((k) => [k, 0])), ...resumes }).map((result) => {
    const n = resumes[result] || 0;
    const part = all ? 100 * n / all : 0;
    const svg = element("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, element("rect", { class: "kept", x: 0, y: 0, height: 8, width: part.toFixed(2) }));
    return element("tr", {}, element("th", { scope: "row" }, result), element("td", { class: "number" }, count.format(n)),
      element("td", { class: "part" }, svg), element("td", { class: "quiet" }, meaning[result] || ""));
  });
  $("resumes").tBodies[0].replaceChildren(...rows);
}

function drawNow(t) {
  const facts = { sessions: t.sessions, "running calls": t.running, "server processes": t.children, connections: t.connections,
    "events kept": t.retained, "events removed": t.evicted, "foreign resumes": t.foreign,
    errors: Object.values(t.errors).reduce((a, b) => a + b, 0), gaps: Object.values(t.gaps).reduce((a, b) => a + b, 0) };
  $("now").replaceChildren(...Object.entries(facts).map(([name, n]) => element("div", {}, element("dt", {}, name), element("dd", {}, count.format(n)))));
}

function drawDiagnosis(d, now) {
  $("diagnosis-since").textContent = `What was counted since ${ago(d.since, now)}.`;
  const key = JSON.stringify(d.findings);
  if ($("diagnosis").dataset.key === key) return; // or it would be read aloud again
  $("diagnosis").dataset.key = key;
  $("diagnosis").replaceChildren(...d.findings.map((f) =>
    element("li", { class: f.level }, element("b", {}, f.level), ` ${f.text}`, f.action ? ` ${f.action}` : "")));
}

function draw(status) {
  $("about").textContent = `${status.version} · started ${ago(status.since, status.now)}`;
  drawDiagnosis(status.diagnosis, status.now);
  drawNow(status.totals);
  drawResumes(status.totals.resumes);
  drawServers(status);
}

let last = null;

async function ask() {
  try {
    const answer = await fetch("streams", { headers: { Accept: "application/json" }, cache: "no-store" });
    if (!answer.ok) throw new Error(`the answer was ${answer.status}`);
    last = await answer.json();
    draw(last);
    say("live");
  } catch (e) {
    say(`no answer: ${e.message}`);
  }
}

function say(text) { if ($("state").textContent !== text) $("state").textContent = text; }

async function loop() {
  const paused = $("pause").getAttribute("aria-pressed") === "true";
  if (!paused && !document.hidden) await ask();
  setTimeout(loop, every);
}

$("pause").addEventListener("click", () => {
  const paused = $("pause").getAttribute("aria-pressed") !== "true";
  $("pause").setAttribute("aria-pressed", paused);
  say(paused ? "paused" : "live");
});
$("only-running").addEventListener("change", () => last && draw(last));
loop();
