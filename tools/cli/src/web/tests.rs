//! The page over HTTP: what is served without the token, what is refused, and files that are no traces.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::*;

/// A page that ends with the test, and a folder for its traces.
struct Page {
    at: SocketAddr,
    token: String,
    folder: PathBuf,
    _stop: UnixStream,
}

impl Page {
    fn new(test: &str) -> Page {
        let folder =
            std::env::temp_dir().join(format!("verbena-web-{}-{test}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let trace = folder.join("trace.json");
        std::fs::write(&trace, "{\"traceEvents\":[]}").unwrap();
        let web = Web::listen(([127, 0, 0, 1], 0).into(), vec![trace]).unwrap();
        let url = web.url().unwrap();
        let at = web.server.address().unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        std::thread::spawn(move || web.serve_until(stopped));
        Page {
            at,
            token: url.rsplit_once('#').unwrap().1.to_owned(),
            folder,
            _stop: stop,
        }
    }

    fn trace(&self) -> PathBuf {
        self.folder.join("trace.json")
    }

    /// The answer to a request with these further fields.
    fn get(&self, path: &str, fields: &str) -> String {
        let mut client = TcpStream::connect(self.at).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.at);
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn allowed(&self, path: &str) -> String {
        self.get(path, &format!("Authorization: Bearer {}\r\n", self.token))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn status(answer: &str) -> &str {
    let first = answer.lines().next().unwrap_or("");
    first.strip_prefix("HTTP/1.1 ").unwrap_or(first)
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn data_is_given_with_the_token_only() {
    let page = Page::new("token");
    let token = page.token.clone();
    let wrong = "0".repeat(token.len());
    let refused = [
        String::new(),
        format!("Authorization: Bearer {wrong}\r\n"),
        format!("Authorization: Bearer {token}0\r\n"),
        format!("Authorization: Bearer {}\r\n", &token[1..]),
        "Authorization: Bearer \r\n".to_owned(),
        format!("Authorization: {token}\r\n"),
        format!("Cookie: token={token}\r\n"),
        format!("Referer: http://{}/#{token}\r\n", page.at),
        format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {wrong}\r\n"),
        format!("Authorization: Bearer {token}\r\nSec-Fetch-Site: cross-site\r\n"),
        format!("Authorization: Bearer {token}\r\nSec-Fetch-Site: same-site\r\n"),
        format!("Authorization: Bearer {token}\r\nHost: evil.example\r\n"),
    ];
    for path in [
        "/api/hello",
        "/api/state",
        "/api/trace/0",
        "/api/object/1/0/1",
        "/api/x",
    ] {
        for fields in &refused {
            let answer = page.get(path, fields);
            assert_eq!(status(&answer), "403 Forbidden", "{path} {fields}");
            assert_eq!(body(&answer), "403 Forbidden\n");
        }
        let in_address = page.get(&format!("{path}?token={token}"), "");
        assert_eq!(status(&in_address), "403 Forbidden");
    }
    let hello: serde_json::Value = serde_json::from_str(body(&page.allowed("/api/hello"))).unwrap();
    assert_eq!(hello["traces"], serde_json::json!(["trace.json"]));
    let state: serde_json::Value = serde_json::from_str(body(&page.allowed("/api/state"))).unwrap();
    for part in ["processes", "findings", "labs"] {
        assert!(state.get(part).is_some(), "{state}");
    }
    let same_origin = format!("Authorization: Bearer {token}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(status(&page.get("/api/hello", &same_origin)), "200 OK");
}

#[test]
fn page_is_the_same_without_the_token_and_has_a_strict_policy() {
    let page = Page::new("policy");
    for (path, kind, text) in FILES {
        let answer = page.get(path, "");
        assert_eq!((status(&answer), body(&answer)), ("200 OK", text), "{path}");
        assert!(!answer.contains(&page.token));
        for field in [
            format!("Content-Type: {kind}\r\n"),
            "Content-Security-Policy: default-src 'none'; script-src 'self'; ".to_owned(),
            "X-Content-Type-Options: nosniff\r\n".to_owned(),
            "Referrer-Policy: no-referrer\r\n".to_owned(),
            "Cache-Control: no-store\r\n".to_owned(),
        ] {
            assert!(answer.contains(&field), "{path}: {field}");
        }
    }
    // Nothing comes from elsewhere, and no text becomes code or elements.
    for (path, _, text) in FILES {
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !elsewhere.contains("http://") && !elsewhere.contains("https://"),
            "{path}"
        );
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            " style=",
            "javascript:",
        ] {
            assert!(!text.contains(word), "{path}: {word}");
        }
    }
    let html = FILES.iter().find(|(path, ..)| *path == "/").unwrap().2;
    assert_eq!(html.matches("<script").count(), 1);
    assert_eq!(
        html.matches("<script type=\"module\" src=\"/page.js\"></script>")
            .count(),
        1
    );
    // Every module that is imported is served.
    for (path, _, text) in FILES {
        for import in text.split(" from \"./").skip(1) {
            let name = import.split('"').next().unwrap();
            let served = FILES.iter().any(|(path, ..)| path[1..] == *name);
            assert!(served, "{path} imports {name}");
        }
    }
}

#[test]
fn paths_lead_to_no_file() {
    let page = Page::new("paths");
    for path in [
        "/../Cargo.toml",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/style.css/",
        "/./style.css",
        "/api/trace/../../../etc/passwd",
        "/api/trace/-1",
        "/api/trace/1",
        "/api/trace/0/0",
        "/api/trace/99999999999999999999",
        "/api/trace/",
        "/api/object/1",
        "/api/object/1/0/1/0",
        "/api/object/x/0/1",
        "/api/object/../0/1",
        "/api/",
    ] {
        let answer = page.allowed(path);
        assert_eq!(status(&answer), "404 Not Found", "{path}");
    }
    // A process that is none.
    let answer = page.allowed("/api/object/4294967295/0/1");
    assert_eq!(status(&answer), "409 Conflict", "{answer}");
    assert!(body(&answer).contains("there is no process"), "{answer}");
}

#[test]
fn trace_is_read_when_it_is_asked_for() {
    let page = Page::new("trace");
    assert_eq!(body(&page.allowed("/api/trace/0")), "{\"traceEvents\":[]}");
    let long = "x".repeat(300_000);
    std::fs::write(page.trace(), &long).unwrap();
    assert_eq!(body(&page.allowed("/api/trace/0")), long);
    // Sparse.
    File::options()
        .write(true)
        .open(page.trace())
        .unwrap()
        .set_len(MAX_TRACE + 1)
        .unwrap();
    let answer = page.allowed("/api/trace/0");
    assert_eq!(status(&answer), "409 Conflict");
    assert!(
        body(&answer).contains("more than the page loads"),
        "{answer}"
    );
    std::fs::remove_file(page.trace()).unwrap();
    assert_eq!(status(&page.allowed("/api/trace/0")), "409 Conflict");
    // Opening it would wait for a writer.
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, page.trace(), fifo, mode, 0).unwrap();
    assert_eq!(status(&page.allowed("/api/trace/0")), "409 Conflict");
    let refused = Web::listen(([127, 0, 0, 1], 0).into(), vec![page.trace()]);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("not a regular file")
    );
}

#[test]
fn page_is_served_on_loopback_only() {
    for address in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0"] {
        let refused = Web::listen(address.parse().unwrap(), Vec::new());
        assert!(
            matches!(refused, Err(WebError::Server(ServerError::NotLocal(_)))),
            "{address}"
        );
    }
}
