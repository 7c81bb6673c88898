//! Tests of a whole stream: what flows, what a hostile peer tries, how control messages act, how it ends.

mod control;
mod ending;
mod failing;
mod flow;
mod hostile;
mod nudge;
mod unreliable;
mod whole;

use super::*;
use crate::testing::table;

#[test]
fn the_table_of_states_and_events() {
    insta::assert_snapshot!(table(&State::ALL, &Event::ALL, State::next));
}
