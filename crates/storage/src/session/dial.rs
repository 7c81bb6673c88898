//! Connecting to a target: name lookup, transport connection, login. Each step has a time limit, and so has the login as a whole.
//! Redirections are followed up to `MOVES`. [`Dial`] does not block; [`log_in`] does.
//!
//! | step | continues when | fails when |
//! | --- | --- | --- |
//! | look up | the name has addresses | the resolver fails, or does not answer in time |
//! | choose | an address can be dialled | there is none left |
//! | connect | the target answers | never: the next address is chosen |
//! | talk | a login response came: next request, full feature phase, or redirection | login rejected, timeout, or end of the link |

mod redirect;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use verbena::{Device, Pd};
use verbena_iscsi::login::{CHALLENGE_LEN, Login, Progress, Purpose, Settled, random_isid};
use verbena_wire::iscsi::FromTarget;

use super::TICK;
use super::doze::rest;
use super::iser::{How, IserDial};
use super::link::{Dialling, Link, News, Text};
use super::options::Options;
use super::tcp::TcpDial;
use crate::address::{Address, Transport};
use crate::error::Error;

/// Limit on redirections.
const MOVES: usize = 4;
/// Polling interval for the lookup, which has no descriptor.
const SOON: Duration = Duration::from_millis(2);
/// Time limit of a login, in steps. With mutual CHAP it has four.
pub(super) const STEPS: u32 = 6;

/// A random ISID.
pub(super) fn isid() -> Result<[u8; 6], Error> {
    let mut random = [0; 5];
    fill(&mut random)?;
    let [a, b, c, d, e] = random;
    Ok(random_isid([a, b, c], u16::from_be_bytes([d, e])))
}

fn fill(random: &mut [u8]) -> Result<(), Error> {
    let mut done = 0;
    while done < random.len() {
        let got =
            rustix::rand::getrandom(&mut random[done..], rustix::rand::GetRandomFlags::empty());
        done += got.map_err(|errno| Error::Io {
            what: "getrandom".to_owned(),
            error: errno.into(),
        })?;
    }
    Ok(())
}

/// A link in the full feature phase, and the result of the login.
type Reached = (Box<dyn Link>, Settled);

/// A connection being established.
pub(super) struct Dial {
    device: Device,
    pd: Pd,
    /// The address given, and (`here`) the one after redirections.
    address: Address,
    here: Address,
    options: Options,
    isid: [u8; 6],
    moves: usize,
    /// IP address of the first host.
    first: Option<IpAddr>,
    /// The login was redirected to another host, to which credentials are not sent.
    withheld: bool,
    step: Step,
    /// Time limit of the login, once it has begun.
    end: Option<Instant>,
}

/// State of the connection.
enum Step {
    /// The name is being looked up; time limit.
    LookUp(Receiver<io::Result<Vec<SocketAddr>>>, Instant),
    /// Addresses left to try, the last one first; error of the previous one.
    Choose(Vec<SocketAddr>, Option<Error>),
    /// Connecting; addresses left.
    Connect(Box<dyn Dialling>, Vec<SocketAddr>),
    /// A login request was sent; time limit of its response.
    Talk(Box<dyn Link>, Box<Login>, Instant),
    /// Finished or failed.
    Over,
}

/// Result of a step.
enum Next {
    /// Continue with this step now.
    Go(Step),
    /// Continue with this step later.
    Wait(Step),
    Done(Box<dyn Link>, Settled),
}

impl Dial {
    /// Starts the lookup, without waiting.
    pub(super) fn new(
        device: &Device,
        pd: &Pd,
        address: &Address,
        options: &Options,
        isid: [u8; 6],
    ) -> Result<Dial, Error> {
        Ok(Dial {
            device: device.clone(),
            pd: pd.clone(),
            address: address.clone(),
            here: address.clone(),
            options: options.clone(),
            isid,
            moves: 0,
            first: None,
            withheld: false,
            step: look_up(address, options.login)?,
            end: None,
        })
    }

    /// Advances as far as possible without waiting. Returns the link once it is logged in; after an error it must not be used again.
    pub(super) fn poll(&mut self) -> Result<Option<Reached>, Error> {
        loop {
            let step = core::mem::replace(&mut self.step, Step::Over);
            match self.advance(step)? {
                Next::Go(step) => self.step = step,
                Next::Wait(step) => {
                    self.step = step;
                    return Ok(None);
                }
                Next::Done(link, settled) => return Ok(Some((link, settled))),
            }
        }
    }

    /// Sleeps until it may advance, one of `beside` is readable, or the timeout expires.
    pub(super) fn sleep(
        &mut self,
        beside: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<(), Error> {
        match &mut self.step {
            Step::LookUp(..) => rest(beside, None, timeout.min(SOON)),
            Step::Connect(dialling, _) => dialling.sleep(beside, timeout),
            Step::Talk(link, ..) => link.sleep(beside, timeout),
            Step::Choose(..) | Step::Over => Ok(()),
        }
    }

    fn advance(&mut self, step: Step) -> Result<Next, Error> {
        match step {
            Step::LookUp(found, until) => {
                let failed = Error::io(format!("looking up {}", self.here.host));
                match found.try_recv() {
                    Ok(Ok(mut found)) => {
                        found.reverse();
                        Ok(Next::Go(Step::Choose(found, None)))
                    }
                    Ok(Err(error)) => Err(failed(error)),
                    Err(TryRecvError::Empty) if Instant::now() < until => {
                        Ok(Next::Wait(Step::LookUp(found, until)))
                    }
                    Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
                }
            }
            Step::Choose(mut left, last) => {
                let Some(to) = left.pop() else {
                    let nowhere = || Error::Target(format!("{} has no address", self.here.host));
                    return Err(last.unwrap_or_else(nowhere));
                };
                if self.moves == 0 {
                    self.first = Some(to.ip());
                }
                Ok(Next::Go(match self.connect_to(to) {
                    Ok(dialling) => Step::Connect(dialling, left),
                    Err(error) => Step::Choose(left, Some(error)),
                }))
            }
            Step::Connect(mut dialling, left) => match dialling.poll() {
                Ok(Some(link)) => {
                    self.end = Some(Instant::now() + self.options.login * STEPS);
                    let login = self.login()?;
                    Ok(Next::Go(self.ask(link, login)?))
                }
                Ok(None) => Ok(Next::Wait(Step::Connect(dialling, left))),
                Err(error) => Ok(Next::Go(Step::Choose(left, Some(error)))),
            },
            Step::Talk(link, login, until) => self
                .talk(link, login, until)
                .map_err(|why| self.is_none(why)),
            Step::Over => Err(Error::Lost("it was given up before".to_owned())),
        }
    }

    fn connect_to(&self, to: SocketAddr) -> Result<Box<dyn Dialling>, Error> {
        let (device, pd, options) = (&self.device, &self.pd, &self.options);
        match self.here.transport {
            Transport::Iscsi => Ok(Box::new(TcpDial::new(device, pd, to, options)?)),
            Transport::Iser => {
                let how = How {
                    depth: options.depth,
                    patience: options.login,
                    longest: options.iser_longest,
                    poll: options.poll,
                };
                Ok(Box::new(IserDial::new(device, pd, to, how)?))
            }
        }
    }

    fn login(&self) -> Result<Box<Login>, Error> {
        let target = self.address.target.clone();
        let purpose = target.map_or(Purpose::Discovery, Purpose::Target);
        let mut random = [0; CHALLENGE_LEN];
        fill(&mut random)?;
        let mut offer = self.options.offer(&self.address, purpose);
        if self.withheld {
            (offer.chap, offer.mutual) = (None, None);
        }
        let login = Login::new(offer, self.isid, random);
        Ok(Box::new(login.map_err(|why| self.refused(why))?))
    }

    /// Sends the next login request.
    fn ask(&self, mut link: Box<dyn Link>, login: Box<Login>) -> Result<Step, Error> {
        let (request, text) = login.next();
        link.say(&request.emit(), &text)?;
        let step = Instant::now() + self.options.login;
        let until = self.end.map_or(step, |end| end.min(step));
        Ok(Step::Talk(link, login, until))
    }

    /// Processes a login response, if one came.
    fn talk(
        &mut self,
        mut link: Box<dyn Link>,
        login: Box<Login>,
        until: Instant,
    ) -> Result<Next, Error> {
        let now = Instant::now();
        match next_pdu(&mut *link)? {
            // The limit holds also for a target that keeps answering.
            Some(_) if self.end.is_some_and(|end| end <= now) => {
                let (what, limit) = ("end of a login", self.options.login * STEPS);
                Err(Error::Silent { what, limit })
            }
            Some(Answer { pdu, data, last }) => {
                let next = self.hear(link, login, &pdu, &data)?;
                match (next, last) {
                    // The connection was closed right after the final login response.
                    (Next::Done(..) | Next::Go(Step::Talk(..)), Some(why)) => Err(Error::Lost(why)),
                    (next, _) => Ok(next),
                }
            }
            None if now < until => Ok(Next::Wait(Step::Talk(link, login, until))),
            None => {
                let (what, limit) = ("answer to a login", self.options.login);
                Err(Error::Silent { what, limit })
            }
        }
    }

    /// Errors of a peer that does not answer, or not as a target does, become [`Error::NoTarget`].
    fn is_none(&self, why: Error) -> Error {
        match why {
            Error::Lost(_) | Error::Silent { .. } | Error::Target(_) => Error::NoTarget {
                address: self.here.to_string(),
                why: Box::new(why),
            },
            other => other,
        }
    }

    /// Processes a login response.
    fn hear(
        &mut self,
        mut link: Box<dyn Link>,
        mut login: Box<Login>,
        pdu: &FromTarget,
        data: &[u8],
    ) -> Result<Next, Error> {
        let FromTarget::LoginResponse(response) = pdu else {
            return Err(Error::Target(format!("{pdu} instead of a login response")));
        };
        let data = data.get(..response.data_len as usize).unwrap_or(data);
        match login
            .take(response, data)
            .map_err(|why| self.refused(why))?
        {
            Progress::Again => Ok(Next::Go(self.ask(link, login)?)),
            Progress::Done(settled) => {
                link.begin(&settled);
                Ok(Next::Done(link, settled))
            }
            Progress::Moved { address, .. } => {
                self.moves += 1;
                if self.moves >= MOVES {
                    let address = &self.address;
                    let why = format!("{address} sent us elsewhere {MOVES} times");
                    return Err(Error::Target(why));
                }
                let from = self.here.to_string();
                self.here.host = address.host;
                self.here.port = address.port;
                self.follow(from)?;
                Ok(Next::Go(look_up(&self.here, self.options.login)?))
            }
        }
    }
}

/// Looks a name up. The system's resolver blocks, so it runs on a thread, which ends by itself; a numeric address needs neither.
fn look_up(address: &Address, limit: Duration) -> Result<Step, Error> {
    if let Ok(ip) = address.host.parse::<IpAddr>() {
        return Ok(Step::Choose(vec![SocketAddr::new(ip, address.port)], None));
    }
    let (host, port) = (address.host.clone(), address.port);
    let (told, found) = channel();
    std::thread::Builder::new()
        .name("verbena-lookup".to_owned())
        .spawn(move || {
            let all = (host.as_str(), port).to_socket_addrs();
            // The receiver may have been dropped.
            let _ = told.send(all.map(Iterator::collect));
        })
        .map_err(Error::io("a thread to look up a name"))?;
    Ok(Step::LookUp(found, Instant::now() + limit))
}

/// Connects and logs in; blocks until then.
pub(super) fn log_in(
    device: &Device,
    pd: &Pd,
    address: &Address,
    options: &Options,
    isid: [u8; 6],
) -> Result<Reached, Error> {
    let mut dial = Dial::new(device, pd, address, options, isid)?;
    loop {
        if let Some(reached) = dial.poll()? {
            return Ok(reached);
        }
        // Every step checks its own time limit.
        dial.sleep(&[], TICK)?;
    }
}

/// A PDU of the target.
struct Answer {
    pdu: FromTarget,
    data: Text,
    /// The link ended after it, for this reason.
    last: Option<String>,
}

/// The next PDU, if one came. Further PDUs of the same poll are ignored: a target sends one response per login request.
fn next_pdu(link: &mut dyn Link) -> Result<Option<Answer>, Error> {
    let (mut news, mut first, mut last) = (Vec::new(), None, None);
    link.poll(&mut news);
    for one in news {
        match one {
            News::Pdu { bhs, data } if first.is_none() => first = Some((bhs, data)),
            News::Ended(why) => last = Some(why),
            News::Pdu { .. } | News::Response { .. } | News::Failed { .. } => {}
        }
    }
    match (first, last) {
        (Some((bhs, data)), last) => {
            let pdu = FromTarget::parse(&bhs);
            let pdu = pdu.map_err(|why| Error::Target(why.to_string()))?;
            Ok(Some(Answer { pdu, data, last }))
        }
        (None, Some(why)) => Err(Error::Lost(why)),
        (None, None) => Ok(None),
    }
}
