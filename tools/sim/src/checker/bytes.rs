//! Regions, receives and the guards around them are compared with the model byte by byte.
//! The error names the first byte that is wrong.

use super::Verdict;
use super::model::Model;
use crate::image::{FRESH_BYTE, ReceiveImage};
use crate::work::Work;
use crate::world::Transcript;

/// Checks both memories.
pub fn check(t: &Transcript) -> Verdict {
    let model = Model::of(t);
    for side in 0..2 {
        regions(t, &model, side).map_err(|why| format!("side {side}: {why}"))?;
        receives(t, side).map_err(|why| format!("side {side}: {why}"))?;
    }
    Ok(())
}

fn regions(t: &Transcript, model: &Model, side: usize) -> Verdict {
    for image in &t.images[side].regions {
        let stag = image.stag;
        let region = model.regions[side].get(&stag.get());
        let region = region.ok_or_else(|| format!("region {stag} is unknown"))?;
        if !image.memory.is_intact() {
            return Err(format!("region {stag}: guard overwritten"));
        }
        for (offset, &byte) in image.memory.bytes().iter().enumerate() {
            if !region.allows(offset, byte) {
                let expected = region.bytes[offset];
                return Err(format!(
                    "region {stag} byte {offset} is {byte:#04x}, expected {expected:#04x}"
                ));
            }
        }
        if image.valid && region.invalidated {
            return Err(format!("region {stag} is still valid"));
        }
        if !image.valid && !region.maybe_invalidated {
            return Err(format!("region {stag} was invalidated without a request"));
        }
    }
    Ok(())
}

fn receives(t: &Transcript, side: usize) -> Verdict {
    let images = &t.images[side].receives;
    if images.len() != t.supplied[side] {
        let (have, want) = (images.len(), t.supplied[side]);
        return Err(format!("{have} receives of {want} supplied"));
    }
    let other = 1 - side;
    let works = t.session.plan.sides[other].works.iter();
    let posted = works.take(t.posted[other]).map(|p| &p.work);
    let payloads: Vec<&[u8]> = posted
        .filter(|w| w.wants_receive())
        .map(|w| match w {
            Work::Send { payload, .. } => payload.as_slice(),
            _ => &[],
        })
        .collect();
    let received = t.received(side).count();
    for (k, image) in images.iter().enumerate() {
        let payload = payloads.get(k).copied().unwrap_or_default();
        receive(image, k, received, payload)?;
    }
    Ok(())
}

/// A consumed receive holds its message, the one after the last may hold part of one, all others are fresh.
fn receive(image: &ReceiveImage, k: usize, received: usize, payload: &[u8]) -> Verdict {
    let id = image.id;
    if !image.memory.is_intact() {
        return Err(format!("receive {id}: guard overwritten"));
    }
    for (offset, &byte) in image.memory.bytes().iter().enumerate() {
        let filled = payload.get(offset).copied();
        let fine = match k.cmp(&received) {
            core::cmp::Ordering::Less => byte == filled.unwrap_or(FRESH_BYTE),
            core::cmp::Ordering::Equal => byte == FRESH_BYTE || Some(byte) == filled,
            core::cmp::Ordering::Greater => byte == FRESH_BYTE,
        };
        if !fine {
            return Err(format!(
                "receive {id} byte {offset} is {byte:#04x}, expected {filled:02x?}"
            ));
        }
    }
    Ok(())
}
