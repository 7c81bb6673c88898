//! An HTTP server for one page, on a loopback address: GET /metrics.
//! Requests are bounded in size, time and number at once. A request that names another host is refused, so that no web page reaches the metrics under a name
//! of its own (DNS rebinding).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Collector;

/// Bytes of a request's head.
const MAX_HEAD: u64 = 8192;
/// Requests at once.
const MAX_CLIENTS: usize = 8;
/// Time limit for a request, and for each write of its answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The pause after an error of accept(2).
const PAUSE: Duration = Duration::from_millis(100);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Others could read it.
    #[error(
        "{0} is no loopback address: the metrics name programs and peers, and have no protection of their own; let a proxy serve them to other hosts"
    )]
    NotLocal(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
}

/// The server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    collector: Arc<Mutex<Collector>>,
    clients: Arc<AtomicUsize>,
}

impl Server {
    /// Listens on a loopback address.
    pub fn listen(at: SocketAddr, collector: Collector) -> Result<Server, ServerError> {
        if !at.ip().is_loopback() {
            return Err(ServerError::NotLocal(at));
        }
        Ok(Server {
            listener: TcpListener::bind(at).map_err(|error| ServerError::Listen(at, error))?,
            collector: Arc::new(Mutex::new(collector)),
            clients: Arc::default(),
        })
    }

    /// Its address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves for ever.
    pub fn serve(&self) -> ! {
        loop {
            let Ok((client, _)) = self.listener.accept() else {
                // Out of descriptors, or the client has gone.
                std::thread::sleep(PAUSE);
                continue;
            };
            if self.clients.fetch_add(1, Ordering::AcqRel) >= MAX_CLIENTS {
                self.clients.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let (collector, clients) = (self.collector.clone(), self.clients.clone());
            std::thread::spawn(move || {
                // A client that does not read its answer gets none.
                let _ = answer(client, &collector);
                clients.fetch_sub(1, Ordering::AcqRel);
            });
        }
    }
}

fn answer(mut client: TcpStream, collector: &Mutex<Collector>) -> io::Result<()> {
    client.set_write_timeout(Some(TIME_LIMIT))?;
    let (status, kind, body) = match read_head(&client)?.as_deref().map(check) {
        Some(Ok(())) => {
            let mut collector = collector.lock().unwrap_or_else(PoisonError::into_inner);
            match collector.collect() {
                Ok(text) => ("200 OK", OPENMETRICS, text),
                Err(error) => (
                    "500 Internal Server Error",
                    "text/plain",
                    format!("{error}\n"),
                ),
            }
        }
        Some(Err(status)) => (status, "text/plain", format!("{status}\n")),
        None => (
            "400 Bad Request",
            "text/plain",
            "400 Bad Request\n".to_owned(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// The lines of a request's head; `None` if it is none, too long, or too slow.
fn read_head(client: &TcpStream) -> io::Result<Option<Vec<String>>> {
    let deadline = Instant::now() + TIME_LIMIT;
    let mut reader = BufReader::new(client.take(MAX_HEAD));
    let mut lines = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        client.set_read_timeout(Some(left))?;
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\n") else {
            return Ok(None);
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if read <= 2 && line.is_empty() {
            return Ok(Some(lines));
        }
        match core::str::from_utf8(line) {
            Ok(line) => lines.push(line.to_owned()),
            Err(_) => return Ok(None),
        }
    }
}

/// Whether a request is for the metrics.
fn check(head: &[String]) -> Result<(), &'static str> {
    let mut words = head.first().map_or("", String::as_str).split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if words.next().is_some() || !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Err("400 Bad Request");
    }
    let hosts = head.iter().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    if !hosts.clone().all(is_local) {
        return Err("403 Forbidden");
    }
    match (
        method,
        target.map(|target| target.split('?').next().unwrap_or("")),
    ) {
        (Some("GET"), Some("/metrics")) => Ok(()),
        (Some("GET"), Some(_)) => Err("404 Not Found"),
        _ => Err("405 Method Not Allowed"),
    }
}

/// A Host field names this machine by a loopback address or `localhost`.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = |address: IpAddr| address.is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> SocketAddr {
        let server = Server::listen(([127, 0, 0, 1], 0).into(), Collector::new(10)).unwrap();
        let address = server.address().unwrap();
        std::thread::spawn(move || server.serve());
        address
    }

    fn ask(at: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(at).unwrap();
        // It may answer before it has read everything.
        let _ = client.write_all(request);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn metrics_are_served_to_get_only() {
        let at = server();
        let status = |request: &str| {
            ask(at, request.as_bytes())
                .lines()
                .next()
                .unwrap_or("")
                .to_owned()
        };
        let good = ask(at, b"GET /metrics HTTP/1.1\r\nHost: localhost:9400\r\n\r\n");
        assert!(
            good.starts_with("HTTP/1.1 200 OK\r\n") && good.contains(OPENMETRICS),
            "{good}"
        );
        assert!(good.ends_with("# EOF\n"), "{good}");
        for (request, expected) in [
            ("GET /metrics?x HTTP/1.0\r\n\r\n", "200 OK"),
            (
                "GET /metrics HTTP/1.1\r\nHost: [::1]:9400\r\n\r\n",
                "200 OK",
            ),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            (
                "GET /metrics HTTP/1.1\r\nHost: evil.example:9400\r\n\r\n",
                "403 Forbidden",
            ),
            (
                "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nHost: a\r\n\r\n",
                "403 Forbidden",
            ),
            ("GET /metrics\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/1.1\r\n", "400 Bad Request"),
            ("\r\n\r\n", "400 Bad Request"),
        ] {
            assert_eq!(
                status(request),
                format!("HTTP/1.1 {expected}"),
                "{request:?}"
            );
        }
    }

    #[test]
    fn long_and_binary_requests_are_refused() {
        let at = server();
        let long = [
            b"GET /metrics HTTP/1.1\r\nX: ".to_vec(),
            vec![b'a'; 100_000],
        ]
        .concat();
        for request in [&long[..], &[0xff; 50][..], b"GET /\xff HTTP/1.1\r\n\r\n"] {
            let answer = ask(at, request);
            assert!(
                answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
                "{answer}"
            );
        }
        assert!(
            ask(at, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"),
            "it still serves"
        );
    }

    #[test]
    fn only_loopback_addresses_are_listened_on() {
        for address in ["0.0.0.0:0", "192.0.2.1:9400", "[::]:0"] {
            let refused = Server::listen(address.parse().unwrap(), Collector::new(1));
            assert!(
                matches!(refused, Err(ServerError::NotLocal(_))),
                "{address}"
            );
        }
    }
}
