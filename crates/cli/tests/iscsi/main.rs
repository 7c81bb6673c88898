//! Debian's tgtd, the target that our initiator is tested with, tested itself by programs of libiscsi.
//! Over TCP, and over iSER with our libraries under both: there they are two more programs that know nothing of us.

mod iser;
mod target;
mod tcp;
