"""Requests to trireme watch that must have no effect, and those of its user that must be answered: watch_attacks.py SERVER FOLDER.
SERVER: its standard output; FOLDER: of its runs, with the run "good" and a folder "outside" beside it. Prints the failures.
Requests of another user need root."""
import os, re, shutil, socket, sys, time

said = open(sys.argv[1]).read()
folder = sys.argv[2]
host, port, token = re.search(r"http://\[?([^]\s/?]*?)\]?:(\d+)/\?token=(\w+)", said).groups()
host, port = ("127.0.0.1" if "0.0.0.0" in sys.argv[3:] else host), int(port)
foreign = "0.0.0.0" in sys.argv[3:]
failed = 0


def check(what, value):
    global failed
    if not value:
        failed = 1
        print(f"FAILED: trireme watch at {host}: {what}", flush=True)


def connect(to=host):
    s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET)
    s.settimeout(300)
    s.connect((to, port))
    return s


def send(s, path, *headers, name=None):
    name = name or (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    s.sendall("\r\n".join([f"GET {path} HTTP/1.1", f"Host: {name}", "Connection: close", *headers, "", ""]).encode())


def receive(s, until=None):
    answer = b""
    try:
        while (until is None or until not in answer) and (got := s.recv(65536)):
            answer += got
    except ConnectionError:
        pass
    return answer.decode()


def ask(path, *headers, to=host, half=False, name=None):
    with connect(to) as s:
        send(s, path, *headers, name=name)
        if half:
            s.shutdown(socket.SHUT_WR)
        return receive(s)


def code(answer):
    return answer[9:12]


def as_nobody(act):
    """Runs act() in a process of another user."""
    global failed
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            act()
        except BaseException as error:
            check(f"{type(error).__name__}: {error}", False)
        sys.stdout.flush()
        os._exit(failed)
    failed |= os.waitpid(child, 0)[1] != 0


PAGES = "/", "/watch.js", "/runs", "/events", "/run/0/good/status.json"
COOKIE = f"Cookie: trireme-{port}={token}"


def without_rights():
    who = "no token" if foreign else "another user"
    for to in [host] + ["::ffff:127.0.0.1"] * (host == "127.0.0.1"):
        for half in False, True:
            for path in PAGES:
                answer = ask(path, to=to, half=half)
                check(f"{who}, {path} at {to}, half-closed: {half}: {answer[:200]}", code(answer) == "403" and "0.5" not in answer)
    wrong = "0" * len(token)
    for path, *headers in (f"/runs?token={wrong}",), (f"/runs?token={token[:-1]}",), ("/runs?token=",), ("/runs", f"Cookie: trireme-{port}={wrong}"), ("/runs", f"Cookie: trireme={token}"):
        check(f"wrong token: {path} {headers}", code(ask(path, *headers)) == "403")
    check("the token with the name of another site", code(ask(f"/?token={token}", name="evil.example")) == "403")

    answer = ask(f"/?token={token}")
    check(f"the right token: {answer}", code(answer) == "303" and re.search(r"^Location: /\r$", answer, re.M))
    check(f"its cookie: {answer}", f"Set-Cookie: trireme-{port}={token}; Path=/; HttpOnly; SameSite=Strict\r\n" in answer)
    check("a file with the cookie", '"done"' in ask("/run/0/good/status.json", COOKIE))
    check("the page with the cookie", "<main" in ask("/", COOKIE))
    check("the cookie with the name of another site", code(ask("/runs", COOKIE, name="evil.example")) == "403")

    streams = [connect() for _ in range(13)]
    for s in streams:
        send(s, "/events", COOKIE)
    check("too many streams of one peer", sorted(code(receive(s, b"\r\n")) for s in streams) == 12 * ["200"] + ["503"])
    for s in streams:
        s.close()


def slowly():
    """200 connections with half a request each, while the user of the server gets the page."""
    slow = []
    for _ in range(200):
        slow.append(connect())
        try:
            slow[-1].sendall(b"GET /runs HT")
        except ConnectionError:
            pass
    receive(slow[-1])  # refused
    slow[0].setblocking(False)
    try:
        slow[0].recv(1)
        check("the limit of connections is reached after the first one was closed", False)
    except BlockingIOError:
        pass
    with open("slow", "w"):
        pass
    while not os.path.exists("seen"):
        time.sleep(0.1)
    # a byte now and then does not keep a connection
    while slow:
        for s in slow[:]:
            try:
                s.setblocking(False)
                if s.recv(100) == b"":
                    raise ConnectionError
            except BlockingIOError:
                try:
                    s.sendall(b"T")
                except ConnectionError:
                    pass
            except ConnectionError:
                slow.remove(s)
                s.close()
        time.sleep(1)


def as_owner():
    for half in False, True:
        for path in "/", "/runs", "/run/0/good/status.json":
            answer = ask(path, half=half)
            check(f"the user of the server, {path}, half-closed: {half}: {answer[:200]}", code(answer) == "200")
    answer = ask(f"/?token={token}")
    check(f"the user of the server needs no cookie: {answer}", code(answer) == "303" and "Set-Cookie" not in answer)


def names_and_paths(*headers):
    for name in "evil.example", "127.0.0.1.evil.example", f"[::1]evil.example:{port}", "127.0.0.1:80@evil.example", "localhost.evil.example", "":
        answer = ask("/runs", *headers, name=name or " ")
        check(f"Host {name}: {answer[:200]}", code(answer) in ("400", "403"))
    for site in "cross-site", "same-site":
        check(f"a request of a page of another site: {site}", code(ask("/runs", f"Sec-Fetch-Site: {site}", *headers)) == "403")
    check("a request of the page", code(ask("/runs", "Sec-Fetch-Site: same-origin", *headers)) == "200")
    answer = ask("/", *headers)
    for header in "Content-Security-Policy: default-src 'none'", "Cross-Origin-Resource-Policy: same-origin", "Cross-Origin-Opener-Policy: same-origin", "X-Content-Type-Options: nosniff", "Cache-Control: no-store":
        check(f"no header {header}", header in answer)
    for path in ("/run/0/../outside/status.json", "/run/0/%2e%2e/outside/status.json", "/run/0/good/../../outside/status.json", "/run/0/good/..%2f..%2foutside/status.json",
                 "/run/0/link/status.json", "/run/0/good%00/status.json", "/run/0//good/status.json", "/run//status.json", "/run/0/links/status.json"):
        answer = ask(path, *headers)
        check(f"{path}: {answer}", code(answer) == "404" and "secret" not in answer)
    check("links are not listed", not re.search("link|secret", ask("/runs", *headers)))
    answer = ask("/runs", "X: " + "x" * 100000, *headers)
    check(f"a request of 100 kB: {answer[:100]}", code(answer) in ("", "413", "414", "431"))

    # a folder that becomes a link after the scan
    for _ in range(5):
        shutil.copytree(f"{folder}/good", f"{folder}/swapped")
        while "0/swapped" not in ask("/runs", *headers):
            time.sleep(0.1)
        os.rename(f"{folder}/swapped", f"{folder}/.away")
        os.symlink(os.path.abspath("outside"), f"{folder}/swapped")
        answer = ask("/run/0/swapped/status.json", *headers)
        check(f"a folder that was replaced by a link: {answer}", code(answer) == "404" and "secret" not in answer)
        os.remove(f"{folder}/swapped")
        shutil.rmtree(f"{folder}/.away")


if foreign:
    without_rights()
    names_and_paths(COOKIE)
else:
    as_owner()
    names_and_paths()
    if os.geteuid() == 0:
        as_nobody(without_rights)
        for name in "slow", "seen":
            if os.path.exists(name):
                os.remove(name)
        os.chmod(".", 0o777)
        child = os.fork()
        if child == 0:
            as_nobody(slowly)
            open("slow", "w").close()
            os._exit(failed)
        while not os.path.exists("slow"):
            time.sleep(0.1)
        for _ in range(20):
            check("the page beside 200 slow connections of another user", code(ask("/")) == "200")
        check("a stream beside them", receive(connection, b"all is well") if send(connection := connect(), "/events") is None else "")
        open("seen", "w").close()
        failed |= os.waitpid(child, 0)[1] != 0
    check("the server still answers", code(ask("/runs")) == "200")
sys.exit(failed)
