//! An HTTP server for local pages, on a loopback address only: GET requests without a body, one for each connection, answered by a function.
//! Requests and answers are bounded in size, time and number at once. A request that names another host is refused, so that no web page reaches what is
//! served under a name of its own (DNS rebinding).

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

/// Bytes of a request's head.
const MAX_HEAD: u64 = 8192;
/// Time limit for a request, and for each write of its answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for a whole answer: a reader that takes a little now and then does not keep its connection for ever.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// The pause after an error of accept(2).
const PAUSE: Duration = Duration::from_millis(100);
/// What is read and discarded of a refused request before the connection is closed: a reset could overtake the answer.
const MAX_DISCARDED: u64 = 1 << 20;
/// Bytes of a file that are sent with one write.
const CHUNK: usize = 64 << 10;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Others could read it.
    #[error(
        "{0} is no loopback address: what is served names programs and peers, and is not encrypted; use a proxy or `ssh -L` to read it on other hosts"
    )]
    NotLocal(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
}

/// A GET request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// As it was sent, without the query; nothing is decoded.
    pub path: String,
    /// What follows the question mark.
    pub query: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// The value of a field; `None` if the request has none or several.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self
            .headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }
}

/// What is sent behind the head.
#[derive(Debug)]
pub enum Body {
    /// These bytes.
    Bytes(Cow<'static, [u8]>),
    /// The first so many bytes of a file.
    File(File, u64),
}

/// The answer to a request.
#[derive(Debug)]
pub struct Response {
    /// Number and reason.
    pub status: &'static str,
    /// The type of the body.
    pub kind: &'static str,
    /// The body.
    pub body: Body,
}

impl Response {
    /// An answer with this text.
    pub fn new(
        status: &'static str,
        kind: &'static str,
        text: impl Into<Cow<'static, str>>,
    ) -> Response {
        let bytes = match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Response {
            status,
            kind,
            body: Body::Bytes(bytes),
        }
    }

    /// An answer that is its status.
    pub fn status(status: &'static str) -> Response {
        Response::new(status, "text/plain; charset=utf-8", format!("{status}\n"))
    }
}

/// Answers requests.
type Handler = dyn Fn(&Request) -> Response + Send + Sync;

/// How a server answers.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Requests at once; further connections are closed.
    pub max_clients: usize,
    /// Fields of each answer.
    pub headers: &'static [(&'static str, &'static str)],
}

/// The server.
pub struct Server {
    listener: TcpListener,
    handler: Arc<Handler>,
    options: Options,
    clients: Arc<AtomicUsize>,
}

/// Counted while it lives, also if the handler panics.
struct Client(Arc<AtomicUsize>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Server {
    /// Listens on a loopback address.
    pub fn listen(
        at: SocketAddr,
        options: Options,
        handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Result<Server, ServerError> {
        if !at.ip().is_loopback() {
            return Err(ServerError::NotLocal(at));
        }
        let listener = TcpListener::bind(at).and_then(|listener| {
            // A client that has gone before it is accepted must not hold the loop.
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        Ok(Server {
            listener: listener.map_err(|error| ServerError::Listen(at, error))?,
            handler: Arc::new(handler),
            options,
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
            self.accept(None);
        }
    }

    /// Serves until `stop` is readable. Answers that are being sent are not waited for.
    pub fn serve_until(&self, stop: impl AsFd) {
        while !self.accept(Some(stop.as_fd())) {}
    }

    /// Waits for a connection and starts to serve it; true if `stop` is readable.
    fn accept(&self, stop: Option<BorrowedFd<'_>>) -> bool {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(stop.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if poll(&mut fds, None).is_err() {
            // Interrupted by a signal.
            return false;
        }
        if fds.get(1).is_some_and(|stop| !stop.revents().is_empty()) {
            return true;
        }
        match self.listener.accept() {
            Ok((client, _)) => self.start(client),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Out of descriptors.
            Err(_) => std::thread::sleep(PAUSE),
        }
        false
    }

    fn start(&self, client: TcpStream) {
        let counted = Client(self.clients.clone());
        if self.clients.fetch_add(1, Ordering::AcqRel) >= self.options.max_clients {
            return;
        }
        let (handler, options) = (self.handler.clone(), self.options);
        // Without a thread the connection is closed.
        let _ = std::thread::Builder::new().spawn(move || {
            let _counted = counted;
            // A client that does not read its answer gets none.
            let _ = answer(client, &options, &*handler);
        });
    }
}

impl core::fmt::Debug for Server {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

fn answer(mut client: TcpStream, options: &Options, handler: &Handler) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let response = match read_head(&client)? {
        Head::Lines(lines) => match parse(&lines) {
            Ok(request) => handler(&request),
            Err(status) => Response::status(status),
        },
        Head::TooLong => Response::status("431 Request Header Fields Too Large"),
        Head::TooSlow => Response::status("408 Request Timeout"),
        Head::Malformed => Response::status("400 Bad Request"),
    };
    let length = match &response.body {
        Body::Bytes(bytes) => bytes.len() as u64,
        Body::File(_, length) => *length,
    };
    let mut head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {length}\r\nConnection: close\r\n",
        response.status, response.kind,
    );
    for (name, value) in options.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let deadline = Instant::now() + ANSWER_LIMIT;
    send(&mut client, head.as_bytes(), deadline)?;
    match response.body {
        Body::Bytes(bytes) => send(&mut client, &bytes, deadline)?,
        Body::File(file, length) => {
            let mut rest = file.take(length);
            let mut chunk = vec![0; CHUNK];
            loop {
                let read = rest.read(&mut chunk)?;
                if read == 0 {
                    break;
                }
                send(&mut client, &chunk[..read], deadline)?;
            }
        }
    }
    client.shutdown(Shutdown::Write)?;
    discard(&client)
}

/// Sends all bytes, each write within [`TIME_LIMIT`] and all of them before the deadline.
fn send(client: &mut TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_write_timeout(Some(left.min(TIME_LIMIT)))?;
        match client.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            sent => rest = &rest[sent..],
        }
    }
    Ok(())
}

/// Reads what the client still sends until it closes, within limits.
fn discard(client: &TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + TIME_LIMIT;
    let mut rest = client.take(MAX_DISCARDED);
    let mut chunk = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        client.set_read_timeout(Some(left))?;
        if rest.read(&mut chunk)? == 0 {
            return Ok(());
        }
    }
}

/// What was read of a request.
enum Head {
    /// Its lines, without their ends.
    Lines(Vec<String>),
    TooLong,
    TooSlow,
    Malformed,
}

fn read_head(client: &TcpStream) -> io::Result<Head> {
    let deadline = Instant::now() + TIME_LIMIT;
    let mut reader = BufReader::new(Deadline { client, deadline }.take(MAX_HEAD));
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        match reader.read_until(b'\n', &mut line) {
            Err(error) if is_timeout(&error) => return Ok(Head::TooSlow),
            other => other?,
        };
        let Some(line) = line.strip_suffix(b"\n") else {
            let is_cut = reader.get_ref().limit() == 0;
            return Ok(if is_cut {
                Head::TooLong
            } else {
                Head::Malformed
            });
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Ok(Head::Lines(lines));
        }
        match core::str::from_utf8(line) {
            Ok(line) if !line.contains('\0') => lines.push(line.to_owned()),
            _ => return Ok(Head::Malformed),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Reads until a time, however few bytes come at once.
struct Deadline<'a> {
    client: &'a TcpStream,
    deadline: Instant,
}

impl Read for Deadline<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.client.set_read_timeout(Some(left))?;
        self.client.read(into)
    }
}

/// The request, or the status with which it is refused.
fn parse(head: &[String]) -> Result<Request, &'static str> {
    let mut words = head.first().map_or("", String::as_str).split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if words.next().is_some() || !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Err("400 Bad Request");
    }
    let mut headers = Vec::new();
    for line in head.iter().skip(1) {
        let (name, value) = line.split_once(':').ok_or("400 Bad Request")?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut hosts = headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    if !hosts.all(|(_, host)| is_local(host)) {
        return Err("403 Forbidden");
    }
    match (method, target) {
        (Some("GET"), Some(target)) => {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            Ok(Request {
                path: path.to_owned(),
                query: query.to_owned(),
                headers,
            })
        }
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
mod tests;
