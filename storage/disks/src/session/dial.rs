//! Connecting to a target: name lookup, transport connection, login. Each step has a time limit, and so has the login as a whole.
//! Redirections are followed up to `MAX_REDIRECTS`. [`Dial`] does not block; [`log_in`] does.
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

use verbena::Device;
use verbena::low::Pd;
use verbena_iscsi::login::{CHALLENGE_LEN, Login, LoginOutcome, Progress, Purpose, random_isid};
use verbena_storage_wire::iscsi::FromTarget;

use super::TICK;
use super::iser::{IserDial, IserOptions};
use super::link::{DataSegment, Dialling, Link, LinkEvent};
use super::options::Options;
use super::sleep_poll::sleep_on_fds;
use super::tcp::TcpDial;
use crate::address::{Address, Transport};
use crate::error::Error;

/// Limit on redirections.
const MAX_REDIRECTS: usize = 4;
/// Polling interval for the lookup, which has no descriptor.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(2);
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
type LoggedIn = (Box<dyn Link>, LoginOutcome);

/// A connection being established.
pub(super) struct Dial {
    device: Device,
    pd: Pd,
    /// The address given, and (`current`) the one after redirections.
    address: Address,
    current: Address,
    options: Options,
    isid: [u8; 6],
    redirects: usize,
    /// IP address of the first host.
    first_ip: Option<IpAddr>,
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
    LoggingIn(Box<dyn Link>, Box<Login>, Instant),
    /// Finished or failed.
    Finished,
}

/// Result of a step.
enum Next {
    /// Continue with this step now.
    Go(Step),
    /// Continue with this step later.
    Wait(Step),
    Done(Box<dyn Link>, LoginOutcome),
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
            current: address.clone(),
            options: options.clone(),
            isid,
            redirects: 0,
            first_ip: None,
            withheld: false,
            step: look_up(address, options.login)?,
            end: None,
        })
    }

    /// Advances as far as possible without waiting. Returns the link once it is logged in; after an error it must not be used again.
    pub(super) fn poll(&mut self) -> Result<Option<LoggedIn>, Error> {
        loop {
            let step = core::mem::replace(&mut self.step, Step::Finished);
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
            Step::LookUp(..) => sleep_on_fds(beside, None, timeout.min(LOOKUP_INTERVAL)),
            Step::Connect(dialling, _) => dialling.sleep(beside, timeout),
            Step::LoggingIn(link, ..) => link.sleep(beside, timeout),
            Step::Choose(..) | Step::Finished => Ok(()),
        }
    }

    fn advance(&mut self, step: Step) -> Result<Next, Error> {
        match step {
            Step::LookUp(found, until) => {
                let failed = Error::io(format!("looking up {}", self.current.host));
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
                    let nowhere = || Error::Target(format!("{} has no address", self.current.host));
                    return Err(last.unwrap_or_else(nowhere));
                };
                if self.redirects == 0 {
                    self.first_ip = Some(to.ip());
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
                    Ok(Next::Go(self.send_login_request(link, login)?))
                }
                Ok(None) => Ok(Next::Wait(Step::Connect(dialling, left))),
                Err(error) => Ok(Next::Go(Step::Choose(left, Some(error)))),
            },
            Step::LoggingIn(link, login, until) => self
                .poll_login(link, login, until)
                .map_err(|why| self.not_a_target(why)),
            Step::Finished => Err(Error::Lost("the login was already given up".to_owned())),
        }
    }

    fn connect_to(&self, to: SocketAddr) -> Result<Box<dyn Dialling>, Error> {
        let (device, pd, options) = (&self.device, &self.pd, &self.options);
        match self.current.transport {
            Transport::Iscsi => Ok(Box::new(TcpDial::new(device, pd, to, options)?)),
            Transport::Iser => {
                let how = IserOptions {
                    depth: options.depth,
                    patience: options.login,
                    max_data: options.iser_max_data,
                    poll: options.poll,
                    one_touch: options.iser_one_touch,
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
    fn send_login_request(
        &self,
        mut link: Box<dyn Link>,
        login: Box<Login>,
    ) -> Result<Step, Error> {
        let (request, text) = login.next();
        link.send_pdu(&request.emit(), &text)?;
        let step = Instant::now() + self.options.login;
        let until = self.end.map_or(step, |end| end.min(step));
        Ok(Step::LoggingIn(link, login, until))
    }

    /// Processes a login response, if one came.
    fn poll_login(
        &mut self,
        mut link: Box<dyn Link>,
        login: Box<Login>,
        until: Instant,
    ) -> Result<Next, Error> {
        let now = Instant::now();
        match next_pdu(&mut *link)? {
            // The limit holds also for a target that keeps answering.
            Some(_) if self.end.is_some_and(|end| end <= now) => {
                let (what, limit) = ("final login response", self.options.login * STEPS);
                Err(Error::Timeout { what, limit })
            }
            Some(TargetPdu { pdu, data, last }) => {
                let next = self.handle_response(link, login, &pdu, &data)?;
                match (next, last) {
                    // The connection was closed right after the final login response.
                    (Next::Done(..) | Next::Go(Step::LoggingIn(..)), Some(why)) => {
                        Err(Error::Lost(why))
                    }
                    (next, _) => Ok(next),
                }
            }
            None if now < until => Ok(Next::Wait(Step::LoggingIn(link, login, until))),
            None => {
                let (what, limit) = ("answer to a login", self.options.login);
                Err(Error::Timeout { what, limit })
            }
        }
    }

    /// Errors of a peer that does not answer, or not as a target does, become [`Error::NotATarget`].
    fn not_a_target(&self, why: Error) -> Error {
        match why {
            Error::Lost(_) | Error::Timeout { .. } | Error::Target(_) => Error::NotATarget {
                address: self.current.to_string(),
                why: Box::new(why),
            },
            other => other,
        }
    }

    /// Processes a login response.
    fn handle_response(
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
            .handle_response(response, data)
            .map_err(|why| self.refused(why))?
        {
            Progress::Continue => Ok(Next::Go(self.send_login_request(link, login)?)),
            Progress::Done(settled) => {
                link.begin(&settled);
                Ok(Next::Done(link, settled))
            }
            Progress::Redirected { address, .. } => {
                self.redirects += 1;
                if self.redirects >= MAX_REDIRECTS {
                    let address = &self.address;
                    let why = format!("{address} redirected {MAX_REDIRECTS} times");
                    return Err(Error::Target(why));
                }
                let from = self.current.to_string();
                self.current.host = address.host;
                self.current.port = address.port;
                self.follow(from)?;
                Ok(Next::Go(look_up(&self.current, self.options.login)?))
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
    let (sender, found) = channel();
    std::thread::Builder::new()
        .name("verbena-lookup".to_owned())
        .spawn(move || {
            let all = (host.as_str(), port).to_socket_addrs();
            // The receiver may have been dropped.
            let _ = sender.send(all.map(Iterator::collect));
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
) -> Result<LoggedIn, Error> {
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
struct TargetPdu {
    pdu: FromTarget,
    data: DataSegment,
    /// The link ended after it, for this reason.
    last: Option<String>,
}

/// The next PDU, if one came. Further PDUs of the same poll are ignored: a target sends one response per login request.
fn next_pdu(link: &mut dyn Link) -> Result<Option<TargetPdu>, Error> {
    let (mut news, mut first, mut last) = (Vec::new(), None, None);
    link.poll(&mut news);
    for one in news {
        match one {
            LinkEvent::Pdu { bhs, data } if first.is_none() => first = Some((bhs, data)),
            LinkEvent::Ended(why) => last = Some(why),
            LinkEvent::Pdu { .. } | LinkEvent::Response { .. } | LinkEvent::Failed { .. } => {}
        }
    }
    match (first, last) {
        (Some((bhs, data)), last) => {
            let pdu = FromTarget::parse(&bhs);
            let pdu = pdu.map_err(|why| Error::Target(why.to_string()))?;
            Ok(Some(TargetPdu { pdu, data, last }))
        }
        (None, Some(why)) => Err(Error::Lost(why)),
        (None, None) => Ok(None),
    }
}
