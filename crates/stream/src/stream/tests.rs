//! Tests of a whole stream: valid messages, hostile input, control messages, and how it ends.

mod control;
mod ending;
mod failing;
mod flow;
mod frame_single;
mod hostile;
mod nudge;
mod unreliable;
mod xrc;

use super::*;
use crate::testing::table;

#[test]
fn the_table_of_states_and_events() {
    insta::assert_snapshot!(table(&State::ALL, &Event::ALL, State::next));
}
