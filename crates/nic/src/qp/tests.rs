//! Tests of queue pairs by what a program can see: what works, what is rejected, how things end.

mod by_hand;
mod carrying;
mod deaths;
mod errors;
mod holding;
mod hostile;
mod in_order;
mod pending;
mod reads;
mod refusals;
mod register;
mod rnr;
mod splits;
mod table;
mod touch;
mod work;
