//! A page on this machine that shows running programs, their queue pairs, peers and failures, labs, and the timeline of a trace.
//! What says something about programs is given only to requests with the page's token; the files of the page are part of the command and contain no
//! data. Nothing is read while no page asks for it.

mod feed;
mod peers;
mod read;
mod token;

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::http::{Body, Options, Request, Response, Server, ServerError};
use crate::objects::objects;
use feed::Feed;
use token::Token;

/// Connections at once: a browser opens up to six, and some in advance.
const MAX_CLIENTS: usize = 32;
/// Bytes of a trace that is sent to the page: browsers have texts of half a gigabyte.
pub const MAX_TRACE: u64 = 384 << 20;
/// Traces that can be named at the start.
pub const MAX_TRACES: usize = 16;
/// How often programs are read while a page is open, in what they tell of their queue pairs, of failures, and in labs.
const INTERVALS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(1),
];

const OPTIONS: Options = Options {
    max_clients: MAX_CLIENTS,
    headers: &[
        // Text of programs never becomes code, and the page is shown in no other.
        (
            "Content-Security-Policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        ),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    ],
};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JSON: &str = "application/json";

/// The page: path, type and content of each file.
const FILES: [(&str, &str, &str); 10] = [
    ("/icon.svg", SVG, include_str!("../assets/web/icon.svg")),
    ("/", HTML, include_str!("../assets/web/index.html")),
    ("/style.css", CSS, include_str!("../assets/web/style.css")),
    ("/page.js", SCRIPT, include_str!("../assets/web/page.js")),
    ("/dom.js", SCRIPT, include_str!("../assets/web/dom.js")),
    ("/live.js", SCRIPT, include_str!("../assets/web/live.js")),
    (
        "/topology.js",
        SCRIPT,
        include_str!("../assets/web/topology.js"),
    ),
    ("/lab.js", SCRIPT, include_str!("../assets/web/lab.js")),
    ("/trace.js", SCRIPT, include_str!("../assets/web/trace.js")),
    (
        "/timeline.js",
        SCRIPT,
        include_str!("../assets/web/timeline.js"),
    ),
];

/// Why the page is not served.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The address is wrong or taken.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A trace cannot be read.
    #[error("cannot read {path}: {why}")]
    Trace {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// The system failed.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// The server of the page.
#[derive(Debug)]
pub struct Web {
    server: Server,
    token: Token,
}

/// What answers are made of.
struct Sources {
    token: Token,
    traces: Vec<PathBuf>,
    processes: Feed,
    findings: Feed,
    labs: Feed,
}

impl Web {
    /// Listens on a loopback address; the page can also show these traces.
    pub fn listen(at: SocketAddr, traces: Vec<PathBuf>) -> Result<Web, WebError> {
        for path in &traces {
            open_trace(path)?;
        }
        let token = Token::new()?;
        let [processes, findings, labs] = INTERVALS;
        let sources = Sources {
            token: token.clone(),
            traces,
            processes: Feed::start("processes", processes, read::Processes::default())?,
            findings: Feed::start("findings", findings, read::Findings)?,
            labs: Feed::start("labs", labs, read::Labs)?,
        };
        let server = Server::listen(at, OPTIONS, move |request| sources.answer(request))?;
        Ok(Web { server, token })
    }

    /// The address of the page, with the token behind `#`, which browsers do not send.
    pub fn url(&self) -> std::io::Result<String> {
        let address = self.server.address()?;
        Ok(format!("http://{address}/#{}", self.token.text()))
    }

    /// Serves until `stop` is readable.
    pub fn serve_until(&self, stop: impl std::os::fd::AsFd) {
        self.server.serve_until(stop);
    }
}

impl Sources {
    fn answer(&self, request: &Request) -> Response {
        if let Some((_, kind, text)) = FILES.iter().find(|(path, ..)| *path == request.path) {
            return Response::new("200 OK", kind, *text);
        }
        let Some(what) = request.path.strip_prefix("/api/") else {
            return Response::status("404 Not Found");
        };
        if !self.is_allowed(request) {
            return Response::status("403 Forbidden");
        }
        match what.split_once('/').unwrap_or((what, "")) {
            ("hello", "") => self.hello(),
            ("state", "") => self.state(),
            ("object", name) => object(name),
            ("trace", number) => self.trace(number),
            _ => Response::status("404 Not Found"),
        }
    }

    /// It has the token and comes from no page of another origin.
    fn is_allowed(&self, request: &Request) -> bool {
        let bearer = request
            .header("Authorization")
            .and_then(|value| value.strip_prefix("Bearer "));
        let same_origin = match request.header("Sec-Fetch-Site") {
            None => true,
            Some(site) => matches!(site, "same-origin" | "none"),
        };
        same_origin && bearer.is_some_and(|token| self.token.is(token))
    }

    fn hello(&self) -> Response {
        let name = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            crate::events::printable(&name.to_string_lossy())
        };
        let hello = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "traces": self.traces.iter().map(name).collect::<Vec<_>>(),
            "interval_ms": INTERVALS[0].as_millis() as u64,
        });
        Response::new("200 OK", JSON, hello.to_string())
    }

    fn state(&self) -> Response {
        // Asked for at once, waited for one after the other.
        for feed in [&self.processes, &self.findings, &self.labs] {
            feed.want();
        }
        let [processes, findings, labs] =
            [&self.processes, &self.findings, &self.labs].map(Feed::latest);
        let text = format!(
            "{{\"processes\":{},\"findings\":{},\"labs\":{},\"age_ms\":{}}}",
            processes.0,
            findings.0,
            labs.0,
            processes.1.as_millis(),
        );
        Response::new("200 OK", JSON, text)
    }

    fn trace(&self, number: &str) -> Response {
        let path = number
            .parse::<usize>()
            .ok()
            .and_then(|at| self.traces.get(at));
        match path.map(open_trace) {
            None => Response::status("404 Not Found"),
            Some(Ok((file, length))) => Response {
                status: "200 OK",
                kind: JSON,
                body: Body::File(file, length),
            },
            Some(Err(error)) => Response::new(
                "409 Conflict",
                "text/plain; charset=utf-8",
                format!("{error}\n"),
            ),
        }
    }
}

/// Opens a trace, each time that it is asked for: it may have been written anew.
fn open_trace(path: &PathBuf) -> Result<(File, u64), WebError> {
    let wrong = |why: String| WebError::Trace {
        path: path.display().to_string(),
        why,
    };
    let metadata = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    // Opening a FIFO would wait for its writer.
    if !metadata.is_file() {
        return Err(wrong("it is not a regular file".to_owned()));
    }
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let length = file.metadata()?.len();
    if length > MAX_TRACE {
        return Err(wrong(format!(
            "{length} bytes are more than the page loads ({MAX_TRACE}); record a shorter time"
        )));
    }
    Ok((file, length))
}

/// Every attribute of a queue pair and of its queues; named by process, adapter and number.
fn object(name: &str) -> Response {
    let mut numbers = name.split('/').map(|part| part.parse::<u32>().ok());
    let named = (
        numbers.next().flatten(),
        numbers.next().flatten(),
        numbers.next().flatten(),
        numbers.next(),
    );
    let (Some(pid), Some(adapter), Some(number), None) = named else {
        return Response::status("404 Not Found");
    };
    let all = match objects(pid) {
        Ok(all) => all,
        Err(error) => {
            return Response::new(
                "409 Conflict",
                "text/plain; charset=utf-8",
                format!("{error}\n"),
            );
        }
    };
    let of = |kind: &str, number: Option<u64>| {
        let mut here = all
            .iter()
            .filter(|object| object.adapter == adapter && object.kind == kind);
        here.find(|object| number.is_some() && object.number("number") == number)
    };
    let Some(qp) = of("qp", Some(number.into())) else {
        return Response::status("404 Not Found");
    };
    let mut found = vec![qp];
    found.extend(of("wait", Some(number.into())));
    found.extend(of("cq", qp.number("send_cq")));
    if qp.number("recv_cq") != qp.number("send_cq") {
        found.extend(of("cq", qp.number("recv_cq")));
    }
    found.extend(of("srq", qp.number("srq")));
    // In the order in which the adapter names them.
    let shown: Vec<_> = found
        .iter()
        .map(|object| json!([object.kind, object.fields]))
        .collect();
    Response::new("200 OK", JSON, json!(shown).to_string())
}

#[cfg(test)]
mod tests;
