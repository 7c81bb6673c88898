//! A carrier without a network, used by a host after its own carrier failed and before another is opened. It reports no events, and calls
//! that create or post something fail.

use std::time::Instant;

use verbena_nic::Wc;
use verbena_nic::wr::{Remote, Sge};

use super::{
    Carrier, CarrierError, Memory, News, Pair, PairOptions, Reach, Result, Sleeper, Ticket,
};

/// The carrier.
#[derive(Debug)]
pub(crate) struct Nowhere;

fn refused<T>() -> Result<T> {
    Err(CarrierError::Address {
        address: "nowhere".to_owned(),
        why: "the carrier is broken, and another is not open yet".to_owned(),
    })
}

impl Carrier for Nowhere {
    fn local(&self) -> String {
        "nowhere".to_owned()
    }

    fn name(&self) -> &'static str {
        "nowhere"
    }

    fn can_lose(&self) -> bool {
        false
    }

    fn separate(&mut self) -> Result<()> {
        refused()
    }

    fn memory(&mut self, _: usize, _: Reach) -> Result<Box<dyn Memory>> {
        refused()
    }

    fn create(&mut self, _: PairOptions) -> Result<Pair> {
        refused()
    }

    fn connect(&mut self, _: Pair, _: &[u8]) -> Result<()> {
        refused()
    }

    fn accept(&mut self, _: Ticket, _: Pair, _: &[u8]) -> Result<()> {
        refused()
    }

    fn reject(&mut self, _: Ticket, _: &[u8]) {}

    fn destroy(&mut self, _: Pair) {}

    fn post_receive(&mut self, _: Pair, _: u64, _: Option<Sge>) -> Result<()> {
        refused()
    }

    fn post_send(&mut self, _: Pair, _: u64, _: Sge) -> Result<()> {
        refused()
    }

    fn post_write(&mut self, _: Pair, _: u64, _: Sge, _: Remote, _: Option<u32>) -> Result<()> {
        refused()
    }

    fn turn(&mut self, _: Instant, _: &mut Vec<Wc>) -> Result<()> {
        Ok(())
    }

    fn news(&mut self) -> Option<News> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn sleepers<'a>(&'a self, _: &mut Vec<Sleeper<'a>>) {}

    fn doze(&mut self) -> bool {
        true
    }
}
