//! The page in headless Chromium, driven over WebDriver: what the document contains while programs run, stop and end, and what keys, clicks and files
//! do. Contents are compared, not pixels. In the long set, since a browser takes its time.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use verbena_testing::{wait_for, wait_until};

use super::super::running::{Runtime, has_program, write_bw};
use super::{HARMLESS, Page, hostile_program};

/// chromedriver and the browsers that it started; both end with it.
struct Driver {
    child: Child,
    port: u16,
}

/// A browser of its own profile.
struct Browser<'a> {
    driver: &'a Driver,
    session: String,
}

impl Driver {
    /// `None` if this is not a long run, or the machine has no browser.
    fn start() -> Option<Driver> {
        if std::env::var_os("LONG_TESTS").is_none()
            || !has_program("chromium")
            || !has_program("chromedriver")
        {
            return None;
        }
        // Two that start at once may choose the same port, and one ends.
        Some(wait_for("chromedriver", Driver::try_start))
    }

    fn try_start() -> Option<Driver> {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // To end what it has started, too.
            .process_group(0)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut driver = Driver { child, port: 0 };
        driver.port = lines.find_map(|line| {
            let line = line.ok()?;
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        })?;
        // Read on, so that it is not stopped by a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Some(driver)
    }

    /// The value of an answer.
    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = if method == "POST" {
            body.to_string()
        } else {
            String::new()
        };
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .unwrap();
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(answer.read_line(&mut line).unwrap() > 0, "{method} {path}");
            if line.trim_end().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut bytes = vec![0; length];
        answer.read_exact(&mut bytes).unwrap();
        let mut said: Value = serde_json::from_slice(&bytes).unwrap();
        let value = said["value"].take();
        assert!(value.get("error").is_none(), "{method} {path}: {value}");
        value
    }

    fn browser(&self, profile: &Path) -> Browser<'_> {
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--window-size=1280,900",
            &format!("--user-data-dir={}", profile.display()),
        ];
        let options = json!({ "args": arguments });
        let wanted =
            json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let body = json!({ "capabilities": { "alwaysMatch": wanted } });
        let session = self.request("POST", "/session", &body);
        Browser {
            driver: self,
            session: session["sessionId"].as_str().unwrap().to_owned(),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Browser<'_> {
    fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        self.driver.request("POST", &path, body)
    }

    fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// The value of a JavaScript expression.
    fn value(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The text of the first element that a selector finds; empty if there is none.
    fn text(&self, selector: &str) -> String {
        let found = self.value(&format!(
            "(document.querySelector({}) || {{}}).textContent || ''",
            json!(selector)
        ));
        found.as_str().unwrap_or_default().to_owned()
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post(
            "/element",
            &json!({ "using": "css selector", "value": selector }),
        );
        let (_, id) = found.as_object().unwrap().iter().next().unwrap();
        id.as_str().unwrap().to_owned()
    }

    fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into an element; of a file input, the path of the file.
    fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(
            &format!("/element/{element}/value"),
            &json!({ "text": text }),
        );
    }

    fn wait_text(&self, selector: &str, part: &str) {
        let mut last = String::new();
        wait_until(&format!("{part} in {selector}"), || {
            last = self.text(selector);
            last.contains(part)
        });
    }

    /// What the browser complains about: refused scripts, errors, failed requests.
    fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "browser" }));
        let lines = log.as_array().unwrap().iter();
        let messages = lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        // Not those about its own pages.
        messages
            .filter(|text| !text.starts_with("chrome://"))
            .collect()
    }
}

/// A key of WebDriver.
const ENTER: &str = "\u{e007}";
const RIGHT: &str = "\u{e014}";

/// A trace as `verbena trace` writes it: posts with flows to completions of another process, and hostile names.
fn trace(requests: u32) -> String {
    let mut events = vec![
        json!({ "ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": { "name": "<b>client</b>" } }),
        json!({ "ph": "M", "pid": 2, "tid": 1, "name": "process_name", "args": { "name": "server" } }),
        json!({ "ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": { "name": "main" } }),
    ];
    for id in 0..requests {
        let at = f64::from(id) * 10.0;
        let post = if id == 1 {
            "<script>alert(1)</script>"
        } else {
            "post"
        };
        events.push(json!({ "ph": "X", "ts": at, "dur": 2.5, "pid": 1, "tid": 1, "name": post, "cat": "verbs", "args": { "wr_id": id } }));
        events.push(json!({ "ph": "s", "ts": at + 1.0, "pid": 1, "tid": 1, "name": "request", "cat": "flow", "id": id }));
        events.push(json!({ "ph": "X", "ts": at + 4.0, "dur": 3.0, "pid": 2, "tid": 1, "name": "receive", "cat": "wire", "args": {} }));
        events.push(json!({ "ph": "f", "ts": at + 5.0, "pid": 2, "tid": 1, "name": "request", "cat": "flow", "id": id }));
        events.push(json!({ "ph": "i", "ts": at + 8.0, "pid": 2, "tid": 1, "name": "completion", "cat": "verbs", "s": "t" }));
    }
    json!({ "traceEvents": events }).to_string()
}

#[test]
fn page_shows_programs_as_they_run_stop_and_end() {
    let Some(driver) = Driver::start() else {
        return;
    };
    let runtime = Runtime::new();
    let Some((mut server, client)) = write_bw(&runtime) else {
        return;
    };
    let hostile = hostile_program();
    let mut page = Page::start(&runtime, &[]);
    let browser = driver.browser(&runtime.0.join("first"));
    browser.open(&page.url);
    // The token is in the address no more.
    wait_until("an address without the token", || {
        browser.value("location.href") == json!(format!("http://{}/#live", page.address()))
    });
    let row = format!(
        "[...document.querySelectorAll('#pairs tbody')].map(b => b.innerText).find(t => t.includes('{}')) || ''",
        client.pid()
    );
    wait_until("the row of the client", || {
        let text = browser.value(&row).as_str().unwrap_or_default().to_owned();
        text.contains("ib_write_bw") && text.contains("RTS") && text.contains("shared memory")
    });
    wait_until("an edge with its rate", || {
        let labels = browser.value("[...document.querySelectorAll('#topology .label.fill')].map(l => l.textContent).join('\\n')");
        let labels = labels.as_str().unwrap_or_default().to_owned();
        labels
            .lines()
            .any(|label| label.contains("shared memory → "))
    });
    let spark = "Math.max(...[...document.querySelectorAll('.spark .out')].map(l => (l.getAttribute('points') || '').split(' ').length))";
    wait_until("a sparkline", || browser.value(spark).as_u64() >= Some(2));
    // The name of the hostile program is text, in both places.
    for place in ["#pairs", "#topology"] {
        wait_until("the hostile name", || {
            browser.text(place).contains(HARMLESS)
        });
    }
    assert_eq!(
        browser.value("document.querySelectorAll('main img').length"),
        0
    );

    // Attributes of a queue pair, and the filter.
    browser.type_into("#filter", &client.pid().to_string());
    let names = "[...document.querySelectorAll('#pairs .pid')].map(p => p.textContent)";
    wait_until("the client without the server", || {
        let shown = browser.value(names);
        let has = |pid: u32| {
            shown
                .as_array()
                .is_some_and(|all| all.contains(&json!(pid.to_string())))
        };
        has(client.pid()) && !has(server.pid())
    });
    browser.click("#pairs tbody button");
    browser.wait_text("#detail-body", "max_sends");
    assert!(browser.text("#detail-title").contains("ib_write_bw"));
    browser.click("#detail-close");

    // A second browser sees the same at the same time.
    let second = driver.browser(&runtime.0.join("second"));
    second.open(&page.url);
    wait_until("the client in the second browser", || {
        second
            .value(&row)
            .as_str()
            .is_some_and(|text| text.contains("ib_write_bw"))
    });
    // And one with a wrong token nothing, not even the names of programs.
    second.open("about:blank");
    let (start, _) = page.url.split_once('#').unwrap();
    second.open(&format!("{start}#{}", "0".repeat(32)));
    second.wait_text("#notice", "is not that of the running");
    assert_eq!(second.text("#pairs tbody"), "");

    // The peer stops: its cause is told, and it is told after its end.
    server.signal(Signal::STOP);
    browser.click("[data-view=causes]");
    browser.wait_text("#findings", &format!("process {} is stopped", server.pid()));
    // Where it is drawn, too; the server is in the drawing without its queue pairs.
    browser.click("[data-view=live]");
    wait_until("a queue pair that waits in the drawing", || {
        browser.text("#topology").contains("waits · ")
    });
    browser.click("[data-view=causes]");
    assert!(
        browser
            .value("Number(document.getElementById('causes-count').textContent)")
            .as_u64()
            > Some(0)
    );
    server.kill();
    browser.wait_text("#findings", "it was killed or crashed");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");

    // The command ends while pages are open.
    drop(hostile);
    page.interrupt();
    browser.wait_text("#notice", "No answer");
}

#[test]
fn timeline_shows_traces_of_the_command_and_of_the_browser() {
    let Some(driver) = Driver::start() else {
        return;
    };
    let runtime = Runtime::new();
    let (small, large) = (runtime.0.join("small.json"), runtime.0.join("large.json"));
    fs::write(&small, trace(4)).unwrap();
    fs::write(&large, trace(34_000)).unwrap();
    let page = Page::start(&runtime, &["--trace", small.to_str().unwrap()]);
    let browser = driver.browser(&runtime.0.join("profile"));
    browser.open(&page.url);
    browser.wait_text(
        "#trace-info",
        "small.json: 12 events in 38\u{202f}µs, 2 processes, 2 threads, 4 flows",
    );
    assert_eq!(browser.value("location.hash"), "#timeline");
    browser.wait_text("#in-view", "receive");

    // The first event, the next one in its lane, and its flow to the other process.
    browser.type_into("#trace", RIGHT);
    browser.wait_text("#event", "post");
    assert!(browser.text("#event").contains("<b>client</b> 1, main 1"));
    browser.type_into("#trace", RIGHT);
    browser.wait_text("#event h2", "<script>alert(1)</script>");
    browser.wait_text("#event", "2.5\u{202f}µs");
    assert_eq!(
        browser.value("document.querySelectorAll('#event b, #event script').length"),
        0
    );
    browser.click("#event button");
    browser.wait_text("#event h2", "receive");
    assert!(
        browser.text("#event").contains("4\u{202f}µs before"),
        "{}",
        browser.text("#event")
    );
    // Zoomed in to it, others are not in view.
    browser.type_into("#trace", ENTER);
    wait_until("only what is in view", || {
        !browser.text("#in-view").contains("alert")
    });

    // A click on the canvas selects what is drawn there: the first lane of the first thread is below ruler and heading.
    browser.type_into("#trace", "0");
    browser.wait_text("#in-view", "alert");
    let click = "{ const c = document.getElementById('trace'), r = c.getBoundingClientRect(); const x = 176 + (r.width - 176) * 0.02, y = 26 + 22 + 8; \
                 for (const kind of ['pointerdown', 'pointerup']) c.dispatchEvent(new PointerEvent(kind, { pointerId: 1, clientX: r.left + x, clientY: r.top + y, bubbles: true })); }";
    browser.value(&format!("(() => {click})()"));
    browser.wait_text("#event", "post");

    // Found by its arguments.
    browser.type_into("#trace-search", &format!("\"wr_id\":3{ENTER}"));
    browser.wait_text("#trace-info", "event 1 of 1");
    browser.wait_text("#event", "wr_id3");

    // More than 100,000 events, from a file that is chosen in the browser; keys are obeyed at once.
    browser.type_into("#trace-file", large.to_str().unwrap());
    browser.wait_text("#trace-info", "large.json: 102,000 events");
    browser.wait_text("#in-view", "34,000 steps of flows are in view");
    for key in [
        "w", "w", "w", "w", "w", "w", "w", "w", "w", "w", "w", "w", "d", "a",
    ] {
        browser.type_into("#trace", key);
    }
    browser.type_into("#trace", RIGHT);
    browser.wait_text("#event", "post");

    // Files that are no traces.
    let bad = runtime.0.join("bad.json");
    fs::write(&bad, "[]]").unwrap();
    browser.type_into("#trace-file", bad.to_str().unwrap());
    browser.wait_text("#trace-info", "bad.json: ");
    fs::write(&bad, "{\"a\":1}").unwrap();
    browser.type_into("#trace-file", bad.to_str().unwrap());
    browser.wait_text("#trace-info", "no array `traceEvents`");
    // One that was cut off, as by the end of its writer.
    let whole = trace(4);
    fs::write(&bad, &whole[..whole.len() - 30]).unwrap();
    browser.type_into("#trace-file", bad.to_str().unwrap());
    browser.wait_text("#trace-info", "bad.json: 11 events");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}
