// The page of trireme watch. The server hands out the files of runs as they lie there, and tells which have changed
// (src/watch/server.c); all else is done here. Text from files gets into the page as text alone, never as HTML.

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

// ---- numbers as people read them ----

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

// ---- what is known of the runs ----

const runs = new Map();   // by id: {id, path, name, status, state, problem, files}
const ticked = new Set(); // ids to be compared
let folders = [], cut = false;

const ENDED = ["done", "failed", "stopped"];
const SILENT = 60; // seconds: a run renews its status about once a second

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
    run.status = status ?? run.status ?? {}; // what was read last, if it is torn only now
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

// The text of a file, which is read again when it has changed; null: there is none.
async function text(run, file, from) {
    if (!run.files[file]) return null;
    const key = run.id + " " + file, mark = run.files[file][1], old = cache.get(key);
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

// Columns of a csv file, of which only what is new is read. A run that goes on from a checkpoint cuts it back.
async function table(run, file) {
    if (!run.files[file]) return null;
    const key = run.id + " " + file, [size, mark] = run.files[file];
    let t = cache.get(key);
    if (t?.mark === mark) return t;
    if (!t || t.bytes > size || t.part !== run.status.continued)
        t = { bytes: 0, names: null, column: {}, n: 0, bad: 0, part: run.status.continued };
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

// ---- charts ----

const view = { over: "time", log: false }; // what all charts of a page go over
let cursor = null;                         // where the pointer is, in the unit of that
const charts = new Set();                  // those on the page

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

// The path of a line: of many points that fall into one pixel, the least and the most.
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

// A panel with one chart. spec: {title, lines: [{name, xs, ys, colour}], show (a number as text), log, area (lines are
// stacked shares), marks: [{x, kind, text}], x: {name, show}}
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
        const { lines, log, area, marks = [] } = self.spec;
        const width = drawing.clientWidth || 400, height = drawing.clientHeight || 190;
        title.textContent = self.spec.title;
        drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
        drawing.setAttribute("aria-label", self.spec.title);
        drawing.replaceChildren();
        const scale = v => log ? (v > 0 ? Math.log10(v) : NaN) : v;
        const xr = range(lines.flatMap(l => [l.xs[0], l.xs.at(-1)])), yr = area ? [0, 1] : range(lines.flatMap(l => [...(range(l.ys.map(scale)) ?? [])]));
        if (!xr || !yr) return void drawing.append(svg("text", { x: LEFT, y: height / 2 }, "no values yet"));
        if (xr[0] === xr[1]) xr[1] += xr[1] ? Math.abs(xr[1]) * 1e-3 : 1;
        const span = yr[1] - yr[0] || Math.abs(yr[1]) * 0.1 || 1;
        if (!area) (yr[0] -= span * 0.04, yr[1] += span * 0.06);
        if (!log && !area && yr[0] < 0 && yr[0] > -span * 0.05) yr[0] = 0;
        x = v => LEFT + (v - xr[0]) / (xr[1] - xr[0]) * (width - LEFT - RIGHT);
        back = p => xr[0] + (p - LEFT) / (width - LEFT - RIGHT) * (xr[1] - xr[0]);
        const y = v => height - BOTTOM - (scale(v) - yr[0]) / (yr[1] - yr[0]) * (height - TOP - BOTTOM);
        for (const t of log ? logTicks(...yr) : ticks(...yr, 4)) {
            const at = y(log ? 10 ** t : t);
            drawing.append(svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
                svg("text", { x: LEFT - 6, y: at + 3.5, "text-anchor": "end" }, self.spec.tick?.(log ? 10 ** t : t) ?? number(log ? 10 ** t : t, 4)));
        }
        for (const t of ticks(...xr, width / 90))
            drawing.append(svg("text", { x: x(t), y: height - 5, "text-anchor": "middle" }, self.spec.x.tick(t)));
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

    // Shows what the lines are at the cursor, or at their ends.
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
    time: { name: "time", show: duration, tick: s => s >= 120 ? number(s / 60, 4) + " min" : number(s, 4) + " s" },
    epoch: { name: "epochs", show: e => "epoch " + number(e, 5), tick: e => number(e, 5) },
    updates: { name: "updates", show: u => many(u) + " updates", tick: many },
};

const slope = (a, over) => a.map((v, i) => {
    const change = v - (a[i - 1] ?? 0), length = over[i] - (over[i - 1] ?? 0);
    return change > 0 && length > 0 ? change / length : NaN;
});

// All curves that a metrics.csv has: {key, title, lines: [{name, ys}], …}
function curves(t, rows) {
    const c = t.column, parts = ["compute_seconds", "pull_seconds", "push_seconds", "wait_seconds"].map(name => slope(c[name], c.time));
    const all = i => parts.reduce((sum, part) => sum + (is(part[i]) ? part[i] : 0), 0);
    const list = [
        { key: "objective", title: "objective", lines: [["objective", c.objective]], show: v => number(v, 8), log: view.log },
        { key: "gap", title: "gap to the optimum", lines: [["gap", c.gap]], show: v => is(v) ? v.toExponential(2) : "–", tick: v => number(v, 2), log: true },
        { key: "metric", title: "metric on test data", lines: [["metric", c.test_metric]], show: v => number(v, 5), log: false },
        rows ? { key: "rate", title: "rows per second", lines: [["rows/s", slope(c.epoch.map(e => e * rows), c.time)]], show: many, tick: many }
            : { key: "rate", title: "epochs per second", lines: [["epochs/s", slope(c.epoch, c.time)]], show: v => number(v, 3) },
        { key: "bytes", title: "bytes per second, all workers", lines: [["pulled", slope(c.bytes_pulled, c.time)], ["pushed", slope(c.bytes_pushed, c.time)]], show: bytes, tick: bytes },
        { key: "work", title: "what workers do", area: true, tick: share, show: share,
          lines: ["compute", "pull", "push", "wait"].map((name, k) => [name, parts[k].map((v, i) => all(i) > 0 ? (is(v) ? v : 0) / all(i) : NaN)]) },
        { key: "memory", title: "memory of the largest worker", lines: [["peak", c.peak_rss_bytes]], show: bytes, tick: bytes },
    ];
    return list.filter(curve => curve.lines.some(([, ys]) => ys.some(v => is(v) && (v !== 0 || curve.key === "objective"))));
}

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
let shown = null; // the page on view: {update, ids (those it is about; null: all), keys}

function lines(curve, t, colour) {
    return curve.lines.map(([name, ys], k) => {
        const there = ys.map((v, i) => i).filter(i => is(ys[i]) && is(t.column[view.over][i]));
        return { name, ys: there.map(i => ys[i]), xs: there.map(i => t.column[view.over][i]), colour: colour ?? "c" + k };
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

// All runs.
function listPage() {
    const filter = el("input", { type: "search", placeholder: "filter  ( / )", "aria-label": "filter runs", oninput: update });
    const count = el("span", { class: "soft" }), body = el("tbody"), note = el("div");
    const compare = el("button", { onclick: compareTicked });
    const heads = ["", "run", "state", "objective", "gap", "epoch", "time", "restarts", "host", "started", "curve"];
    const minor = ["gap", "restarts", "host", "started", "curve"], numbers = ["objective", "gap", "epoch", "time", "restarts"];
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
            el("td", {}, stateOfRun(run)), cell("objective", number(s.objective, 8)), cell("gap", is(s.gap) ? s.gap.toExponential(1) : ""),
            cell("epoch", is(s.epoch) ? number(s.epoch, 5) : ""), cell("time", duration(s.seconds)), cell("restarts", s.continued ? String(s.continued) : ""),
            cell("host", String(s.host ?? "")), cell("started", is(Date.parse(s.started)) ? new Date(s.started).toLocaleString() : ""), el("td", { class: "minor" })];
    }
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
            cut && el("p", { class: "note" }, "There are more files below these folders than are looked at: start trireme watch with folders of runs.")].filter(Boolean));
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

// One run.
function runPage(id) {
    const top = el("div"), grid = el("div", { class: "grid" }), rest = el("div", { class: "grid" }), tools = el("div");
    page.replaceChildren(top, tools, grid, rest);
    const drawn = new Map();
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
        const list = isUsable(t) ? curves(t, summary?.rows ?? run.status.rows) : [];
        for (const [key, c] of drawn) if (!list.some(curve => curve.key === key)) (c.node.remove(), charts.delete(c), drawn.delete(key));
        for (const curve of list) {
            if (!drawn.has(curve.key)) (drawn.set(curve.key, chart()), grid.append(drawn.get(curve.key).node));
            drawn.get(curve.key).draw({ ...curve, lines: lines(curve, t), x: OVER[view.over] });
        }
        rest.replaceChildren(...[jobPanel(job)].filter(Boolean));
    }
    return { update, ids: [id], keys: settings };
}

function head(run, summary, problems) {
    const s = run.status, fact = (name, value) => value !== null && value !== undefined && value !== "–" && el("div", {}, el("span", {}, name), el("b", {}, value));
    const metric = ["test_accuracy", "test_auc", "test_rmse", "test_perplexity"].map(name => summary && is(summary[name]) && fact(name.slice(5), number(summary[name], 5)));
    return [el("h1", {}, run.name, " ", el("small", {}, stateOfRun(run))), el("div", { class: "path" }, run.path),
        s.error && el("p", { class: "note bad" }, String(s.error)), ...problems.map(text => el("p", { class: "note" }, text)),
        el("div", { class: "facts" }, fact("objective", number(s.objective, 8)), fact("gap", is(s.gap) ? s.gap.toExponential(2) : null), metric, fact("epoch", number(s.epoch, 5)),
            fact("time", duration(s.seconds)), fact("rows", summary && many(summary.rows)), fact("features", summary && many(summary.features)), fact("ranks", summary && number(summary.ranks)),
            fact("restarts", s.continued ? String(s.continued) : null), fact("host", s.host && String(s.host)), fact("process", is(s.pid) ? String(s.pid) : null))].filter(Boolean);
}

function jobPanel(job) {
    if (!job) return null;
    const chosen = job.split("\n").filter(line => !line.endsWith("# default") && line.trim());
    const kept = chosen.filter((line, i) => !/^\S+:$/.test(line) || /^ /.test(chosen[i + 1] ?? ""));
    const text = el("pre", {}, kept.join("\n")), all = el("button", { onclick: () => { text.textContent = text.textContent === job ? kept.join("\n") : job; } }, "all keys");
    return el("section", { class: "panel wide" }, el("h2", {}, "job", all), text);
}

// ---- which page, keys, and what changes ----

function open() {
    const [, name = "", rest = ""] = /^#\/?(\w*)\/?(.*)$/.exec(location.hash) ?? [];
    charts.clear();
    cursor = null;
    if (name === "run") shown = runPage(decodeURIComponent(rest));
    else shown = listPage();
    document.title = name === "run" ? decodeURIComponent(rest).replace(/^\d+\//, "") + " – trireme" : "trireme watch";
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
    setInterval(() => shown?.ids || shown?.update(), 10000); // who has fallen silent
}
start().catch(() => live(false));
