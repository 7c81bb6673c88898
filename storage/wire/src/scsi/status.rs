//! The status byte with which every command ends (SAM). Values without a variant are kept as numbers.
//! The reaction to a status is decided elsewhere.

use crate::coded::coded;

coded! {
    /// The status of a command.
    Status: u8 {
        /// Success.
        Good = 0x00 "good",
        /// See the sense data.
        CheckCondition = 0x02 "check condition",
        /// The condition of a conditional command is satisfied.
        ConditionMet = 0x04 "condition met",
        /// The unit cannot accept the command now.
        Busy = 0x08 "busy",
        /// Another initiator has reserved the unit.
        ReservationConflict = 0x18 "reservation conflict",
        /// The unit's queue is full.
        TaskSetFull = 0x28 "task set full",
        /// An auto contingent allegiance condition exists.
        AcaActive = 0x30 "aca active",
        /// Another initiator aborted the task.
        TaskAborted = 0x40 "task aborted",
    }
}
