//! The status byte with which every command ends (SAM). It promises words for the values that are in use and keeps the
//! others. What to do about one is not known here.

use crate::coded::coded;

coded! {
    /// How a command ended.
    Status: u8 {
        /// All well.
        Good = 0x00 "good",
        /// See the sense data.
        CheckCondition = 0x02 "check condition",
        /// What the command looked for is there.
        ConditionMet = 0x04 "condition met",
        /// The unit cannot take it now.
        Busy = 0x08 "busy",
        /// Somebody else has reserved the unit.
        ReservationConflict = 0x18 "reservation conflict",
        /// The unit's queue is full.
        TaskSetFull = 0x28 "task set full",
        /// An error condition is kept.
        AcaActive = 0x30 "aca active",
        /// Somebody else ended it.
        TaskAborted = 0x40 "task aborted",
    }
}
