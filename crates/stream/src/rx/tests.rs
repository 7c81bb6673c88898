//! Tests of the receive side: its table of phases and the size of the stage.

use super::*;
use crate::testing::table;

#[test]
fn table_of_phases_and_events() {
    insta::assert_snapshot!(table(&RxPhase::ALL, &RxEvent::ALL, RxPhase::next));
}

#[test]
fn stage_with_crc_holds_the_largest_frame() {
    use verbena_wire::mpa::fpdu::{Layout, Phase};
    for phase in (0..512).step_by(4) {
        let layout = Layout::new(u16::MAX, Phase::new(phase));
        assert!(layout.size() <= STAGE_WITH_CRC);
    }
}
