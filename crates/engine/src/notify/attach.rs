//! Attaching to an adapter from outside: another process connects to a local socket, sends one request, and gets memory that the adapter fills while the process
//! stays connected. Captures and traces are such services. A client that sends anything else is disconnected.

use core::time::Duration;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use crate::error::Error;
use crate::notify::local_server::{ClientPermit, LocalServer};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Interest, PacketChannel, PacketListener, Ready};

/// Clients of a service at once; one of them is attached.
const MAX_CLIENTS: u32 = 4;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an adapter may take to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// How often an answer is looked for.
pub(crate) const ANSWER_CHECK: Duration = Duration::from_millis(1);

/// Lets the running connections of an adapter join what has been attached.
pub(crate) type JoinAll = Arc<dyn Fn() + Send + Sync>;

/// What a client can attach to; messages have at most `LEN` bytes.
pub(crate) trait Service<const LEN: usize>: Send + Sync + 'static {
    /// What is attached.
    type Attached: Send;

    /// Attaches what this message asks for and answers; if it is refused, the client is told so and disconnected.
    fn attach(&self, message: &[u8], channel: &PacketChannel) -> Option<Self::Attached>;

    /// Detaches and answers, if the message of an attached client asks for that: the client stays connected to read the answer.
    fn stop(&self, _message: &[u8], _channel: &PacketChannel) -> bool {
        false
    }

    /// The client is gone, or the adapter is closed.
    fn detach(&self, attached: Self::Attached);
}

/// Opens the local socket of a service on this shard, at the first free name of this process with this prefix.
pub(crate) fn open<S: Service<LEN>, const LEN: usize>(
    prefix: &str,
    service: S,
    join_all: JoinAll,
    shard: &Arc<Shard>,
) -> Result<(), Error> {
    let service = Arc::new(service);
    let start = move |shard: &Arc<Shard>, channel, permit| {
        Client::start((&service, &join_all), shard, channel, permit)
    };
    LocalServer::<PacketListener>::open(prefix, MAX_CLIENTS, Box::new(start), shard)
}

#[derive(Debug)]
enum Phase<T> {
    /// It has sent nothing.
    Silent,
    Attached(T),
    Ended,
}

/// A process that is connected.
struct Client<S: Service<LEN>, const LEN: usize> {
    service: Arc<S>,
    join_all: JoinAll,
    shard: Arc<Shard>,
    token: u64,
    channel: PacketChannel,
    phase: Mutex<Phase<S::Attached>>,
    _permit: ClientPermit,
}

impl<S: Service<LEN>, const LEN: usize> Client<S, LEN> {
    fn start(
        (service, join_all): (&Arc<S>, &JoinAll),
        shard: &Arc<Shard>,
        channel: PacketChannel,
        permit: ClientPermit,
    ) -> Result<(), Error> {
        let client = Arc::new(Client {
            service: service.clone(),
            join_all: join_all.clone(),
            shard: shard.clone(),
            token: next_token(),
            channel,
            phase: Mutex::new(Phase::Silent),
            _permit: permit,
        });
        shard.serve_watched(
            client.token,
            client.clone(),
            &client.channel,
            Interest::READ,
        )?;
        shard.set_timer(sys::now() + REQUEST_TIMEOUT, client.token);
        Ok(())
    }

    /// Handles what it has sent; false if it is to be disconnected.
    fn receive(&self) -> bool {
        let mut room = [0; LEN];
        let message = match self.channel.receive(&mut room) {
            Ok(Some(message)) => message,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let mut phase = self.phase.lock();
        match *phase {
            Phase::Silent => {
                let Some(attached) = self.service.attach(message, &self.channel) else {
                    return false;
                };
                *phase = Phase::Attached(attached);
                drop(phase);
                (self.join_all)();
                true
            }
            Phase::Attached(_) if self.service.stop(message, &self.channel) => {
                *phase = Phase::Ended;
                true
            }
            Phase::Attached(_) | Phase::Ended => false,
        }
    }

    fn detach(&self) {
        let before = core::mem::replace(&mut *self.phase.lock(), Phase::Ended);
        if let Phase::Attached(attached) = before {
            self.service.detach(attached);
        }
    }

    fn end(&self) {
        self.detach();
        self.shard.unwatch(&self.channel);
        self.shard.forget(self.token);
    }
}

impl<S: Service<LEN>, const LEN: usize> Drop for Client<S, LEN> {
    /// The adapter is closed while a client is attached.
    fn drop(&mut self) {
        self.detach();
    }
}

impl<S: Service<LEN>, const LEN: usize> ShardTask for Client<S, LEN> {
    fn ready(self: Arc<Self>, _: Ready) {
        if !self.receive() {
            self.end();
        }
    }

    fn expire(self: Arc<Self>, _: Time) {
        let is_silent = matches!(*self.phase.lock(), Phase::Silent);
        if is_silent {
            self.end();
        }
    }

    fn stop(self: Arc<Self>) {}
}

/// Why a service of an adapter in another process cannot be asked.
#[derive(Debug)]
pub(crate) enum AskError {
    /// There is no socket of this name.
    NoAdapter,
    /// The process at the other end is another one.
    WrongProcess(u32),
    /// No answer came.
    Silent,
    /// The connection ended without an answer.
    Refused,
    /// A system call failed.
    System(sys::Error),
}

impl From<sys::Error> for AskError {
    fn from(error: sys::Error) -> AskError {
        AskError::System(error)
    }
}

/// Connects to the service of this name of an adapter of a process.
pub(crate) fn connect(prefix: &str, pid: u32, adapter: u32) -> Result<PacketChannel, AskError> {
    let name = format!("{prefix}{pid}/{adapter}");
    let channel = PacketChannel::connect_to_any(&name).map_err(|error| {
        if error.is_refused() {
            AskError::NoAdapter
        } else {
            error.into()
        }
    })?;
    // Any process can bind an abstract name that is free.
    match channel.peer_process() {
        Some(by) if by == pid => Ok(channel),
        by => Err(AskError::WrongProcess(by.unwrap_or(0))),
    }
}

/// Sends a request, and waits for the answer; the descriptor that came with it, if there is one.
pub(crate) fn ask(
    channel: &PacketChannel,
    request: &[u8],
    answer: &mut [u8],
) -> Result<Option<OwnedFd>, AskError> {
    if !channel.send(request, &[])? {
        return Err(AskError::Silent);
    }
    let deadline = sys::now() + ANSWER_TIMEOUT;
    loop {
        match channel.receive_with_fds(answer) {
            Ok(Some(mut fds)) => return Ok(fds.pop()),
            Ok(None) if sys::now() >= deadline => return Err(AskError::Silent),
            Ok(None) => sys::sleep(ANSWER_CHECK),
            Err(_) => return Err(AskError::Refused),
        }
    }
}
