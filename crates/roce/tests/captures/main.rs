//! Conversations of Linux rxe, replayed: our responder gives the answers that rxe gave, and our requester sends the packets that rxe sent and
//! completes every request with the answers it got. The captures are described in docs/roce.md.

mod capture;
mod cm;
mod requester;
mod responder;
