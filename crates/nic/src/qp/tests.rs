//! Tests of queue pairs, by what a consumer can see: what works, what is refused, how things end.

mod errors;
mod rnr;
mod work;
