//! The server side of `verbena faults PID`: a process of the same user shows, sets or removes the faults of a running program.
//! A client sends one request and closes its sending direction; it gets one text, and the connection is closed. A request is bounded, and one that is wrong
//! changes nothing.

use std::sync::Arc;

use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use crate::error::Error;
use crate::faults::MAX_SCRIPT;
use crate::notify::local_server::{ClientPermit, HANGUP_OR_WRITABLE};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{AbstractClient, Interest, Ready};

/// Prefix of an adapter's abstract socket name; the process id, `/` and a number follow.
pub const NAME: &str = "verbena-faults/";
/// The first line, for a client that is accepted.
pub const GREETING: &str = "verbena-faults 1";
/// The request to show the faults; the answer is `seed=N` and a line `rule seen=N fired=N cause=RULE` for each rule.
pub const SHOW: &str = "show";
/// The request to remove the faults.
pub const CLEAR: &str = "clear";
/// What precedes the script of a request to set faults; the answer is that of [`SHOW`].
pub const SET: &str = "set ";
/// What precedes the reason if a request is refused.
pub const WRONG: &str = "wrong: ";

/// Bytes of a request.
const MAX_REQUEST: usize = SET.len() + MAX_SCRIPT;

/// Carries out a request; the answer, or why it is refused.
pub(crate) type ControlFaults = Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// Starts the server on this shard.
pub(super) fn open(control: ControlFaults, shard: &Arc<Shard>) -> Result<(), Error> {
    let start = move |shard: &Arc<Shard>, client, permit| {
        FaultClient::start(control.clone(), shard, client, permit)
    };
    super::open(NAME, Box::new(start), shard)
}

struct FaultClient {
    control: ControlFaults,
    shard: Arc<Shard>,
    token: u64,
    client: AbstractClient,
    talk: Mutex<Talk>,
    _permit: ClientPermit,
}

/// What has been received, and then what is to be sent.
#[derive(Default)]
struct Talk {
    request: Vec<u8>,
    answer: Option<(String, usize)>,
}

impl FaultClient {
    fn start(
        control: ControlFaults,
        shard: &Arc<Shard>,
        client: AbstractClient,
        permit: ClientPermit,
    ) -> Result<(), Error> {
        client.send(format!("{GREETING}\n").as_bytes())?;
        let task = Arc::new(FaultClient {
            control,
            shard: shard.clone(),
            token: next_token(),
            client,
            talk: Mutex::default(),
            _permit: permit,
        });
        let once = Interest::READ_ONCE;
        shard.serve_watched(task.token, task.clone(), &task.client, once)
    }

    /// Receives, carries out and answers as far as possible without blocking; returns what to wait for, `None` at the end.
    fn advance(&self) -> Option<Interest> {
        let mut talk = self.talk.lock();
        while talk.answer.is_none() {
            let mut part = [0; 1024];
            match self.client.receive(&mut part) {
                Ok(None) => return Some(Interest::READ_ONCE),
                Ok(Some(0)) => talk.answer = Some((self.answer(&talk.request), 0)),
                Ok(Some(n)) if talk.request.len() + n <= MAX_REQUEST => {
                    talk.request
                        .extend_from_slice(part.get(..n).unwrap_or_default());
                }
                _ => return None,
            }
        }
        let (text, sent) = talk.answer.as_mut()?;
        while let Some(rest) = text.as_bytes().get(*sent..).filter(|r| !r.is_empty()) {
            match self.client.send_part(rest) {
                Ok(0) => return Some(HANGUP_OR_WRITABLE),
                Ok(n) => *sent += n,
                Err(_) => return None,
            }
        }
        None
    }

    fn answer(&self, request: &[u8]) -> String {
        let text = core::str::from_utf8(request).map_err(|_| "the request is no UTF-8".to_owned());
        let carried_out = text.and_then(|text| (self.control)(text));
        carried_out.unwrap_or_else(|why| format!("{WRONG}{why}\n"))
    }
}

impl ShardTask for FaultClient {
    fn ready(self: Arc<Self>, _: Ready) {
        if let Some(next) = self.advance() {
            let _ = self.shard.arm(&self.client, self.token, next);
            return;
        }
        self.shard.unwatch(&self.client);
        self.shard.forget(self.token);
    }

    fn expire(self: Arc<Self>, _: Time) {}

    fn stop(self: Arc<Self>) {}
}
