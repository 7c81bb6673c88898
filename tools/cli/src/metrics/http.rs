//! The metrics over HTTP, on a loopback address: GET /metrics.
//! One collector serves all requests, one after another.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use super::Collector;
use crate::http::{Options, Request, Response, Server, ServerError};

const OPTIONS: Options = Options {
    max_clients: 8,
    headers: &[],
};
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens on a loopback address.
pub fn listen(at: SocketAddr, collector: Collector) -> Result<Server, ServerError> {
    let collector = Mutex::new(collector);
    Server::listen(at, OPTIONS, move |request| answer(request, &collector))
}

fn answer(request: &Request, collector: &Mutex<Collector>) -> Response {
    if request.path != "/metrics" {
        return Response::status("404 Not Found");
    }
    let mut collector = collector.lock().unwrap_or_else(PoisonError::into_inner);
    match collector.collect() {
        Ok(text) => Response::new("200 OK", OPENMETRICS, text),
        Err(error) => Response::new(
            "500 Internal Server Error",
            "text/plain; charset=utf-8",
            format!("{error}\n"),
        ),
    }
}
