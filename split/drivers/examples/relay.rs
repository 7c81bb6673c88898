//! An impaired network for UDP, as a program: `relay --listen ADDR --to ADDR [--loss P] [--reorder P] [--duplicate P] [--seed N]`.
//! Percentages are of datagrams, in both directions. It prints `listening on ADDR` and runs until it is killed.

#[path = "../tests/common/relay.rs"]
mod relay;

use std::error::Error;
use std::sync::atomic::AtomicBool;

use relay::{Faults, Relay};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut listen, mut to) = (None, None);
    let mut faults = Faults::default();
    let mut seed = 1;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        match word.as_str() {
            "--listen" => listen = Some(value.parse()?),
            "--to" => to = Some(value.parse()?),
            "--loss" => faults.loss = value.parse()?,
            "--reorder" => faults.reorder = value.parse()?,
            "--duplicate" => faults.duplicate = value.parse()?,
            "--seed" => seed = value.parse()?,
            _ => return Err(format!("{word} is unknown").into()),
        }
    }
    let listen = listen.ok_or("--listen ADDR is missing")?;
    let to = to.ok_or("--to ADDR is missing")?;
    let mut relay = Relay::new(listen, to, faults, seed)?;
    println!("listening on {}", relay.local_addr()?);
    Ok(relay.run(&AtomicBool::new(false))?)
}
