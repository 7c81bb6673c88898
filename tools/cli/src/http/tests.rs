//! The server as clients meet it: well-formed requests, refused ones, and clients that send too much, too slowly or nothing.

use std::sync::mpsc::channel;

use super::*;

const OPTIONS: Options = Options {
    max_clients: 4,
    headers: &[("X-Test", "yes")],
};

/// One for more clients than a test has: the thread of an answered request may end later than the next request comes.
const MANY: usize = 64;

fn server(max_clients: usize) -> SocketAddr {
    let options = Options {
        max_clients,
        ..OPTIONS
    };
    let server = Server::listen(([127, 0, 0, 1], 0).into(), options, |request| match request
        .path
        .as_str()
    {
        "/page" => Response::new("200 OK", "text/plain", format!("[{}]", request.query)),
        "/panic" => std::panic::resume_unwind(Box::new(())),
        _ => Response::status("404 Not Found"),
    });
    let server = server.unwrap();
    let address = server.address().unwrap();
    std::thread::spawn(move || server.serve());
    address
}

fn ask(at: SocketAddr, request: &[u8]) -> String {
    let mut client = TcpStream::connect(at).unwrap();
    // It may answer before it has read everything.
    let _ = client.write_all(request);
    let _ = client.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn status(at: SocketAddr, request: &[u8]) -> String {
    let answer = ask(at, request);
    answer.lines().next().unwrap_or("").to_owned()
}

#[test]
fn only_local_get_requests_are_answered() {
    let at = server(MANY);
    let good = ask(
        at,
        b"GET /page?a=1 HTTP/1.1\r\nHost: localhost:9400\r\n\r\n",
    );
    assert!(
        good.starts_with("HTTP/1.1 200 OK\r\n") && good.contains("X-Test: yes\r\n"),
        "{good}"
    );
    assert!(good.ends_with("\r\n\r\n[a=1]"), "{good}");
    for (request, expected) in [
        ("GET /page?x HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET /page HTTP/1.1\r\nHost: [::1]:9400\r\n\r\n", "200 OK"),
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("GET /page/../x HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /page HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (
            "GET /page HTTP/1.1\r\nHost: evil.example:9400\r\n\r\n",
            "403 Forbidden",
        ),
        (
            "GET /page HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n",
            "403 Forbidden",
        ),
        (
            "GET /page HTTP/1.1\r\nhost: 127.0.0.1\r\nHost: a\r\n\r\n",
            "403 Forbidden",
        ),
        ("GET /page HTTP/1.1\r\nHost\r\n\r\n", "400 Bad Request"),
        ("GET /page\r\n\r\n", "400 Bad Request"),
        ("GET /page HTTP/1.1\r\n", "400 Bad Request"),
        ("GET /page HTTP/1.1\r\nX: a\0b\r\n\r\n", "400 Bad Request"),
        ("\r\n\r\n", "400 Bad Request"),
    ] {
        let said = status(at, request.as_bytes());
        assert_eq!(said, format!("HTTP/1.1 {expected}"), "{request:?}");
    }
}

#[test]
fn long_and_binary_requests_are_refused() {
    let at = server(MANY);
    let long = [b"GET /page HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 100_000]].concat();
    assert!(status(at, &long).starts_with("HTTP/1.1 431"));
    for request in [&[0xff; 50][..], b"GET /\xff HTTP/1.1\r\n\r\n"] {
        assert_eq!(status(at, request), "HTTP/1.1 400 Bad Request");
    }
    assert!(status(at, b"GET /page HTTP/1.1\r\n\r\n").contains("200 OK"));
}

#[test]
fn silent_clients_are_told_and_do_not_keep_others_out() {
    let at = server(OPTIONS.max_clients);
    let mut silent: Vec<TcpStream> = (0..OPTIONS.max_clients)
        .map(|_| TcpStream::connect(at).unwrap())
        .collect();
    for client in &mut silent {
        client.write_all(b"GET /page HTTP/1.1\r\n").unwrap();
    }
    // Further ones are closed without an answer while those wait.
    verbena_testing::wait_until("the limit", || status(at, b"\r\n").is_empty());
    for client in &mut silent {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    drop(silent);
    verbena_testing::wait_until("an answer", || {
        status(at, b"GET /page HTTP/1.1\r\n\r\n").contains("200 OK")
    });
}

#[test]
fn panic_of_a_request_frees_its_place() {
    let at = server(OPTIONS.max_clients);
    for _ in 0..2 * OPTIONS.max_clients {
        let _ = ask(at, b"GET /panic HTTP/1.1\r\n\r\n");
    }
    verbena_testing::wait_until("an answer", || {
        status(at, b"GET /page HTTP/1.1\r\n\r\n").contains("200 OK")
    });
}

#[test]
fn server_ends_when_it_is_told() {
    let (tell, told) = std::os::unix::net::UnixStream::pair().unwrap();
    let options = OPTIONS;
    let server = Server::listen(([127, 0, 0, 1], 0).into(), options, |_| {
        Response::status("200 OK")
    });
    let server = server.unwrap();
    let at = server.address().unwrap();
    let (ended, end) = channel();
    std::thread::spawn(move || {
        server.serve_until(told);
        drop(server);
        let _ = ended.send(());
    });
    assert!(status(at, b"GET / HTTP/1.1\r\n\r\n").contains("200 OK"));
    drop(tell);
    end.recv().unwrap();
}

#[test]
fn only_loopback_addresses_are_listened_on() {
    for address in ["0.0.0.0:0", "192.0.2.1:9400", "[::]:0"] {
        let refused = Server::listen(address.parse().unwrap(), OPTIONS, |_| {
            Response::status("200 OK")
        });
        assert!(
            matches!(refused, Err(ServerError::NotLocal(_))),
            "{address}"
        );
    }
}
