//! Reaching a target: its name becomes an address, a link is made, and the login is talked through; or targets are asked for.
//! It promises an end within the time of each step, and follows a target that has moved, a few times. It refuses to keep anything.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena::{Device, Pd};
use verbena_iscsi::login::{
    CHALLENGE_LEN, Discovery, Found, Login, Progress, Purpose, Settled, TargetRecord, random_isid,
};
use verbena_wire::iscsi::FromTarget;

use super::iser::{How, Iser};
use super::link::{Link, News, Text};
use super::options::Options;
use super::tcp::Tcp;
use crate::address::{Address, Transport};
use crate::error::Error;

/// Times that a target may send us elsewhere.
const MOVES: usize = 4;

/// A name for a session that hardly any other has.
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

/// A link to a target, logged in.
pub(super) fn log_in(
    device: &Device,
    pd: &Pd,
    address: &Address,
    options: &Options,
    isid: [u8; 6],
) -> Result<(Box<dyn Link>, Settled), Error> {
    let target = address.target.clone();
    let purpose = target.map_or(Purpose::Discovery, Purpose::Target);
    let mut here = address.clone();
    for _ in 0..MOVES {
        let mut link = connect(device, pd, &here, options)?;
        let mut random = [0; CHALLENGE_LEN];
        fill(&mut random)?;
        let offer = options.offer(address, purpose.clone());
        let login = Login::new(offer, isid, random).map_err(|why| refused(&here, why))?;
        match talk(&mut *link, &here, options, login)? {
            Progress::Done(settled) => {
                link.begin(&settled);
                return Ok((link, settled));
            }
            Progress::Moved { address, .. } => {
                here.host = address.host;
                here.port = address.port;
            }
            Progress::Again => {}
        }
    }
    Err(Error::Target(format!(
        "{address} sent us elsewhere {MOVES} times"
    )))
}

fn connect(
    device: &Device,
    pd: &Pd,
    address: &Address,
    options: &Options,
) -> Result<Box<dyn Link>, Error> {
    let name = (address.host.as_str(), address.port);
    let found = name.to_socket_addrs();
    let found = found.map_err(Error::io(format!("looking up {}", address.host)))?;
    let mut last = None;
    for to in found {
        match connect_to(device, pd, address.transport, to, options) {
            Ok(link) => return Ok(link),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::Target(format!("{} has no address", address.host))))
}

fn connect_to(
    device: &Device,
    pd: &Pd,
    transport: Transport,
    to: SocketAddr,
    options: &Options,
) -> Result<Box<dyn Link>, Error> {
    match transport {
        Transport::Iscsi => Ok(Box::new(Tcp::connect(device, pd, to, options)?)),
        Transport::Iser => {
            let how = How {
                depth: options.depth,
                patience: options.login,
                longest: options.iser_longest,
            };
            Ok(Box::new(Iser::connect(device, pd, to, how)?))
        }
    }
}

/// Talks a login through.
fn talk(
    link: &mut dyn Link,
    address: &Address,
    options: &Options,
    mut login: Login,
) -> Result<Progress, Error> {
    loop {
        let (request, text) = login.next();
        link.say(&request.emit(), &text)?;
        let (pdu, data) = answer(link, "answer to a login", options.login)?;
        let FromTarget::LoginResponse(response) = pdu else {
            return Err(Error::Target(format!("{pdu} instead of a login response")));
        };
        let data = data.get(..response.data_len as usize).unwrap_or(&data);
        match login
            .take(&response, data)
            .map_err(|why| refused(address, why))?
        {
            Progress::Again => {}
            progress => return Ok(progress),
        }
    }
}

fn refused(address: &Address, why: verbena_iscsi::login::LoginError) -> Error {
    Error::Login {
        address: address.to_string(),
        why: Box::new(why),
    }
}

/// The next PDU.
fn answer(
    link: &mut dyn Link,
    what: &'static str,
    limit: Duration,
) -> Result<(FromTarget, Text), Error> {
    let (end, mut news) = (Instant::now() + limit, Vec::new());
    loop {
        link.poll(&mut news);
        for one in news.drain(..) {
            match one {
                News::Pdu { bhs, data } => {
                    let pdu = FromTarget::parse(&bhs);
                    let pdu = pdu.map_err(|why| Error::Target(why.to_string()))?;
                    return Ok((pdu, data));
                }
                News::Ended(why) => return Err(Error::Lost(why)),
                News::Response { .. } | News::Failed { .. } => {}
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Silent { what, limit });
        }
        link.sleep(&[], left)?;
    }
}

/// The targets that a portal knows.
pub fn discover(
    device: &Device,
    address: &Address,
    options: &Options,
) -> Result<Vec<TargetRecord>, Error> {
    let portal = Address {
        target: None,
        lun: None,
        ..address.clone()
    };
    let pd = device.pd()?;
    let (mut link, _) = log_in(device, &pd, &portal, options, isid()?)?;
    let mut discovery = Discovery::new(2);
    loop {
        let (request, text) = discovery.next();
        link.say(&request.emit(), &text)?;
        let (pdu, data) = answer(&mut *link, "list of targets", options.login)?;
        let FromTarget::TextResponse(response) = pdu else {
            return Err(Error::Target(format!("{pdu} instead of a list of targets")));
        };
        let data = data.get(..response.data_len as usize).unwrap_or(&data);
        let found = discovery.take(&response, data);
        match found.map_err(|why| Error::Target(why.to_string()))? {
            Found::Again => {}
            Found::Done(targets) => return Ok(targets),
        }
    }
}

/// Sleeps without a connection.
pub(super) fn rest(beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error> {
    let mut fds: Vec<PollFd<'_>> = beside
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let limit = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Error::io("poll")(errno.into())),
    }
}
