"""What a browser shows of the runs that test_watch.sh has made up, and of one that trains meanwhile (real: six ranks, of which
two are slow, under a supervisor): watch_in_browser.py URL FOLDER-OF-RUNS URL-WITH-TOKEN. The third one is of a server that requires
the token. Says what is wrong; pictures are in ./pictures."""
import json, os, signal, sys, time
from browser import browser

url, folder, with_token = sys.argv[1:]
HEADER = "when,time,epoch,updates,rank,event,text\n"


def check(what, value):
    if not value:
        print("FAILED: in the browser:", what)


def write(name, text, how="w"):
    with open(os.path.join(folder, name), how) as file:
        file.write(text)


def train(run, objective, ranks=4096, slow=()):
    """One that is under way, on so many ranks."""
    now = time.time()
    utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    os.makedirs(os.path.join(folder, run), exist_ok=True)
    write(run + "/ranks.json", json.dumps({"does": "-" + "c" * (ranks - 1), "node": [r // 64 for r in range(ranks)], "clock": [-1] + [8] * (ranks - 1),
                                           "compute": [0] + [16 if r in slow else 8 for r in range(1, ranks)], "held": [0] + [3e6] * (ranks - 1), "serving": [0] + [0.5] * (ranks - 1), "updated": int(now)}))
    write(run + "/status.json", json.dumps({"state": "training", "epoch": 8, "objective": objective, "seconds": 8, "host": "far", "started": utc, "updated": utc}))


def objective(page):
    """That the curve of the run has come to."""
    return float(page.js("document.querySelector('.chart h2 b').textContent") or "nan")


def a_real_run(page, show):
    """Its objective falls, its slow workers are told; a rank is killed."""
    page.open(url + "/#/run/0%2Freal")
    check("a curve of the real run", page.until("Number(document.querySelector('.chart h2 b')?.textContent) > 0"))
    first = objective(page)
    check("its objective falls", page.until(f"Number(document.querySelector('.chart h2 b').textContent) < {first}"))
    check("its two slow workers", page.until("/slow: ranks \\d+ \\([\\d.]+×\\), \\d+ \\([\\d.]+×\\)/.test(%s)" % show))
    check("what its server holds", page.until("/servers hold [\\d.,]+ k?B at most/.test(%s)" % show))
    with open(os.path.join(folder, "real/status.json")) as file:
        os.kill(json.load(file)["pid"], signal.SIGKILL)
    check("the killed rank is red", page.until("(document.querySelector('.dying')?.getAttribute('d') ?? 'undefined') !== 'undefined'"))
    check("the mark of the restart", page.until("document.querySelector('.chart .mark.restart') !== null"))
    os.makedirs("pictures", exist_ok=True)
    for width in (1280, 400):
        for dark in (False, True):
            page.look(width, dark=dark)
            page.screenshot(f"pictures/{width}-{'dark' if dark else 'light'}.png")
    page.look(1280)


with browser() as page:
    show = "document.querySelector('main').innerText"
    train("live", 0.75, slow=(77, 3000))
    page.look(1280)
    page.open(url)
    check("the list", page.until("document.querySelectorAll('.runs tbody tr').length > 4 && document.querySelector('#live.on') !== null"))
    check("a run named <script>", page.until(show + ".includes('<script>alert(1)<')"))
    check("a torn status", page.js(show + ".includes('status.json is torn')"))
    check("no element comes from a name", page.js("document.querySelector('main script, main img') === null"))
    page.key("/")
    check("/ filters", page.js("document.activeElement.type === 'search'"))
    for letter in "good":
        page.key(letter)
    check("the filter", page.until("document.querySelectorAll('.runs tbody tr').length === 1"))
    for key in ("Escape", "j", "x", "Enter"):
        page.key(key)
    check("Enter opens the run", page.until("location.hash === '#/run/0%2Fgood'"))
    check("its curve", page.until("document.querySelector('.chart .line')?.getAttribute('d').startsWith('M')"))
    check("its objective", page.js(show + ".includes('0.5')"))
    bars = "[...document.querySelectorAll('.gantt rect')].map(bar => bar.getAttribute('x') + ' ' + bar.getAttribute('width')).join()"
    check(f"stages from where they began: {page.js(bars)}", page.js(bars) == "0% 75%,25% 75%")
    check("the log at its end", page.js("(pre => pre.scrollTop > 0 && pre.scrollTop + pre.clientHeight > pre.scrollHeight - 3)(document.querySelector('pre'))"))
    check("its job, without what is default", page.js("/train: \\[a.svm\\]/.test(%s) && !/dealt/.test(%s)" % (show, show)))
    write("good/metrics.csv", "3,3,3,0.4375,1e-3,0.8,300,300,3,3,1.5,0.3,0.3,0.3,1000,3,3\n", "a")
    check("a new line of metrics appears", page.until("document.querySelector('.chart h2 b').textContent === '0.4375'"))

    page.open(url + "/#/run/0%2Fgone")
    check("torn metrics", page.until(show + ".includes('2 lines cannot be read') || " + show + ".includes('1 line cannot be read')"))

    page.open(url + "/#/run/0%2Flive")
    check("4096 ranks", page.until(show + ".includes('4096 ranks')"))
    check("stragglers", page.until(show + ".includes('slow: ranks 77 (2.0×), 3000 (2.0×)')"))
    check("what servers hold", page.js(show + ".includes('servers hold 3 MB at most; the busiest has served for')"))
    write("live/events.csv", HEADER + f"{time.time():.0f},,8,,812,failure,rank 812 was killed by SIGKILL\n{time.time():.0f},8,8,64,,restart,checkpoint 1 at clock 8\n")
    check("a dead rank is red", page.until("(document.querySelector('.dying')?.getAttribute('d') ?? 'undefined') !== 'undefined'"))
    check("its events", page.js(show + ".includes('rank 812 was killed by SIGKILL')"))
    train("live", 0.625)
    check("a new objective", page.until(show + ".includes('0.625')"))
    check("nobody is slow any more", page.until(show + ".includes('no worker is slower')"))

    a_real_run(page, show)
    page.look(400, dark=True)
    for where in ("/#/", "/#/run/0%2Fgood", "/#/run/0%2Flive", "/#/compare/0%2Fgood,0%2Fgone"):
        page.open(url + where)
        page.until("document.querySelectorAll('main .panel, main tbody tr').length > 1")
        check(f"{where} fits 400 pixels", page.until("document.documentElement.scrollWidth <= 400", 5))
    check("the dark is dark", page.js("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 26)")
    check("two runs are compared", page.until("document.querySelectorAll('.chart .line').length > 1"))
    page.open(with_token)
    check("the page with a token is live", page.until("location.search === '' && document.querySelector('#live.on') !== null"))
    check("its list", page.until("document.querySelectorAll('.runs tbody tr').length > 4"))
    check("scripts cannot read the cookie", page.js("document.cookie") == "")
    check(f"complaints: {page.complaints}", not page.complaints)
    elsewhere = [asked for asked in page.asked if not asked.startswith((url, with_token.split("?")[0], "data:", "about:"))]
    check(f"it asks elsewhere: {elsewhere}", not elsewhere)
