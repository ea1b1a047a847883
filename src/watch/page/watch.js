// The page of trireme watch. The server (src/watch/server.c) sends the files of runs unchanged, and reports which have
// changed; this script parses and draws them. Text from files is only added as text nodes and attribute values, never as
// HTML, and links are built from encoded ids.

// ---- elements ----

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
        if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
        else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(9).filter(child => child !== null && child !== undefined && child !== false));
    return node;
}
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

// ---- formatting of numbers ----

const is = x => typeof x === "number" && Number.isFinite(x);

function number(x, digits = 6) {
    if (!is(x)) return "–";
    if (x !== 0 && (Math.abs(x) < 1e-4 || Math.abs(x) >= 1e7)) return x.toExponential(2);
    return String(+x.toPrecision(digits));
}

function many(x) {
    if (!is(x)) return "–";
    for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
        if (Math.abs(x) >= size) return +(x / size).toPrecision(3) + unit;
    return String(+x.toPrecision(3));
}
const bytes = x => is(x) ? many(x).replace(/([TGMk]?)$/, " $1B") : "–";
const share = x => is(x) ? Math.round(100 * x) + " %" : "–";

function duration(s) {
    if (!is(s)) return "–";
    if (s < 60) return (s < 10 ? s.toFixed(2) : s.toFixed(1)) + " s";
    const two = x => String(Math.floor(x)).padStart(2, "0");
    if (s < 3600) return Math.floor(s / 60) + ":" + two(s % 60) + " min";
    return Math.floor(s / 3600) + ":" + two(s / 60 % 60) + ":" + two(s % 60) + " h";
}

// ---- state of the runs ----

const runs = new Map();   // by id: {id, path, name, status, state, problem, files}
const ticked = new Set(); // ids of the runs to compare
let folders = [], cut = false;

const ENDED = ["done", "failed", "stopped"];
const SILENT = 60; // seconds without an update of status.json, which a run writes about once a second

function take(entry) {
    if (!entry.path) return runs.delete(entry.id);
    const run = runs.get(entry.id) ?? { id: entry.id, files: {} };
    const [folder, ...rest] = entry.id.split("/");
    run.name = rest.join("/") || folders[folder]?.split("/").pop() || entry.id;
    run.path = entry.path;
    run.files = entry.files;
    run.problem = null;
    let status = null;
    try {
        status = entry.status ? JSON.parse(entry.status) : null;
        if (entry.status && (typeof status !== "object" || status === null)) throw null;
        if (!status) run.problem = "status.json is missing or empty";
    } catch {
        run.problem = "status.json is torn: it cannot be read now";
    }
    run.status = status ?? run.status ?? {}; // the last complete status if the current one is incomplete
    run.updated = Date.parse(run.status.updated);
    run.shown = null;
    return runs.set(run.id, run);
}

function stateOf(run) {
    const state = typeof run.status.state === "string" ? run.status.state : "unreadable";
    if (ENDED.includes(state) || state === "unreadable") return state;
    return Date.now() - run.updated > 1000 * SILENT ? "silent" : state;
}

function stateOfRun(run) {
    const state = stateOf(run);
    const since = state === "silent" ? " " + duration((Date.now() - run.updated) / 1000) : "";
    const known = [...ENDED, "starting", "loading", "training", "writing", "silent", "unreadable"].includes(state);
    return el("span", { class: "state " + (known ? state : "") }, state + since);
}

// ---- files of runs ----

const address = (run, file) => "/run/" + run.id.split("/").map(encodeURIComponent).join("/") + "/" + file;

async function get(run, file, from = 0) {
    const answer = await fetch(address(run, file) + (from ? "?from=" + from : ""));
    if (!answer.ok) throw new Error(file + ": " + (await answer.text()).trim());
    return new Uint8Array(await answer.arrayBuffer());
}

const cache = new Map(); // "id file" -> {mark, value}

// The text of a file, read again if the file has changed; null: the run has no such file.
async function text(run, file, from) {
    if (!run.files[file]) return null;
    const key = run.id + " " + file + (from ?? ""), mark = run.files[file][1], old = cache.get(key);
    if (old?.mark === mark) return old.value;
    const value = new TextDecoder().decode(await get(run, file, from));
    cache.set(key, { mark, value });
    return value;
}

async function json(run, file, problems) {
    const value = await text(run, file).catch(error => (problems.push(error.message), null));
    try {
        return value ? JSON.parse(value) : null;
    } catch {
        problems.push(file + " is torn: it cannot be read now");
        return null;
    }
}

// The columns of a CSV file. Reads only new lines, or the whole file if it has become shorter: a run that resumes from a
// checkpoint truncates it.
async function table(run, file) {
    if (!run.files[file]) return null;
    const key = run.id + " " + file, [size, mark] = run.files[file];
    let t = cache.get(key);
    if (t?.mark === mark) return t;
    if (!t || t.bytes > size || t.part !== run.status.continued)
        t = { bytes: 0, names: null, column: Object.create(null), n: 0, bad: 0, part: run.status.continued };
    for (let whole = 1; whole > 0;) {
        const got = await get(run, file, t.bytes);
        whole = got.lastIndexOf(10) + 1;
        t.bytes += whole;
        for (const line of new TextDecoder().decode(got.subarray(0, whole)).split("\n")) if (line) addLine(t, line);
    }
    t.mark = mark;
    cache.set(key, t);
    return t;
}

function addLine(t, line) {
    const fields = line.split(",");
    if (!t.names) {
        t.names = fields;
        for (const name of fields) t.column[name] = [];
        return;
    }
    const values = fields.map(field => field === "" ? NaN : Number(field));
    if (fields.length !== t.names.length || values.some((value, i) => Number.isNaN(value) && fields[i] !== "" && t.names[i] !== "event")) {
        t.bad++;
        return;
    }
    t.names.forEach((name, i) => t.column[name].push(name === "event" ? fields[i] : values[i]));
    t.n++;
}

// The events of a run: checkpoints, restarts, failures.
async function events(run, problems) {
    const all = await text(run, "events.csv").catch(error => (problems.push(error.message), null));
    return (all ?? "").split("\n").slice(1, -1).map(line => {
        const [when, time, epoch, updates, rank, event, ...words] = line.split(","), value = field => field ? Number(field) : NaN;
        const rest = words.join(","), said = rest.startsWith('"') ? rest.slice(1, -1).replaceAll('""', '"') : rest;
        return { when: value(when), time: value(time), epoch: value(epoch), updates: value(updates), rank: value(rank), event, text: said };
    }).filter(e => e.event);
}

// ---- charts ----

const view = { over: "time", log: false }; // x axis of all charts, and whether the objective is logarithmic
let cursor = null;                         // position of the pointer in units of the x axis; null: none
const charts = new Set();                  // the charts on the page

function ticks(low, high, wanted) {
    const raw = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find(m => m * power >= raw) * power, list = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) list.push(+(i * step).toPrecision(12));
    return list;
}

function logTicks(low, high) {
    const list = [], first = Math.floor(low), last = Math.ceil(high), step = Math.ceil((last - first) / 5);
    for (let i = first; i <= last; i += step) list.push(i);
    if (high - low < 1.5) for (let i = first; i <= last; i++) for (const m of [2, 5]) list.push(i + Math.log10(m));
    return list.filter(x => x >= low - 1e-9 && x <= high + 1e-9);
}

function range(values) {
    let low = Infinity, high = -Infinity;
    for (const x of values) if (is(x)) (low = Math.min(low, x), high = Math.max(high, x));
    return low <= high ? [low, high] : null;
}

// The SVG path of a line. Of the points in one pixel column it has the first, last, lowest and highest.
function path(xs, ys, x, y) {
    let d = "", pen = "M", pixel = null;
    const flush = () => {
        if (!pixel) return;
        for (const i of [...new Set([pixel.first, ...[pixel.low, pixel.high].sort((a, b) => a - b), pixel.last])]) {
            d += pen + x(xs[i]).toFixed(1) + " " + y(ys[i]).toFixed(1);
            pen = "L";
        }
        pixel = null;
    };
    for (let i = 0; i < xs.length; i++) {
        const at = is(y(ys[i])) ? Math.round(x(xs[i])) : null;
        if (at === null) { flush(); pen = "M"; continue; }
        if (pixel?.at !== at) { flush(); pixel = { at, first: i, low: i, high: i }; }
        pixel.last = i;
        if (ys[i] < ys[pixel.low]) pixel.low = i;
        if (ys[i] > ys[pixel.high]) pixel.high = i;
    }
    flush();
    return d;
}

function nearest(xs, x) {
    let low = 0, high = xs.length - 1;
    if (high < 0) return -1;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (xs[middle] < x) low = middle;
        else high = middle;
    }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

// A panel with one chart. spec: {title, lines: [{name, xs, ys, colour}], show (formats a number), log, area (stacked
// shares instead of lines), marks: [{x, kind, text}], x: {name, show}}
function chart() {
    const value = el("b"), title = el("span"), legend = el("div", { class: "legend" });
    const drawing = svg("svg", { tabindex: 0, role: "img" });
    const node = el("section", { class: "panel chart" }, el("h2", {}, title, value), drawing, legend);
    const self = { node, spec: null, draw, follow };
    const LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 20;
    let x = null, back = null, line = null;

    function draw(spec) {
        self.spec = spec ?? self.spec;
        if (!self.spec || !node.isConnected) return;
        const { lines, log, area, zero, marks = [] } = self.spec;
        const width = drawing.clientWidth || 400, height = drawing.clientHeight || 190;
        title.textContent = self.spec.title;
        drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
        drawing.setAttribute("aria-label", self.spec.title);
        drawing.replaceChildren();
        const scale = v => log ? (v > 0 ? Math.log10(v) : NaN) : v;
        const xr = range(lines.flatMap(l => [l.xs[0], l.xs.at(-1)])), yr = area ? [0, 1] : range(lines.flatMap(l => [...(range(l.ys.map(scale)) ?? [])]));
        if (!xr || !yr) return void drawing.append(svg("text", { x: LEFT, y: height / 2 }, "no values yet"));
        if (xr[0] === xr[1]) xr[1] += xr[1] ? Math.abs(xr[1]) * 1e-3 : 1;
        if (zero && yr[0] > 0) yr[0] = 0;
        const span = yr[1] - yr[0] || Math.abs(yr[1]) * 0.1 || 1;
        if (!area) (yr[0] -= span * 0.04, yr[1] += span * 0.06);
        if (!log && yr[0] < 0 && yr[0] > -span * 0.05) yr[0] = 0;
        x = v => LEFT + (v - xr[0]) / (xr[1] - xr[0]) * (width - LEFT - RIGHT);
        back = p => xr[0] + (p - LEFT) / (width - LEFT - RIGHT) * (xr[1] - xr[0]);
        const y = v => height - BOTTOM - (scale(v) - yr[0]) / (yr[1] - yr[0]) * (height - TOP - BOTTOM);
        for (const t of log ? logTicks(...yr) : ticks(...yr, 4)) {
            const at = y(log ? 10 ** t : t);
            drawing.append(svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
                svg("text", { x: LEFT - 6, y: at + 3.5, "text-anchor": "end" }, self.spec.tick?.(log ? 10 ** t : t) ?? number(log ? 10 ** t : t, 4)));
        }
        for (const t of ticks(...xr, width / 70))
            drawing.append(svg("text", { x: x(t), y: height - 5, "text-anchor": "middle" }, self.spec.x.tick(t, xr[1])));
        for (const mark of marks)
            if (mark.x >= xr[0] && mark.x <= xr[1])
                drawing.append(svg("line", { class: "mark " + mark.kind, x1: x(mark.x), x2: x(mark.x), y1: TOP, y2: height - BOTTOM }, svg("title", {}, mark.text)));
        let below = null;
        for (const l of lines) {
            if (!area) drawing.append(svg("path", { class: "line " + l.colour, d: path(l.xs, l.ys, x, y) }));
            else {
                const sum = l.ys.map((v, i) => v + (below?.[i] ?? 0));
                const edge = path([...l.xs, ...l.xs.toReversed()], [...sum, ...(below ?? l.xs.map(() => 0)).toReversed()], v => x(v), y);
                drawing.append(svg("path", { class: "area " + l.colour, d: edge + "Z" }));
                below = sum;
            }
        }
        line = svg("line", { class: "cursor", y1: TOP, y2: height - BOTTOM });
        drawing.append(line);
        follow();
    }

    // Shows the values of the lines at the cursor, or their last values.
    function follow() {
        if (!self.spec || !line) return;
        const { lines, show } = self.spec, away = cursor === null;
        line.setAttribute("visibility", away ? "hidden" : "visible");
        if (!away) fill(line, { x1: x(cursor), x2: x(cursor) }, []);
        const at = l => l.ys[away ? l.ys.length - 1 : nearest(l.xs, cursor)];
        value.textContent = lines.length === 1 ? show(at(lines[0])) + (away ? "" : " at " + self.spec.x.show(cursor)) : away ? "" : self.spec.x.show(cursor);
        legend.replaceChildren(...lines.length === 1 ? [] : lines.map(l => el("span", {}, el("i", { class: l.colour }), l.name + " ", el("b", {}, show(at(l))))));
    }

    const move = to => { cursor = to; charts.forEach(c => c.follow()); };
    drawing.addEventListener("pointermove", e => back && move(back(Math.max(LEFT, e.clientX - drawing.getBoundingClientRect().left))));
    drawing.addEventListener("pointerleave", () => move(null));
    drawing.addEventListener("blur", () => move(null));
    drawing.addEventListener("keydown", e => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key], xs = self.spec?.lines[0]?.xs;
        if (!step || !xs?.length) return;
        e.preventDefault();
        move(xs[Math.max(0, Math.min(xs.length - 1, cursor === null ? xs.length - 1 : nearest(xs, cursor) + step))]);
    });
    new ResizeObserver(() => draw()).observe(drawing);
    charts.add(self);
    return self;
}

// ---- curves of a run ----

const OVER = {
    time: { name: "time", show: duration, tick: (s, most) => most >= 18000 ? number(s / 3600, 4) + " h" : most >= 300 ? number(s / 60, 4) + " min" : number(s, 4) + " s" },
    epoch: { name: "epochs", show: e => "epoch " + number(e, 5), tick: e => number(e, 5) },
    updates: { name: "updates", show: u => many(u) + " updates", tick: many },
};

const slope = (a, over) => a.map((v, i) => {
    const change = v - (a[i - 1] ?? 0), length = over[i] - (over[i - 1] ?? 0);
    return change > 0 && length > 0 ? change / length : NaN;
});

// The curves in a metrics.csv: [{key, title, lines: [{name, ys}], …}]
function curves(t, { status, summary }) {
    const rows = summary?.rows ?? status.rows, metric = status.metric ? status.metric + " on test data" : "metric on test data";
    const c = t.column, parts = ["compute_seconds", "pull_seconds", "push_seconds", "wait_seconds"].map(name => slope(c[name], c.time));
    const all = i => parts.reduce((sum, part) => sum + (is(part[i]) ? part[i] : 0), 0);
    const list = [
        { key: "objective", title: "objective", lines: [["objective", c.objective]], show: v => number(v, 8), log: view.log },
        { key: "gap", title: "gap to the optimum", lines: [["gap", c.gap]], show: v => is(v) ? v.toExponential(2) : "–", tick: v => number(v, 2), log: true },
        { key: "metric", title: metric, lines: [["metric", c.test_metric]], show: v => number(v, 5), log: false },
        rows ? { key: "rate", title: "rows per second", lines: [["rows/s", slope(c.epoch.map(e => e * rows), c.time)]], show: many, tick: many, zero: true }
            : { key: "rate", title: "epochs per second", lines: [["epochs/s", slope(c.epoch, c.time)]], show: v => number(v, 3), zero: true },
        { key: "bytes", title: "bytes of all workers", lines: [["pulled", slope(c.bytes_pulled, c.time)], ["pushed", slope(c.bytes_pushed, c.time)]], show: v => bytes(v) + "/s", tick: bytes, zero: true },
        { key: "work", title: "what workers do", area: true, tick: share, show: share,
          lines: [["compute", "c0"], ["pull", "c2"], ["push", "c5"], ["wait", "c7"]].map(([name, own], k) => [name, parts[k].map((v, i) => all(i) > 0 ? (is(v) ? v : 0) / all(i) : NaN), own]) },
        { key: "memory", title: "memory of the largest worker", lines: [["peak", c.peak_rss_bytes]], show: bytes, tick: bytes, zero: true },
    ];
    return list.filter(curve => curve.lines.some(([, ys]) => ys.some(v => is(v) && (v !== 0 || curve.key === "objective"))));
}

// A gap that is not proven is marked by ~.
const gapOf = (s, digits) => is(s.gap) ? s.gap.toExponential(digits) : is(s.estimated_gap) ? "~" + s.estimated_gap.toExponential(digits) : "";
const REQUIRED = ["time", "epoch", "objective", "gap", "test_metric", "bytes_pulled", "bytes_pushed", "compute_seconds",
    "wait_seconds", "pull_seconds", "push_seconds", "peak_rss_bytes", "updates"];

function problemsOf(t) {
    const lacking = t?.names && REQUIRED.filter(name => !t.column[name]);
    if (lacking?.length) return ["metrics.csv has no " + lacking.join(", ")];
    return t?.bad ? [`metrics.csv: ${t.bad} ${t.bad === 1 ? "line" : "lines"} cannot be read, and ${t.bad === 1 ? "is" : "are"} left out`] : [];
}
const isUsable = t => t?.names && REQUIRED.every(name => t.column[name]);

// ---- pages ----

const page = document.getElementById("page");
let shown = null; // the current page: {update, ids (of its runs; undefined: all), keys}

function lines(curve, t, colour) {
    return curve.lines.map(([name, ys, own], k) => {
        const there = ys.map((v, i) => i).filter(i => is(ys[i]) && is(t.column[view.over][i]));
        return { name, ys: there.map(i => ys[i]), xs: there.map(i => t.column[view.over][i]), colour: colour ?? own ?? "c" + k };
    });
}

function axes() {
    const button = (pressed, text, key, act) => el("button", { "aria-pressed": String(pressed), title: "key " + key, onclick: act }, text);
    return el("span", { class: "tools" },
        el("span", { class: "group" }, Object.entries(OVER).map(([over, { name }]) => button(view.over === over, name, name[0], () => choose({ over })))),
        button(view.log, "log", "l", () => choose({ log: !view.log })));
}

function choose(changes) {
    Object.assign(view, changes);
    cursor = null;
    shown?.update();
}

const settings = { e: () => choose({ over: "epoch" }), t: () => choose({ over: "time" }), u: () => choose({ over: "updates" }), l: () => choose({ log: !view.log }) };

// The list of all runs.
function listPage() {
    const filter = el("input", { type: "search", placeholder: "filter  ( / )", "aria-label": "filter runs", oninput: update });
    const count = el("span", { class: "soft" }), body = el("tbody"), note = el("div");
    const compare = el("button", { onclick: compareTicked });
    const heads = ["", "run", "state", "objective", "gap", "epoch", "time", "left", "restarts", "host", "started", "curve"];
    const minor = ["gap", "left", "restarts", "host", "started", "curve"], numbers = ["objective", "gap", "epoch", "time", "left", "restarts"];
    page.replaceChildren(el("div", { class: "tools" }, filter, count, el("span", { class: "grow" }), compare), note,
        el("table", { class: "runs" }, el("thead", {}, el("tr", {}, heads.map(h => el("th", { class: numbers.includes(h) ? "n" : "" }, h)))), body));
    const rows = new Map();
    let at = null, order = [];

    function compareTicked() {
        if (ticked.size > 0) location.hash = "#/compare/" + [...ticked].map(encodeURIComponent).join(",");
    }
    function cells(run) {
        const s = run.status;
        const cell = (name, text) => el("td", { class: (numbers.includes(name) ? "n" : "") + (minor.includes(name) ? " minor" : ""), "data-name": name }, text);
        const box = el("input", { type: "checkbox", "aria-label": "compare " + run.name, onchange: () => tick(run.id) });
        box.checked = ticked.has(run.id);
        return [el("td", {}, box),
            el("td", { class: "name" }, el("a", { href: link(run.id) }, run.name), s.error ? el("div", { class: "bad" }, String(s.error)) : run.problem && el("div", { class: "bad" }, run.problem)),
            el("td", {}, stateOfRun(run)), cell("objective", number(s.objective, 8)), cell("gap", gapOf(s, 1)),
            cell("epoch", is(s.epoch) ? number(s.epoch, 5) : ""), cell("time", duration(s.seconds)), cell("left", is(s.left) && stateOf(run) !== "silent" ? duration(s.left) : ""), cell("restarts", s.continued ? String(s.continued) : ""),
            cell("host", String(s.host ?? "")), cell("started", is(Date.parse(s.started)) ? new Date(s.started).toLocaleString() : ""), sketch(run)];
    }
    // A small curve of the objective, drawn when the row becomes visible.
    function sketch(run) {
        const cell = el("td", { class: "minor" });
        cell.run = run;
        if (run.files["metrics.csv"]) seen.observe(cell);
        return cell;
    }
    async function drawSketch(cell) {
        const all = await text(cell.run, "metrics.csv", -32768).catch(() => ""), rows = all.split("\n").slice(1, -1).map(line => line.split(","));
        const xs = rows.map(row => Number(row[0])), ys = rows.map(row => row[3] ? Number(row[3]) : NaN), xr = range(xs), yr = range(ys);
        if (!xr || !yr) return;
        const x = v => 1 + (v - xr[0]) / (xr[1] - xr[0] || 1) * 88, y = v => 16 - (v - yr[0]) / (yr[1] - yr[0] || 1) * 14;
        cell.replaceChildren(svg("svg", { viewBox: "0 0 90 18", class: "sketch" }, svg("path", { class: "line c0", d: path(xs, ys, x, y) })));
    }
    const seen = new IntersectionObserver(found => {
        for (const { target, isIntersecting } of found) if (isIntersecting) (seen.unobserve(target), drawSketch(target));
    });
    function tick(id) {
        if (!ticked.delete(id)) ticked.add(id);
        const run = runs.get(id);
        if (run) run.shown = null;
        update();
    }
    function update() {
        const wanted = filter.value.trim().toLowerCase();
        order = [...runs.values()].filter(run => !wanted || (run.name + " " + stateOf(run) + " " + run.status.host).toLowerCase().includes(wanted))
            .sort((a, b) => ENDED.includes(stateOf(a)) - ENDED.includes(stateOf(b)) || (b.updated || 0) - (a.updated || 0) || (a.id < b.id ? -1 : 1));
        for (const run of order) {
            const row = rows.get(run.id) ?? el("tr", {});
            rows.set(run.id, row);
            const state = stateOf(run) + ticked.has(run.id);
            if (run.shown !== row || row.state !== state) row.replaceChildren(...cells(run));
            run.shown = row;
            row.state = state;
            row.classList.toggle("at", run.id === at);
        }
        const wantedRows = order.map(run => rows.get(run.id));
        if (wantedRows.length !== body.children.length || wantedRows.some((row, i) => body.children[i] !== row)) body.replaceChildren(...wantedRows);
        const running = order.filter(run => !ENDED.includes(stateOf(run)) && stateOf(run) !== "unreadable").length;
        count.textContent = `${order.length} ${order.length === 1 ? "run" : "runs"}, ${running} under way`;
        compare.textContent = `compare ${ticked.size || ""} (c)`;
        compare.disabled = ticked.size === 0;
        note.replaceChildren(...[runs.size === 0 && el("p", { class: "note" }, "No run lies in " + folders.join(", ") + " or below yet: a run is a folder with status.json, metrics.csv or summary.json."),
            cut && el("p", { class: "note" }, "The list is incomplete: these folders contain too many files. Start trireme watch with the folders of the runs.")].filter(Boolean));
    }
    function step(by) {
        const i = order.findIndex(run => run.id === at), next = order[Math.max(0, Math.min(order.length - 1, i + by))];
        if (!next) return;
        at = next.id;
        update();
        rows.get(at).scrollIntoView({ block: "nearest" });
    }
    return { update, keys: { "/": () => filter.focus(), j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
        Enter: () => at && (location.hash = link(at)), x: () => at && tick(at), c: compareTicked } };
}

const link = id => "#/run/" + encodeURIComponent(id);

// The page of one run.
function runPage(id) {
    const top = el("div"), grid = el("div", { class: "grid" }), rest = el("div", { class: "grid" }), tools = el("div");
    page.replaceChildren(top, tools, grid, rest);
    const drawn = new Map(), ranksView = ranksPanel();
    let busy = false, again = false;

    async function update() {
        if (busy) return void (again = true);
        busy = true;
        await show().catch(error => rest.replaceChildren(el("p", { class: "note bad" }, error.message)));
        busy = false;
        if (again) (again = false, update());
    }
    async function show() {
        const run = runs.get(id), problems = [];
        if (!run) return top.replaceChildren(el("p", { class: "note bad" }, "There is no run " + id + " any more."));
        const t = await table(run, "metrics.csv").catch(error => (problems.push(error.message), null));
        const summary = await json(run, "summary.json", problems);
        const job = await text(run, "job.yaml").catch(() => null);
        if (run.problem) problems.push(run.problem);
        problems.push(...problemsOf(t));
        top.replaceChildren(...head(run, summary, problems));
        tools.replaceChildren(axes());
        const happened = await events(run, problems), ranks = await json(run, "ranks.json", problems);
        const log = await text(run, "log", -16384).catch(() => null);
        const list = isUsable(t) ? curves(t, { status: run.status, summary }) : [];
        const marks = happened.filter(e => is(e[view.over]) && e.event !== "failure").map(e => ({ x: e[view.over], kind: e.event, text: e.event + ": " + e.text }));
        for (const [key, c] of drawn) if (!list.some(curve => curve.key === key)) (c.node.remove(), charts.delete(c), drawn.delete(key));
        for (const curve of list) {
            if (!drawn.has(curve.key)) (drawn.set(curve.key, chart()), grid.append(drawn.get(curve.key).node));
            drawn.get(curve.key).draw({ ...curve, lines: lines(curve, t), marks, x: OVER[view.over] });
        }
        const logged = log && el("pre", {}, log);
        rest.replaceChildren(...[tasksPanel(run), stagesPanel(summary), happened.length && eventsPanel(happened),
            log && el("section", { class: "panel wide" }, el("h2", {}, "last lines of the log"), logged), job && jobPanel(job)].filter(Boolean));
        if (logged) logged.scrollTop = logged.scrollHeight;
        const under = !ENDED.includes(stateOf(run)) || run.status.state === "failed";
        if (!ranks || !under || !ranksAre(ranks)) return void ranksView.node.remove();
        if (!ranksView.node.isConnected) grid.before(ranksView.node);
        ranksView.draw(ranks, happened);
    }
    return { update, ids: [id], keys: settings };
}

function head(run, summary, problems) {
    const s = run.status, fact = (name, value) => value !== null && value !== undefined && value !== "–" && el("div", {}, el("span", {}, name), el("b", {}, value));
    const metric = Object.keys(summary ?? {}).filter(name => name.startsWith("test_") && is(summary[name])).map(name => fact(name.slice(5), number(summary[name], 5)));
    return [el("h1", {}, run.name, " ", el("small", {}, stateOfRun(run))), el("div", { class: "path" }, run.path),
        s.error && el("p", { class: "note bad" }, String(s.error)), ...problems.map(text => el("p", { class: "note" }, text)),
        el("div", { class: "facts" }, fact("objective", number(s.objective, 8)), fact("gap", gapOf(s, 2) || null), metric, fact("epoch", number(s.epoch, 5)),
            fact("time", duration(s.seconds)), fact("at most left", is(s.left) ? duration(s.left) : null), fact("rows", many((summary?.rows ?? s.rows) || NaN)), fact("features", summary && many(summary.features)), fact("ranks", summary && number(summary.ranks)),
            fact("restarts", s.continued ? String(s.continued) : null), fact("host", s.host && String(s.host)), fact("process", is(s.pid) ? String(s.pid) : null))].filter(Boolean);
}

// ---- ranks ----

const DOES = { c: ["computes", "c0"], e: ["evaluates", "c6"], p: ["pulls", "c2"], u: ["pushes", "c5"], w: ["waits", "c7"], s: ["saves", "c4"],
    "-": ["serves or stands by", "idle"], "?": ["is on another node", "idle"], x: ["has died", "dead"] };
const SLOW = 1.3; // times the median seconds per clock

const ranksAre = r => typeof r.does === "string" && ["node", "clock", "compute"].every(name => Array.isArray(r[name]) && r[name].length === r.does.length);

// A grid of ranks, coloured by state, with seconds per clock and progress of each worker below it.
function ranksPanel() {
    const said = el("b"), drawing = svg("svg", { tabindex: 0, role: "img", "aria-label": "ranks" }), legend = el("div", { class: "legend" }), slow = el("div"), servers = el("div", { class: "soft" });
    const clocks = svg("svg", { class: "clocks", role: "img", "aria-label": "clocks of the workers" });
    const node = el("section", { class: "panel wide ranks" }, el("h2", {}, "ranks", said), el("div", { class: "both" }, drawing, el("div", {}, clocks, slow, servers)), legend);
    let at = null, describe = () => "", n = 0, columns = 1, size = 10;

    function draw(r, happened) {
        n = r.does.length;
        const dead = new Map(happened.filter(e => e.event === "failure" && is(e.rank) && e.when + 5 > r.updated).map(e => [e.rank, e.text]));
        const does = [...r.does].map((letter, rank) => dead.has(rank) ? "x" : DOES[letter] ? letter : "?");
        const pace = r.clock.map((clock, rank) => clock > 0 && r.compute[rank] > 0 ? r.compute[rank] / clock : NaN);
        const sorted = pace.filter(is).sort((a, b) => a - b), median = sorted[(sorted.length - 1) >> 1];
        const slower = pace.map(p => p / median > SLOW && sorted.length > 2);
        grid(does, slower);
        bars(pace, median, slower, r.clock);
        const count = letter => does.filter(d => d === letter).length;
        legend.replaceChildren(...Object.entries(DOES).filter(([letter]) => count(letter)).map(([letter, [name, colour]]) => el("span", {}, el("i", { class: colour }), name + " ", el("b", {}, String(count(letter))))));
        const names = slower.flatMap((is, rank) => is ? [rank] : []);
        slow.replaceChildren(names.length ? el("span", { class: "warn" }, `slow: ${names.length === 1 ? "rank" : "ranks"} ${names.slice(0, 12).map(rank => `${rank} (${(pace[rank] / median).toFixed(1)}×)`).join(", ")}${names.length > 12 ? ` and ${names.length - 12} more` : ""}`)
            : el("span", { class: "soft" }, sorted.length > 2 ? "no worker is slower than the others" : ""));
        const holds = r.held ?? [], most = Math.max(0, ...holds), busiest = Math.max(0, ...r.serving ?? []);
        servers.textContent = most > 0 ? `servers hold ${bytes(most)} at most; the busiest has served for ${duration(busiest)}` : "";
        describe = rank => [`rank ${rank}`, `node ${r.node[rank]}`, dead.get(rank) ?? DOES[does[rank]][0], r.clock[rank] >= 0 && `clock ${r.clock[rank]}`, is(pace[rank]) && duration(pace[rank]) + " a clock", slower[rank] && (pace[rank] / median).toFixed(1) + "× the median",
            holds[rank] > 0 && `holds ${bytes(holds[rank])}, has served for ${duration(r.serving?.[rank])}`].filter(Boolean).join(" · ");
        say();
    }
    const say = () => { said.textContent = at === null || at >= n ? `${n} ${n === 1 ? "rank" : "ranks"}` : describe(at); };

    function grid(does, slower) {
        const width = drawing.parentNode.clientWidth * (innerWidth > 720 ? 0.5 : 1) - 10;
        size = n <= 64 ? 26 : Math.max(5, Math.min(n <= 300 ? 16 : n <= 1200 ? 11 : 8, Math.floor(width / 64)));
        columns = Math.max(1, Math.min(n, Math.floor(width / size)));
        if (n > 16 && columns > 16) columns -= columns % 16;
        const height = Math.ceil(n / columns) * size, gap = size > 10 ? 2 : 1, paths = {};
        drawing.setAttribute("viewBox", `0 0 ${columns * size} ${height}`);
        drawing.setAttribute("width", columns * size);
        drawing.setAttribute("height", height);
        const square = rank => `M${rank % columns * size} ${Math.floor(rank / columns) * size}h${size - gap}v${size - gap}h${gap - size}z`;
        does.forEach((letter, rank) => { paths[letter] = (paths[letter] ?? "") + square(rank); });
        drawing.replaceChildren(...Object.entries(paths).map(([letter, d]) => svg("path", { class: "cell " + DOES[letter][1], d })),
            svg("path", { class: "dying", d: paths.x }),
            svg("path", { class: "slow", d: slower.map((is, rank) => is ? square(rank) : "").join("") }),
            ...n <= 64 ? does.map((_, rank) => svg("text", { x: rank % columns * size + (size - gap) / 2, y: Math.floor(rank / columns) * size + size / 2 + 2.5, "text-anchor": "middle" }, String(rank))) : []);
    }

    // Two bar charts over the workers: seconds per clock with the median, and clocks behind the fastest worker.
    function bars(pace, median, slower, clock) {
        const width = clocks.clientWidth || 400, HEIGHT = 52, most = Math.max(...pace.filter(is), 0), first = Math.max(...clock), step = width / n;
        const wide = Math.max(step * 0.8, 0.6), lag = Math.max(4, ...clock.map(c => c >= 0 ? first - c : 0)), d = { fine: "", slow: "", lag: "" };
        const bar = (rank, top, high) => `M${(rank * step).toFixed(2)} ${top}v${(-high).toFixed(1)}h${wide.toFixed(2)}v${high.toFixed(1)}z`;
        pace.forEach((p, rank) => {
            if (is(p)) d[slower[rank] ? "slow" : "fine"] += bar(rank, HEIGHT + 14, p / most * HEIGHT);
            if (clock[rank] >= 0 && clock[rank] < first) d.lag += bar(rank, 2 * HEIGHT + 34, (first - clock[rank]) / lag * HEIGHT);
        });
        clocks.setAttribute("viewBox", `0 0 ${width} ${2 * HEIGHT + 36}`);
        const y = HEIGHT + 14 - median / most * HEIGHT, low = 2 * HEIGHT + 34;
        clocks.replaceChildren(svg("text", { x: 0, y: 9 }, is(median) ? `a clock: ${duration(median)} in the median, ${duration(most)} at most` : "no clock has ended yet"),
            svg("path", { class: "cell c0", d: d.fine }), svg("path", { class: "cell c1", d: d.slow }),
            svg("text", { x: 0, y: HEIGHT + 29 }, `clocks behind the foremost, which is at ${first}`), svg("path", { class: "cell c7", d: d.lag }),
            svg("line", { class: "axis", x1: 0, x2: width, y1: low, y2: low }), is(y) && svg("line", { class: "cursor", x1: 0, x2: width, y1: y, y2: y }));
    }

    drawing.addEventListener("pointermove", e => {
        const box = drawing.getBoundingClientRect(), column = Math.floor((e.clientX - box.left) / box.width * columns), rank = Math.floor((e.clientY - box.top) / box.width * columns) * columns + column;
        at = column < columns && rank < n ? rank : null;
        say();
    });
    for (const away of ["pointerleave", "blur"]) drawing.addEventListener(away, () => { at = null; say(); });
    drawing.addEventListener("keydown", e => {
        const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[e.key];
        if (!by) return;
        e.preventDefault();
        at = Math.max(0, Math.min(n - 1, (at ?? -by) + by));
        say();
    });
    return { node, draw };
}

// ---- stages, tasks and events ----

// rows: [{name, from, length (seconds), colour, text, href}]
function gantt(title, rows) {
    const end = Math.max(...rows.map(row => row.from + row.length)), begin = Math.min(...rows.map(row => row.from)), percent = x => 100 * x / (end - begin || 1) + "%";
    return el("section", { class: "panel wide gantt" }, el("h2", {}, title, el("b", {}, duration(end - begin))), rows.map(row => el("div", { class: "row" },
        row.href ? el("a", { href: row.href }, row.name) : el("span", {}, row.name),
        svg("svg", { height: 16 }, svg("rect", { class: "cell " + row.colour, x: percent(row.from - begin), width: percent(row.length), height: 16 })), el("span", { class: "soft" }, row.text))));
}

// Each stage is drawn from its first clock to its last, so stages that alternate overlap.
function stagesPanel(summary) {
    if (!Array.isArray(summary?.stages) || summary.stages.length === 0) return null;
    return gantt("stages", summary.stages.map((stage, i) => {
        const from = is(stage.begin_seconds) ? stage.begin_seconds : 0, to = is(stage.end_seconds) ? stage.end_seconds : from;
        const workers = stage.fewest_workers === stage.most_workers ? number(stage.most_workers) : number(stage.fewest_workers) + " to " + number(stage.most_workers);
        return { name: String(stage.name), from, length: to - from, colour: "c" + i % 8,
            text: `${duration(stage.seconds)} at work from ${duration(from)} on, ${number(stage.clocks)} clocks, ${workers} ${workers === "1" ? "worker" : "workers"}` };
    }));
}

function tasksPanel(run) {
    if (!Array.isArray(run.status.tasks)) return null;
    const colours = { done: "c0", running: "c6", failed: "dead", stopped: "c1" };
    const rows = run.status.tasks.map(task => {
        const own = [...runs.values()].find(other => other.id.startsWith(run.id + "/") && String(task.output).endsWith("/" + other.path.split("/").pop()));
        const began = Date.parse(own?.status.started) / 1000;
        return { name: String(task.name), from: began, length: is(task.seconds) ? task.seconds : 0, colour: colours[task.state] ?? "idle", href: own && link(own.id),
            text: [String(task.state), is(task.ranks) && task.ranks + " ranks", is(task.objective) && number(task.objective, 6), task.error && String(task.error)].filter(Boolean).join(", ") };
    });
    const first = Math.min(...rows.map(row => row.from).filter(is));
    for (const row of rows) if (!is(row.from)) row.from = is(first) ? first : 0;
    return gantt("tasks", rows);
}

function eventsPanel(happened) {
    return el("section", { class: "panel wide" }, el("h2", {}, "events"), el("table", {}, el("tbody", {}, happened.filter((e, i) => e.event !== "checkpoint" || i >= happened.length - 4).slice(-12).toReversed().map(e =>
        el("tr", {}, el("td", { class: "mono" }, is(e.when) ? new Date(1000 * e.when).toLocaleString() : ""), el("td", { class: e.event === "failure" ? "bad" : "" }, e.event),
            el("td", { class: "mono" }, is(e.epoch) ? "epoch " + number(e.epoch, 5) : ""), el("td", { class: "words" }, e.text))))));
}

function jobPanel(job) {
    const chosen = job.split("\n").filter(line => !line.endsWith("# default") && line.trim());
    const kept = chosen.filter((line, i) => !/^\S+:$/.test(line) || /^ /.test(chosen[i + 1] ?? ""));
    const text = el("pre", {}, kept.join("\n")), all = el("button", { onclick: () => { text.textContent = text.textContent === job ? kept.join("\n") : job; } }, "all keys");
    return el("section", { class: "panel wide" }, el("h2", {}, "job", all), text);
}

// The comparison of several runs: curves in common charts, outcomes, and differences of their jobs.
function comparePage(ids) {
    const names = el("div", { class: "legend" }), grid = el("div", { class: "grid" }), rest = el("div", { class: "grid" }), tools = el("div");
    const drawn = new Map(), wanted = ["objective", "gap", "metric", "rate"];
    page.replaceChildren(el("h1", {}, "compare"), names, tools, grid, rest);
    async function update() {
        const chosen = ids.map(id => runs.get(id)).filter(Boolean).slice(0, 16), problems = [];
        const loaded = await Promise.all(chosen.map(async (run, i) => ({ run, colour: "c" + i % 8, job: await text(run, "job.yaml").catch(() => null), summary: await json(run, "summary.json", problems),
            t: await table(run, "metrics.csv").catch(() => null) })));
        names.replaceChildren(...loaded.map(({ run, colour }) => el("a", { href: link(run.id) }, el("i", { class: colour }), run.name)));
        tools.replaceChildren(axes());
        const drawable = loaded.filter(({ t }) => isUsable(t)), counted = drawable.every(({ summary, run }) => summary?.rows ?? run.status.rows);
        for (const key of wanted) {
            const each = drawable.flatMap(({ t, run, colour, summary }) => curves(t, counted ? { status: run.status, summary } : { status: { metric: run.status.metric } }).filter(curve => curve.key === key)
                .map(curve => ({ curve, line: { ...lines(curve, t, colour)[0], name: run.name } })));
            if (each.length === 0) continue;
            if (!drawn.has(key)) (drawn.set(key, chart()), grid.append(drawn.get(key).node));
            drawn.get(key).draw({ ...each[0].curve, lines: each.map(one => one.line), x: OVER[view.over] });
        }
        rest.replaceChildren(...[outcomes(loaded), differences(loaded), problems.length && el("p", { class: "note wide" }, problems.join("; "))].filter(Boolean));
    }
    return { update, ids, keys: settings };
}

function side(title, heads, rows) {
    return el("section", { class: "panel wide" }, el("h2", {}, title), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th"), heads.map(({ run, colour }) => el("th", {}, el("i", { class: "dot " + colour }), run.name)))),
        el("tbody", {}, rows.map(([name, cells]) => el("tr", {}, el("td", { class: "soft" }, name), cells.map(cell => el("td", { class: "mono" }, cell))))))));
}

function outcomes(loaded) {
    const of = (summary, name) => summary?.[name], each = (name, show) => [name.replaceAll("_", " "), loaded.map(({ summary, run }) => show(of(summary, name) ?? run.status[{ epochs: "epoch", total_seconds: "seconds" }[name] ?? name]))];
    const rows = [["state", loaded.map(({ run }) => stateOfRun(run))], each("objective", v => number(v, 8)), ...["gap", "test_accuracy", "test_auc", "test_rmse", "test_perplexity"].map(name => each(name, v => number(v, 5))),
        each("epochs", v => number(v, 5)), each("train_seconds", duration), each("total_seconds", duration), each("bytes_pulled", bytes), each("bytes_pushed", bytes), each("peak_rss_bytes", bytes), each("ranks", v => number(v))];
    return side("outcome", loaded, rows.filter(([, cells]) => cells.some(cell => cell !== "–")));
}

// The keys of a job.yaml in the format that a run writes: section.key from the indentation, without comments.
function keysOf(job) {
    const keys = new Map(), above = [];
    for (const line of (job ?? "").split("\n")) {
        const [, indent, name, value] = /^( *)(?:- )?([^\s:#][^:]*):(?: (.*?))?(?:\s+#.*)?$/.exec(line) ?? [];
        if (name === undefined) continue;
        above.length = indent.length / 2;
        above.push(name);
        if (value) keys.set(above.join("."), value.trim());
    }
    return keys;
}

function differences(loaded) {
    loaded = loaded.filter(({ job }) => job);
    const jobs = loaded.map(({ job }) => keysOf(job)), all = [...new Set(jobs.flatMap(keys => [...keys.keys()]))];
    const rows = all.filter(key => new Set(jobs.map(keys => keys.get(key))).size > 1 && !["name", "output"].includes(key)).map(key => [key, jobs.map(keys => keys.get(key) ?? "–")]);
    return rows.length ? side("where the jobs differ", loaded, rows) : null;
}

// ---- navigation, keys, updates ----

function open() {
    const [, name = "", rest = ""] = /^#\/?(\w*)\/?(.*)$/.exec(location.hash) ?? [];
    charts.clear();
    cursor = null;
    if (name === "run") shown = runPage(decodeURIComponent(rest));
    else if (name === "compare") shown = comparePage(rest.split(",").map(decodeURIComponent));
    else shown = listPage();
    document.title = name === "run" ? decodeURIComponent(rest).replace(/^\d+\//, "") + " – trireme" : name === "compare" ? "compare – trireme" : "trireme watch";
    shown.update();
    scrollTo(0, 0);
}

document.addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey || document.getElementById("help").open) return;
    const typing = e.target.matches("input[type=search]");
    if (e.key === "Escape") return typing ? e.target.blur() : void (location.hash = "#/");
    if (typing && e.key !== "Enter") return;
    if (e.key === "?") return document.getElementById("help").showModal();
    if (e.key === "Enter" && e.target.matches("a, button, summary")) return;
    const act = shown?.keys?.[e.key];
    if (act && !e.defaultPrevented) (e.preventDefault(), act());
});
document.getElementById("keys").addEventListener("click", () => document.getElementById("help").showModal());
addEventListener("hashchange", open);

let pending = new Set();
function changed(id) {
    if (pending.size === 0) setTimeout(() => {
        const ids = pending;
        pending = new Set();
        if (!shown?.ids || shown.ids.some(one => ids.has(one))) shown?.update();
    }, 100);
    pending.add(id);
}

function live(on) {
    const sign = document.getElementById("live");
    sign.textContent = on ? "live" : "trireme watch does not answer";
    sign.className = on ? "on" : "off";
}

async function start() {
    const all = await (await fetch("/runs")).json();
    ({ folders, cut } = all);
    document.getElementById("where").textContent = folders.join("  ");
    for (const run of all.runs) take(run);
    open();
    const events = new EventSource("/events?since=" + all.look);
    events.onopen = () => live(true);
    events.onerror = () => live(false);
    events.onmessage = e => { const entry = JSON.parse(e.data); take(entry); changed(entry.id); };
    setInterval(() => shown?.ids || shown?.update(), 10000); // runs that have become silent
}
start().catch(() => live(false));
