//! Discovery of targets: a discovery session with SendTargets and a logout (RFC 7143 §4.3). The answer may span any number of responses
//! within the time limit of a login. NOP-In and asynchronous messages of the target are handled meanwhile.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use verbena::Device;
use verbena_iscsi::login::{Discovery, DiscoveryProgress, TargetRecord};
use verbena_storage_wire::iscsi::{
    FromTarget, LogoutReason, LogoutRequest, NO_TAG, NopOut, TextResponse,
};

use super::dial::{STEPS, isid, log_in};
use super::link::{DataSegment, Link, LinkEvent};
use super::options::Options;
use crate::address::Address;
use crate::error::Error;

/// Task tags of the text request and of the logout.
const TEXT_TAG: u32 = 2;
const LOGOUT_TAG: u32 = 3;
/// How long to wait for the logout response, which is not required.
const LOGOUT_WAIT: Duration = Duration::from_millis(500);

/// Returns the targets that a portal lists.
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
    let (link, _) = log_in(device, &pd, &portal, options, isid()?)?;
    let mut portal = Portal {
        link,
        received: VecDeque::new(),
        ended: None,
    };
    let mut discovery = Discovery::new(TEXT_TAG);
    let end = Instant::now() + options.login * STEPS;
    loop {
        let (request, text) = discovery.next();
        portal.link.send_pdu(&request.emit(), &text)?;
        let (response, data) = portal.next_text_response(options.login, end)?;
        let data = data.get(..response.data_len as usize).unwrap_or(&data);
        let found = discovery.handle_response(&response, data);
        match found.map_err(|why| Error::Target(why.to_string()))? {
            DiscoveryProgress::Continue => {}
            DiscoveryProgress::Done(targets) => {
                portal.log_out();
                return Ok(targets);
            }
        }
    }
}

/// A discovery session.
struct Portal {
    link: Box<dyn Link>,
    /// PDUs received and not processed.
    received: VecDeque<(FromTarget, DataSegment)>,
    /// The link ended, for this reason.
    ended: Option<String>,
}

impl Portal {
    /// The next PDU, if one comes before `until`.
    fn next(&mut self, until: Instant) -> Result<Option<(FromTarget, DataSegment)>, Error> {
        let mut news = Vec::new();
        loop {
            // Received PDUs first, so that `received` holds those of one poll at most.
            if let Some(first) = self.received.pop_front() {
                return Ok(Some(first));
            }
            self.link.poll(&mut news);
            for one in news.drain(..) {
                match one {
                    LinkEvent::Pdu { bhs, data } => {
                        let pdu = FromTarget::parse(&bhs);
                        let pdu = pdu.map_err(|why| Error::Target(why.to_string()))?;
                        self.received.push_back((pdu, data));
                    }
                    LinkEvent::Ended(why) => self.ended = Some(why),
                    LinkEvent::Response { .. } | LinkEvent::Failed { .. } => {}
                }
            }
            if !self.received.is_empty() {
                continue;
            }
            if let Some(why) = &self.ended {
                return Err(Error::Lost(why.clone()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.link.sleep(&[], left)?;
        }
    }

    /// The next text response.
    fn next_text_response(
        &mut self,
        limit: Duration,
        end: Instant,
    ) -> Result<(TextResponse, DataSegment), Error> {
        let until = end.min(Instant::now() + limit);
        let what = "list of targets";
        loop {
            match self.next(until)? {
                Some(_) if end <= Instant::now() => return Err(Error::Timeout { what, limit }),
                Some((FromTarget::TextResponse(response), data)) => return Ok((response, data)),
                Some((pdu, _)) => self.handle_unsolicited(&pdu)?,
                None => return Err(Error::Timeout { what, limit }),
            }
        }
    }

    /// Handles what a target may send unsolicited.
    fn handle_unsolicited(&mut self, pdu: &FromTarget) -> Result<(), Error> {
        match pdu {
            FromTarget::NopIn(nop) if nop.wants_answer() => {
                let pdu = NopOut {
                    immediate: true,
                    data_len: 0,
                    lun: nop.lun,
                    itt: NO_TAG,
                    ttt: nop.ttt,
                    cmd_sn: 0,
                    exp_stat_sn: 0,
                };
                self.link.send_pdu(&pdu.emit(), &[])
            }
            // A request to log out needs no action: the logout follows in any case.
            FromTarget::NopIn(_) | FromTarget::AsyncMessage(_) => Ok(()),
            pdu => Err(Error::Target(format!("{pdu} instead of a list of targets"))),
        }
    }

    /// Logs out. The list is complete, so errors are ignored.
    fn log_out(&mut self) {
        let request = LogoutRequest {
            immediate: true,
            reason: LogoutReason::CloseSession,
            itt: LOGOUT_TAG,
            cid: 0,
            cmd_sn: 0,
            exp_stat_sn: 0,
        };
        if self.link.send_pdu(&request.emit(), &[]).is_err() {
            return;
        }
        let end = Instant::now() + LOGOUT_WAIT;
        while let Ok(Some((pdu, _))) = self.next(end) {
            if matches!(pdu, FromTarget::LogoutResponse(_)) || end <= Instant::now() {
                return;
            }
        }
    }
}
