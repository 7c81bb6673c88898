//! The result of a command: SCSI status and sense data, or why there is none. [`Outcome::into_result`] maps it to the failures of a disk.
//! Whether a command is repeated is decided in `answer` and `recover`.

use core::fmt;

use verbena_storage_wire::iscsi::{Bhs, DataIn, FromTarget, Residual, ScsiResponse, Service};
use verbena_storage_wire::scsi::{Sense, SenseKey, Status};
use verbena_wire::Malformed;

use crate::error::Failure;

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// GOOD, with the residual count.
    Good(Residual),
    /// CHECK CONDITION.
    Check(Sense),
    /// Another status.
    Status(Status),
    /// Target failure (response code other than "command completed").
    TargetFailed,
    /// Not sent, for this reason.
    Unsent(String),
    /// Lost with the connection; it may have been executed.
    Lost(String),
    /// Cancelled by its owner; it may have been executed.
    Cancelled,
}

impl Outcome {
    /// Parses a response.
    pub(super) fn parse(bhs: &Bhs, data: &[u8]) -> Result<Outcome, Malformed> {
        let (status, residual) = match FromTarget::parse(bhs)? {
            FromTarget::DataIn(DataIn {
                status: Some(status),
                residual,
                ..
            }) => (status, residual),
            FromTarget::ScsiResponse(ScsiResponse {
                response: Service::Completed,
                status,
                residual,
                ..
            }) => (status, residual),
            _ => return Ok(Outcome::TargetFailed),
        };
        match Status::from_code(status) {
            Status::Good => Ok(Outcome::Good(residual)),
            Status::CheckCondition => {
                let sense = Sense::parse(ScsiResponse::sense(data)?)?;
                Ok(Outcome::Check(sense))
            }
            status => Ok(Outcome::Status(status)),
        }
    }

    /// UNIT ATTENTION: the command was not executed and may be sent again.
    pub(super) fn is_attention(&self) -> bool {
        matches!(self, Outcome::Check(sense) if sense.key == SenseKey::UnitAttention)
    }

    /// A status after which the command may be sent again later.
    pub(super) fn is_busy(&self) -> bool {
        matches!(
            self,
            Outcome::Status(Status::Busy | Status::TaskSetFull | Status::TaskAborted)
        )
    }

    /// As the result of a disk's request.
    pub fn into_result(self) -> Result<(), Failure> {
        match &self {
            Outcome::Good(Residual::None | Residual::Underflow(0)) => Ok(()),
            Outcome::Good(Residual::Underflow(n)) => Err(Failure::Refused(format!(
                "{n} bytes are missing from its answer"
            ))),
            Outcome::Good(Residual::Overflow(n)) => Err(Failure::Refused(format!(
                "it has {n} bytes more than were asked for"
            ))),
            Outcome::Check(sense) => Err(failure_of(sense)),
            Outcome::Lost(why) => Err(Failure::Lost(why.clone())),
            Outcome::Cancelled => Err(Failure::Cancelled),
            Outcome::Status(_) | Outcome::TargetFailed | Outcome::Unsent(_) => {
                Err(Failure::Refused(self.to_string()))
            }
        }
    }
}

fn failure_of(sense: &Sense) -> Failure {
    match (sense.key, sense.asc) {
        (SenseKey::DataProtect, 0x27) if sense.ascq == 7 => Failure::NoSpace,
        (SenseKey::DataProtect, _) => Failure::ReadOnly,
        (SenseKey::MediumError | SenseKey::HardwareError, _) => Failure::Medium(sense.to_string()),
        _ => Failure::Refused(sense.to_string()),
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Good(Residual::None) => f.write_str("good"),
            Outcome::Good(residual) => write!(f, "good, {residual}"),
            Outcome::Check(sense) => write!(f, "check condition: {sense}"),
            Outcome::Status(status) => write!(f, "{status}"),
            Outcome::TargetFailed => f.write_str("the target could not carry it out"),
            Outcome::Unsent(why) => write!(f, "not sent: {why}"),
            Outcome::Lost(why) => write!(f, "lost: {why}"),
            Outcome::Cancelled => f.write_str("cancelled"),
        }
    }
}
