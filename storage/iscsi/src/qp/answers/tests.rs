//! The lower bound on what outstanding commands will bring.

use proptest::prelude::*;
use smallvec::SmallVec;
use verbena_nic::Flags;
use verbena_storage_wire::iscsi::{Attribute, Lun};
use verbena_storage_wire::scsi::DeviceType;

use super::*;
use crate::wr::CommandId;

fn command(direction: Direction, len: u32) -> Command {
    Command {
        id: 1,
        command: CommandId(1),
        flags: Flags::NONE,
        lun: Lun::default(),
        device: DeviceType::Disk,
        cdb: [0; 16],
        attribute: Attribute::Simple,
        direction,
        data: SmallVec::new(),
        len,
        stag: None,
        cmd_sn: 0,
        bursts: 0,
    }
}

fn outstanding(commands: &[Command]) -> Answers {
    let mut answers = Answers::default();
    commands.iter().for_each(|one| answers.add(one));
    answers
}

fn reads(count: usize, len: u32) -> Vec<Command> {
    (0..count).map(|_| command(Direction::Read, len)).collect()
}

#[test]
fn few_outstanding_commands_are_not_coalesced() {
    assert_eq!(outstanding(&reads(0, 0)).coalesced_bytes(), None);
    assert_eq!(outstanding(&reads(7, 4096)).coalesced_bytes(), None);
    let two = 2 * (BHS_LEN + 4096);
    assert_eq!(outstanding(&reads(8, 4096)).coalesced_bytes(), Some(two));
}

#[test]
fn low_water_mark_is_the_shortest_quarter() {
    let mut all = reads(63, 8192);
    all.push(command(Direction::Write, 8192));
    let mut answers = outstanding(&all);
    assert_eq!(
        answers.coalesced_bytes(),
        Some(16 * BHS_LEN),
        "a write is answered with a head"
    );
    answers.remove(&all[63]);
    assert_eq!(answers.coalesced_bytes(), Some(15 * (BHS_LEN + 8192)));
    // Lengths count as the power of two below them.
    let odd = outstanding(&reads(64, 5000)).coalesced_bytes();
    assert_eq!(odd, Some(16 * (BHS_LEN + 4096)));
}

#[test]
fn long_answers_are_not_coalesced() {
    let long = LONG as u32;
    assert_eq!(outstanding(&reads(64, long)).coalesced_bytes(), None);
    let shorter = outstanding(&reads(64, long - 1)).coalesced_bytes();
    assert_eq!(shorter, Some(16 * (BHS_LEN + LONG / 2)));
}

proptest! {
    /// After any sequence of additions and removals, any quarter of the commands brings at least as much.
    #[test]
    fn low_water_mark_never_exceeds_outstanding_bytes(
        steps in prop::collection::vec((any::<bool>(), 0..3_u8, any::<u32>()), 1..200),
    ) {
        let mut answers = Answers::default();
        let mut all: Vec<Command> = Vec::new();
        for (adds, kind, word) in steps {
            if adds || all.is_empty() {
                let direction = [Direction::Read, Direction::Write, Direction::None];
                let one = command(direction[usize::from(kind)], word >> (word % 32));
                answers.add(&one);
                all.push(one);
            } else {
                let one = all.swap_remove(word as usize % all.len());
                answers.remove(&one);
            }
            let mut brings: Vec<usize> = all
                .iter()
                .map(|one| match one.direction {
                    Direction::Read => BHS_LEN + one.len as usize,
                    _ => BHS_LEN,
                })
                .collect();
            brings.sort_unstable();
            let quarter = brings.len() / FRACTION;
            let least: usize = brings.iter().take(quarter).sum();
            let shortest = brings.first().copied().unwrap_or(0);
            match answers.coalesced_bytes() {
                Some(several) => prop_assert!(quarter >= MIN_ANSWERS && several <= least),
                None => prop_assert!(quarter < MIN_ANSWERS || shortest >= BHS_LEN + LONG),
            }
        }
    }
}
