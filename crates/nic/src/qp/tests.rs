//! Tests of queue pairs by what a program can see: what works, what is rejected, how things end.

mod carrier;
mod errors;
mod failure;
mod hostile;
mod in_order;
mod out_of_band;
mod peer_exit;
mod pending;
mod placement;
mod reads;
mod refusals;
mod register;
mod rnr;
mod roce;
mod roce_hostile;
mod roce_order;
mod segments;
mod splits;
mod srq_hold;
mod table;
mod touch;
mod trace;
mod work_requests;
mod xrc;
mod xrc_processes;
