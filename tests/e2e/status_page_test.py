"""The status page in a headless Chromium, with a real cluster and jobs that train."""

import http.client
import json
import os
import pathlib
import re
import ssl
import subprocess
import unittest
import urllib.error
import urllib.request

from tests.support.browser import CHROMIUM, REASON, Browser
from tests.support.cluster import Cluster, binary, shell_spec, training_spec, wait_until
from tests.support.joined_cluster import JoinedCluster

# Where test_pictures writes the screenshots of the documentation; not set: nowhere.
PICTURES = os.environ.get("MUSTER_PICTURES", "")
WIDE, PHONE = (1280, 900), (360, 740)


def long_training(name, **top):
    return training_spec(name, max_steps=100000, resources={"nodes": 2, "ranks_per_node": 1}, **top)


def token_of(cluster):
    return (pathlib.Path(cluster.directory) / "coordinator" / "token").read_text().strip()


def sign_in(browser, token):
    browser.click("#login")
    browser.wait("document.getElementById('login-dialog').open")
    browser.evaluate("document.getElementById('token').focus()")
    browser.type(token)
    browser.click("#login-submit")
    browser.wait("document.getElementById('login').textContent === 'Sign out'")


def open_page(browser, cluster, *job):
    """Opens the address that `muster page` prints, which signs the browser in."""
    browser.open(cluster.muster("page", *job, "-o", "name").stdout.strip())
    browser.wait("document.getElementById('login').textContent === 'Sign out'")


def open_overview(cluster):
    request = urllib.request.Request(f"http://{cluster.http}/api/overview",
                                     headers={"Authorization": f"Bearer {token_of(cluster)}"})
    return urllib.request.urlopen(request, timeout=10)


def open_streams(cluster):
    """Opens streams of the overview until the coordinator refuses one."""
    streams = []
    try:
        while True:
            streams.append(open_overview(cluster))
    except urllib.error.HTTPError as error:
        assert error.code == 503, error
    return streams


class StreamsTest(unittest.TestCase):
    def test_closed_pages_free_their_streams_though_nothing_changes(self):
        with Cluster(nodes=0) as cluster:
            streams = open_streams(cluster)
            for stream in streams:
                stream.close()
            freed = []
            wait_until(lambda: freed.extend(open_streams(cluster)) or len(freed) == len(streams), 6, "free streams")
            for stream in freed:
                stream.close()


class OpenTest(unittest.TestCase):
    def test_opens_the_browser_where_there_is_a_display(self):
        with Cluster(nodes=0) as cluster:
            opened = cluster.directory / "opened"
            program = cluster.directory / "xdg-open"
            program.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
            program.chmod(0o755)
            page = rf"http://{cluster.http}/#/login/(\w+)\n"

            def muster_page(**env):
                env = {**cluster.client_env(), "DISPLAY": "", "WAYLAND_DISPLAY": "", **env}
                return subprocess.run([binary("cli/muster"), "page"], env=env, text=True, timeout=60, check=True,
                                      capture_output=True).stdout

            self.assertRegex(muster_page(), page)
            self.assertRegex(muster_page(DISPLAY=":0", PATH="/nonexistent"), page)
            self.assertEqual(muster_page(DISPLAY=":0", PATH=f"{program.parent}:/bin"), "")
            wait_until(opened.exists, 10, "the browser is opened")
            code = re.fullmatch(page, opened.read_text())[1]
            request = urllib.request.Request(f"http://{cluster.http}/api/login", method="POST",
                                             headers={"Authorization": f"Login {code}"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                self.assertNotIn("Secure", answer.headers["Set-Cookie"])


class SecuredTest(unittest.TestCase):
    """The page of a cluster of `muster cluster init`, read with Python as the browser."""

    def start(self, **options):
        self.cluster = self.enterContext(JoinedCluster(**options))
        self.address = self.cluster.http.replace("0.0.0.0", "127.0.0.1")

    def request(self, path, method="GET", cookie="", authorization="", until=None):
        """(status, headers, body up to `until` or its end)"""
        context = ssl.create_default_context(cafile=self.cluster.directory / "admin/ca.pem")
        connection = http.client.HTTPSConnection(self.address, context=context, timeout=30)
        headers = {"Cookie": cookie, "Authorization": authorization, "Sec-Fetch-Site": "same-origin"}
        connection.request(method, path, headers={name: value for name, value in headers.items() if value})
        answer = connection.getresponse()
        body = b""
        while (until is None or until.encode() not in body) and (part := answer.read1()):
            body += part
        connection.close()
        return answer.status, answer.headers, body.decode()

    def sign_in(self, authorization):
        status, headers, body = self.request("/api/login", "POST", authorization=authorization)
        return headers["Set-Cookie"].split(";")[0] if status == 200 else (status, body)

    def login_of(self, folder, *words):
        """The page's address that the user of the folder gets, and the code in it."""
        url = json.loads(self.cluster.local("page", *words, "-o", "json", "--config", folder / "config").stdout)["url"]
        begin, login = url.split("#/login/")
        self.assertEqual(begin, f"https://{self.address}/")
        return login

    def test_logins_of_users_show_their_own_logs(self):
        self.start(nodes=1, slots=2)
        alice, bob = self.cluster.issue_user("alice"), self.cluster.issue_user("bob")
        job = self.cluster.local("submit", "--config", alice / "config", "-o", "name", "--", "/bin/echo",
                                 "hello of alice").stdout.strip()
        self.cluster.wait(job)
        self.assertIn("<title>Muster</title>", self.request("/")[2])
        login = self.login_of(alice, job[:-1])
        code, name = login.split("/")
        self.assertEqual(name, job)
        cookie = self.sign_in(f"Login {code}")
        self.assertIn('"user":"alice"', self.request("/api/session", cookie=cookie)[2])
        log = f"/api/log?job={job}&rank=0&stream=stdout"
        self.assertIn("hello of alice", self.request(log, cookie=cookie, until="event: end")[2])
        self.assertIn('"private":true', self.request(f"/api/job?id={job}", cookie=cookie, until="\n\n")[2])
        self.assertEqual(self.sign_in(f"Login {code}")[0], 401, "the second use")

        cookie = self.sign_in(f"Login {self.login_of(bob)}")
        self.assertIn("belongs to alice", self.request(log, cookie=cookie)[2])
        self.assertIn('"private":false', self.request(f"/api/job?id={job}", cookie=cookie, until="\n\n")[2])
        # A session ends with the token of its user.
        tokens = self.cluster.directory / "coordinator/identity/tokens"
        tokens.write_text("".join(line for line in tokens.read_text().splitlines(True) if not line.endswith(" bob\n")))
        wait_until(lambda: "user" not in json.loads(self.request("/api/session", cookie=cookie)[2]), 10,
                   "bob is signed out")
        entries = [entry for entry in self.cluster.audit() if entry["method"] == "CreatePageLogin"]
        self.assertEqual([entry["user"] for entry in entries], ["alice", "bob"])
        self.assertNotIn(code, json.dumps(entries))

    def test_beyond_loopback_nothing_is_shown_without_tls_and_a_sign_in(self):
        self.start(coordinator_flags=["--http=0.0.0.0:0"])
        self.assertEqual(self.request("/api/overview")[0], 401)
        cookie = self.sign_in(f"Login {self.login_of(self.cluster.directory / 'admin')}")
        self.assertIn("event: jobs", self.request("/api/overview", cookie=cookie, until="\n\n")[2])
        for path, status in (("/", 308), ("/api/session", 403), ("/livez", 200)):
            plain = http.client.HTTPConnection(self.address, timeout=30)
            plain.request("GET", path, headers={"Cookie": cookie})
            answer = plain.getresponse()
            self.assertEqual(answer.status, status, path)
            self.assertEqual(answer.getheader("Location"), f"https://{self.address}/" if status == 308 else None)
            plain.close()

    def test_token_signs_in_without_a_certificate(self):
        self.start()
        token = (self.cluster.directory / "admin/admin.token").read_text().strip()
        self.assertIn('"user":"admin"', self.request("/api/session", authorization=f"Bearer {token}")[2])
        status, headers, _ = self.request("/api/login", "POST", authorization=f"Bearer {token}")
        self.assertEqual(status, 200)
        for attribute in ("HttpOnly", "Secure", "SameSite=Strict", "Max-Age=43200"):
            self.assertIn(attribute, headers["Set-Cookie"])
        cookie = headers["Set-Cookie"].split(";")[0]
        self.assertIn('"admin":true', self.request("/api/session", cookie=cookie)[2])
        self.assertEqual(self.request("/api/logout", "POST", cookie=cookie)[0], 200)
        self.assertNotIn('"user"', self.request("/api/session", cookie=cookie)[2])
        answers = {self.sign_in(f"Bearer {number:032}")[0] for number in range(11)}
        self.assertEqual(answers, {401, 429})


@unittest.skipUnless(CHROMIUM, REASON)
class StatusPageTest(unittest.TestCase):
    def check_page(self, browser, what):
        """No errors, no overflow at both widths, and enough contrast in both schemes."""
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            self.assertEqual(browser.low_contrast(), [], f"{what}, {scheme}")
        browser.prefer("light")
        for size in (PHONE, WIDE):
            browser.resize(*size)
            self.assertEqual(browser.overflow(), [], f"{what} at {size[0]} pixels")
        self.assertEqual(browser.problems, [], what)

    def test_curves_move_and_killed_worker_turns_red(self):
        with Cluster(nodes=2, slots=2) as cluster, Browser(*WIDE) as browser:
            job = cluster.submit(long_training("curves"))
            open_page(browser, cluster)
            browser.wait(f"document.querySelector('tbody a')?.textContent === '{job}'")
            browser.wait("document.querySelectorAll('.tile').length === 2")
            browser.wait("document.querySelector('.tile').textContent.includes('busy')")
            self.check_page(browser, "overview")

            browser.click("tbody a")
            path = "document.querySelector('.chart path.line').getAttribute('d')"
            browser.wait(f"{path}.split('L').length > 2", 60)
            drawn = browser.evaluate(path)
            browser.wait(f"{path} !== {json.dumps(drawn)}", 30)
            browser.wait("document.querySelectorAll('.chart path.line').length >= 2")
            browser.wait("document.body.innerText.includes('Goodput')")
            self.assertIn("Ranks of generation 1 (2)", browser.text())
            self.check_page(browser, "job")

            browser.open(f"http://{cluster.http}/#/node/node-2")
            browser.wait("document.querySelector('main').innerText.includes('no problems')")
            browser.wait(f"document.querySelector('main').innerText.includes('{job}')")
            self.check_page(browser, "node")

            browser.open(f"http://{cluster.http}/#/")
            browser.wait("document.querySelectorAll('.tile').length === 2")
            cluster.workers["node-2"].kill()
            browser.wait("document.querySelectorAll('.tile')[1].className.match(/t-(warn|bad)/)", 30)
            browser.wait("document.querySelectorAll('.tile')[1].className.includes('t-bad')", 60)
            self.assertIn("lost", browser.text(".tile:nth-child(2)"))
            self.check_page(browser, "overview with a lost node")
            cluster.muster("cancel", job)
            cluster.start_worker("node-2", 2)
            cluster.wait_for_state(job, "CANCELLED", 60)

    def test_only_counts_are_shown_without_a_sign_in(self):
        with Cluster(nodes=1, slots=2) as cluster, Browser(*WIDE) as browser:
            job = cluster.submit(shell_spec("talks", "sleep 600"))
            cluster.wait_for_state(job, "RUNNING")
            counts = "document.querySelector('main').innerText.includes('1 of 2 busy')"
            browser.open(f"http://{cluster.http}/#/job/{job}")
            browser.wait(counts)
            self.assertIn("Run muster page to open this page signed in", browser.text("main"))
            for private in ("talks", "node-1", "local", "sleep"):
                self.assertNotIn(private, browser.text())
            self.check_page(browser, "without a sign-in")
            sign_in(browser, token_of(cluster))
            browser.wait("document.querySelector('main').innerText.includes('sleep 600')")
            browser.click("#login")
            browser.wait(counts)
            self.assertNotIn("talks", browser.text())

    def test_logs_follow(self):
        script = "for i in $(seq 1 100000); do echo line $i; echo other >&2; sleep 0.2; done"
        with Cluster(nodes=1) as cluster, Browser(*WIDE) as browser:
            job = cluster.submit(shell_spec("talks", script, env={"MY_SECRET_WORD": "sesame"}))
            cluster.wait_for_state(job, "RUNNING")
            open_page(browser, cluster, job)
            browser.wait("document.querySelector('main').innerText.includes('sesame')")
            browser.press("l")
            browser.wait("document.querySelector('pre.log').textContent.includes('line 1\\nother\\n')")
            lines = "document.querySelector('pre.log').textContent.split('\\n').length"
            before = browser.evaluate(lines)
            browser.wait(f"{lines} > {before} + 3")
            self.check_page(browser, "logs")
            cluster.muster("cancel", job)
            browser.wait("document.querySelector('main').innerText.includes('complete')", 30)

    def test_login_of_a_secured_cluster(self):
        with JoinedCluster(nodes=1) as cluster, Browser(*WIDE, flags=["--ignore-certificate-errors"]) as browser:
            job = cluster.submit(shell_spec("talks", "echo of the owner"))
            cluster.wait(job)
            url = cluster.muster("page", job, "-o", "name").stdout.strip()
            browser.open(url)
            browser.wait("document.getElementById('login').textContent === 'Sign out'")
            self.assertEqual(browser.evaluate("location.href"), f"https://{cluster.http}/#/job/{job}")
            self.assertIn("signed in as admin", browser.text("#cluster"))
            browser.evaluate("document.getElementById('log-stream').value = 'stdout'")
            browser.press("l")
            browser.wait("document.querySelector('pre.log').textContent.includes('of the owner')")
            self.check_page(browser, "job")
            self.assertEqual(browser.evaluate("document.cookie"), "")
            browser.click("#login")
            browser.wait("document.getElementById('login').textContent === 'Sign in'")
            # The login was used: the page asks for another one.
            browser.open(url)
            browser.wait("document.getElementById('login-dialog').open")
            self.assertIn("was used or has expired", browser.text("#login-reason"))
            sign_in_again = (cluster.directory / "admin/admin.token").read_text().strip()
            browser.evaluate("document.getElementById('token').focus()")
            browser.type(sign_in_again)
            browser.click("#login-submit")
            browser.wait("document.getElementById('login').textContent === 'Sign out'")

    def test_failed_job_shows_rank_and_reason(self):
        with Cluster(nodes=1) as cluster, Browser(*WIDE) as browser:
            job = cluster.submit(shell_spec("breaks", "exit 7"))
            cluster.wait(job, check=False)
            open_page(browser, cluster, job)
            browser.wait("document.querySelector('main').innerText.includes('First failure')")
            self.assertIn("code 7", browser.text())
            self.assertIn("failed", browser.text("h1"))
            self.check_page(browser, "failed job")

    def test_search_filter_and_compare_by_keyboard(self):
        with Cluster(nodes=1, slots=2) as cluster, Browser(*WIDE) as browser:
            first = cluster.submit(training_spec("first", max_steps=40))
            second = cluster.submit(training_spec("second", max_steps=40))
            for job in (first, second):
                cluster.wait(job)
            open_page(browser, cluster)
            rows = "document.querySelectorAll('tbody tr').length"
            browser.wait(f"{rows} === 2 && document.querySelectorAll('tbody .ok').length >= 2")
            # Tab reaches the skip link first, and everything has a visible focus.
            browser.evaluate("document.body.focus()")
            browser.press("Tab")
            self.assertEqual(browser.evaluate("document.activeElement.className"), "skip")
            seen = []
            for _ in range(40):
                browser.press("Tab")
                seen.append(browser.evaluate("document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
                self.assertNotEqual(browser.evaluate("getComputedStyle(document.activeElement).outlineStyle"), "none", seen[-1])
                if "search" in seen and "tile t-ok" in seen:
                    break
            self.assertIn("search", seen)
            self.assertIn("tile t-ok", seen)

            # In the search field, as after the last Tab, it would be an ordinary character.
            browser.evaluate("document.activeElement.blur()")
            browser.press("/")
            self.assertEqual(browser.evaluate("document.activeElement.id"), "search")
            browser.type("first")
            browser.wait(f"{rows} === 1 && document.querySelector('tbody').innerText.includes('{first}')")
            for _ in "first":
                browser.press("Backspace")
            browser.wait(f"{rows} === 2")
            for row in (1, 2):
                browser.click(f"tbody tr:nth-child({row}) input")
            browser.evaluate("document.activeElement.blur()")
            browser.press("c")
            browser.wait("document.querySelectorAll('.chart path.line').length >= 2")
            self.assertIn(first, browser.text(".legend"))
            self.assertIn(second, browser.text(".legend"))
            self.check_page(browser, "comparison")
            browser.press("?")
            browser.wait("document.getElementById('help-dialog').open")
            self.check_page(browser, "shortcuts")

    def test_open_pages_leave_metrics_and_health_alone(self):
        with Cluster(nodes=1) as cluster:
            base = f"http://{cluster.http}"
            streams = [open_overview(cluster) for _ in range(48)]
            try:
                for stream in streams:
                    self.assertIn(b"event: jobs", stream.readline())
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    open_overview(cluster)
                self.assertEqual(refused.exception.code, 503)
                for path in ("/livez", "/readyz", "/metrics", "/sd", "/"):
                    with urllib.request.urlopen(base + path, timeout=5) as answer:
                        self.assertEqual(answer.status, 200)
            finally:
                for stream in streams:
                    stream.close()

    @unittest.skipUnless(PICTURES, "MUSTER_PICTURES, the folder for the screenshots, is not set")
    def test_pictures(self):
        with Cluster(nodes=6, slots=4) as cluster, Browser(*WIDE) as browser:
            job = cluster.submit(long_training("fashion-mnist", restart={"max": 1}))
            cluster.submit(training_spec("baseline", max_steps=60))
            cluster.submit(shell_spec("preprocess", "sleep 600", nodes=4))
            cluster.submit(shell_spec("large", "sleep 600", nodes=6, ranks=4))
            cluster.muster("node", "cordon", "node-6", "--reason", "fan replaced")
            cluster.wait_for_step(job, 120, 120)
            open_page(browser, cluster)
            browser.wait("document.querySelectorAll('.tile').length === 6 && document.querySelectorAll('tbody tr').length >= 4")
            browser.screenshot(f"{PICTURES}/status_overview.png")
            browser.prefer("dark")
            browser.open(f"http://{cluster.http}/#/job/{job}")
            browser.wait("document.querySelectorAll('.chart path.line').length >= 2")
            browser.screenshot(f"{PICTURES}/status_job_dark.png")
            browser.prefer("light")
            browser.resize(*PHONE)
            browser.open(f"http://{cluster.http}/#/")
            browser.wait("document.querySelectorAll('tbody tr').length >= 4")
            browser.screenshot(f"{PICTURES}/status_phone.png")
            for row in json.loads(cluster.muster("list", "-o", "json").stdout):
                cluster.muster("cancel", row["job_id"])


if __name__ == "__main__":
    unittest.main()
