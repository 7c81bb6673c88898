//! The configuration service from both sides (P6): our requests and the peer's, with their answers. Every request is answered, by
//! the program or, if it is invalid or one too many, here.

use verbena_split_wire::push::{Body, Envelope, Function, Message, Operation, Status};

use super::Session;
use crate::error::{Misuse, Violation};
use crate::output::Event;
use crate::transactions::OpenRequest;

/// Bytes before the data.
const CONFIG_HEAD: usize = Envelope::LEN + 8;

impl Session {
    /// Sends a request to the peer's configuration service; the context returns with [`Event::Reply`].
    pub fn request(&mut self, operation: Operation, data: &[u8]) -> Result<u64, Misuse> {
        self.check_data(data)?;
        self.check_transactions(1)?;
        let context = self.transactions.context();
        let body = Body::CfgUtilRequest { operation, data };
        let bytes = self.compose(context, body);
        self.transactions.open(context, OpenRequest::Config, bytes);
        Ok(context)
    }

    /// Answers the peer's [request](Event::Request).
    pub fn reply(&mut self, context: u64, status: Status, data: &[u8]) -> Result<(), Misuse> {
        self.check_data(data)?;
        let operation = self.transactions.remove_peer_request(context);
        let operation = operation.ok_or(Misuse::UnknownRequest { context })?;
        // Answers to a peer that sends requests and gives no credit for answers are dropped, and counted.
        if let Err(violation) = self.answer(context, operation, status, data) {
            self.count_violation(violation);
        }
        Ok(())
    }

    fn check_data(&self, data: &[u8]) -> Result<(), Misuse> {
        let most = (self.settings.frame as usize).saturating_sub(CONFIG_HEAD);
        let got = data.len();
        if got > most {
            return Err(Misuse::DataTooLong { got, most });
        }
        Ok(())
    }

    pub(super) fn answer(
        &mut self,
        context: u64,
        operation: Operation,
        status: Status,
        data: &[u8],
    ) -> Result<(), Violation> {
        let body = Body::CfgUtilReply {
            operation,
            status,
            data,
        };
        self.compose_reply(context, body)
    }

    /// Queues an answer. A peer that keeps its limits never has more open; answers beyond that are dropped.
    pub(super) fn compose_reply(&mut self, context: u64, body: Body<'_>) -> Result<(), Violation> {
        let most = self.settings.limits.transactions;
        let room = most as usize * 3 + self.settings.messages as usize + self.owned.len();
        if self.outbox.len() >= room {
            return Err(Violation::TooManyRequests { most });
        }
        self.compose(context, body);
        Ok(())
    }

    /// Queues a message and returns its bytes.
    pub(super) fn compose(&mut self, context: u64, body: Body<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        Message { context, body }.emit(&mut bytes);
        self.outbox.push_back(bytes.clone());
        bytes
    }

    pub(super) fn handle_request(
        &mut self,
        context: u64,
        operation: Operation,
        data: &[u8],
    ) -> Result<(), Violation> {
        // An unknown operation is answered with status 1; the program does not see it.
        if matches!(operation, Operation::None | Operation::Unknown(_)) {
            return self.answer(context, operation, Status::UnknownOperation, &[]);
        }
        let most = self.settings.limits.transactions;
        match self.transactions.add_peer_request(context, operation, most) {
            Some(true) => self.event(Event::Request {
                context,
                operation,
                data: data.to_vec(),
            }),
            // Repeated because the answer is late.
            Some(false) => {}
            None => {
                self.answer(context, operation, Status::NotAllowed, &[])?;
                return Err(Violation::TooManyRequests { most });
            }
        }
        Ok(())
    }

    pub(super) fn handle_reply(
        &mut self,
        context: u64,
        operation: Operation,
        status: Status,
        data: &[u8],
    ) -> Result<(), Violation> {
        if operation == Operation::None && status == Status::UnknownMessage {
            // Also for messages without an answer; a pool whose flush was not understood keeps its state.
            self.transactions.close(context);
            self.event(Event::Unsupported { context });
            return Ok(());
        }
        if self.transactions.is_repeated_reply(context) {
            // The second answer to a repeated request.
            return Ok(());
        }
        if self.transactions.get(context) != Some(&OpenRequest::Config) {
            return Err(Violation::StrayReply { context });
        }
        self.transactions.close(context);
        self.event(Event::Reply {
            context,
            operation,
            status,
            data: data.to_vec(),
        });
        Ok(())
    }

    /// A malformed configuration request is answered with `BadData`.
    pub(super) fn answer_malformed(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let envelope = Envelope::parse(bytes)?;
        if envelope.function == Function::CfgUtilRequest as u16 {
            let code = bytes
                .get(Envelope::LEN..)
                .and_then(<[u8]>::first_chunk::<2>);
            let code = code.map_or(0, |code| u16::from_be_bytes(*code));
            let operation = Operation::from_code(code);
            self.answer(envelope.context, operation, Status::BadData, &[])?;
        }
        Ok(())
    }
}
