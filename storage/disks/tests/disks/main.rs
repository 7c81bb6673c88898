//! Sessions, disks and exports: against scripted targets, a real target (tgt), and third-party programs.
//! One program, since none of these tests needs a process of its own.

#[path = "../common/ram.rs"]
mod ram;
#[path = "../common/scripted.rs"]
mod scripted;
#[path = "../../../../tools/cli/tests/iscsi/target.rs"]
mod target;

mod aborts;
mod disk;
mod iscsi_qp;
mod nbd;
mod redial;
mod redirect;
mod reported_values;
mod services;
mod two_consumers;
mod unsolicited_pdus;
mod waits;
