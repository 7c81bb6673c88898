//! A carrier without a network, used by a host after its own carrier failed and before another is opened. It reports no events, and calls
//! that create or post something fail.

use std::time::Instant;

use verbena_nic::Wc;
use verbena_nic::wr::{RemoteAddr, Sge};

use super::{
    Carrier, CarrierError, CarrierEvent, CarrierFd, Memory, MemoryAccess, Pair, PairOptions,
    Result, Ticket,
};

/// The carrier.
#[derive(Debug)]
pub(crate) struct NullCarrier;

fn refused<T>() -> Result<T> {
    Err(CarrierError::Address {
        address: "nowhere".to_owned(),
        why: "the carrier is broken, and another is not open yet".to_owned(),
    })
}

impl Carrier for NullCarrier {
    fn local_addr(&self) -> String {
        "nowhere".to_owned()
    }

    fn name(&self) -> &'static str {
        "nowhere"
    }

    fn is_lossy(&self) -> bool {
        false
    }

    fn new_protection_domain(&mut self) -> Result<()> {
        refused()
    }

    fn register_memory(&mut self, _: usize, _: MemoryAccess) -> Result<Box<dyn Memory>> {
        refused()
    }

    fn create_pair(&mut self, _: PairOptions) -> Result<Pair> {
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

    fn post_write(&mut self, _: Pair, _: u64, _: Sge, _: RemoteAddr, _: Option<u32>) -> Result<()> {
        refused()
    }

    fn turn(&mut self, _: Instant, _: &mut Vec<Wc>) -> Result<()> {
        Ok(())
    }

    fn next_event(&mut self) -> Option<CarrierEvent> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn wait_fds<'a>(&'a self, _: &mut Vec<CarrierFd<'a>>) {}

    fn prepare_sleep(&mut self) -> bool {
        true
    }
}
