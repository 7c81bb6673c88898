//! Seeds of the targets for channels: one cell of each kind, scripts of them for a port, one message of each function.
//! They are built by the codecs, so that they follow changes of a format.

use core::num::NonZeroU16;

use verbena_split_wire::cell::{
    AddressBlock, Body, Cell, CellPosition, CellRoute, Cookie, Data, DisconnectReason, NakReason,
    PacketSeq, RejectReason, Tail, Terms,
};
use verbena_split_wire::push::{
    Body as Says, Element, Envelope, Message, Operation, Pool, Range, Reference, Status,
};
use verbena_wire::crc::crc32c;
use verbena_wire::number::Qpn;
use verbena_wire::{Stag, To};

use crate::Seed;

fn cell(to: u32, connected: bool, packet: u32, body: Body<'_>) -> Vec<u8> {
    let way = CellRoute {
        to_wqp: Qpn::wrapping(to),
        from_wqp: Qpn::wrapping(1),
        ..CellRoute::default()
    };
    let mut out = Vec::new();
    let packet = PacketSeq::new(packet);
    let cell = Cell {
        route: way,
        connected,
        packet,
        body,
    };
    cell.emit(&mut out);
    out
}

fn send(acknowledged: bool, number: u16, last: bool) -> Body<'static> {
    let place = match NonZeroU16::new(number) {
        None => CellPosition::SendFirst,
        Some(number) => CellPosition::SendMore(number),
    };
    let tail = if last {
        Tail::Last {
            immediate: None,
            crc: crc32c(if number == 0 { b"hello" } else { b"hellohello" }),
        }
    } else {
        Tail::More
    };
    Body::Data(Data {
        position: place,
        tail,
        acknowledged,
        solicited: false,
        payload: b"hello",
    })
}

fn write() -> Body<'static> {
    let block = AddressBlock {
        at: To::new(0x1000),
        handle: Stag::new(0x100),
        len: 5,
    };
    let (immediate, crc) = (Some(0x0705_0100), 7);
    Body::Data(Data {
        position: CellPosition::WriteFirst(block),
        tail: Tail::Last { immediate, crc },
        acknowledged: true,
        solicited: true,
        payload: b"hello",
    })
}

const TERMS: Terms<'static> = Terms {
    acknowledged: true,
    max_payload: 256,
    private: b"hi",
};

const COOKIE: Cookie = Cookie([7; Cookie::LEN]);

pub(crate) fn cells() -> Vec<Seed> {
    let echo = PacketSeq::new(0);
    let reject = Body::Reject {
        echo,
        reason: RejectReason::Busy,
        private: b"no",
    };
    let cookie = Some(COOKIE);
    let retry = Body::Retry {
        echo,
        cookie: COOKIE,
    };
    let both = [
        cell(1, true, 0, send(true, 0, false)),
        cell(1, true, 0, send(true, 1, true)),
    ];
    vec![
        ("send", cell(1, false, 0, send(false, 0, true))),
        ("two-cells", both.concat()),
        ("write", cell(1, true, 5, write())),
        ("ack", cell(1, true, 5, Body::Ack)),
        ("nak", cell(1, true, 5, Body::Nak(NakReason::NoBuffer))),
        (
            "connect",
            cell(
                9,
                true,
                5,
                Body::Connect {
                    terms: TERMS,
                    cookie: None,
                },
            ),
        ),
        (
            "connect-cookie",
            cell(
                9,
                true,
                5,
                Body::Connect {
                    terms: TERMS,
                    cookie,
                },
            ),
        ),
        ("retry", cell(2, true, 5, retry)),
        (
            "accept",
            cell(2, true, 5, Body::Accept { echo, terms: TERMS }),
        ),
        ("reject", cell(2, true, 5, reject)),
        (
            "disconnect",
            cell(2, true, 5, Body::Disconnect(DisconnectReason::Closed)),
        ),
    ]
}

/// Chunks as the target reads them: switches, a length, a cell.
pub(crate) fn scripts() -> Vec<Seed> {
    let script = |chunks: &[(u8, Vec<u8>)]| {
        let chunk = |(turn, cell): &(u8, Vec<u8>)| [&[*turn, cell.len() as u8], &cell[..]].concat();
        chunks.iter().flat_map(chunk).collect::<Vec<u8>>()
    };
    let echo = PacketSeq::new(0);
    let unacknowledged = Terms {
        acknowledged: false,
        ..TERMS
    };
    let accept = Body::Accept {
        echo,
        terms: unacknowledged,
    };
    let loose = script(&[
        (4, cell(0, false, 0, send(false, 0, true))),
        (5, cell(1, false, 0, send(true, 0, true))),
        (9, cell(1, false, 1, send(true, 0, true))),
        (16, cell(1, false, 0, Body::Ack)),
    ]);
    let accepted = script(&[
        (
            7,
            cell(
                9,
                true,
                0,
                Body::Connect {
                    terms: TERMS,
                    cookie: None,
                },
            ),
        ),
        (11, cell(3, true, 0, send(true, 0, false))),
        (16, cell(3, true, 0, send(true, 1, true))),
        (0, cell(3, true, 0, Body::Ack)),
        (
            32,
            cell(3, true, 0, Body::Disconnect(DisconnectReason::Closed)),
        ),
    ]);
    let asked = script(&[
        (6, cell(2, true, 0, accept)),
        (10, cell(2, true, 0, send(false, 0, true))),
        (0, cell(2, true, 1, write())),
        (0, cell(2, true, 0, Body::Nak(NakReason::Gap))),
    ]);
    let retry = Body::Retry {
        echo,
        cookie: COOKIE,
    };
    let retried = script(&[
        (0, cell(2, true, 0, retry)),
        (0, cell(2, true, 0, retry)),
        (6, cell(2, true, 0, accept)),
        (10, cell(2, true, 0, send(false, 0, true))),
    ]);
    vec![
        ("loose", loose),
        ("accepted", accepted),
        ("asked", asked),
        ("retried", retried),
    ]
}

pub(crate) fn messages() -> Vec<Seed> {
    let context = 0x0102_0304_0506_0708;
    let list = |emit: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        emit(&mut out);
        out
    };
    let one = |body| list(&|out| Message { context, body }.emit(out));
    let pool = Pool {
        reference: 7,
        count: 64,
        size: 256,
        handle: Stag::new(0x100),
        at: To::new(0x1000),
        context: 1,
    };
    let range = Range {
        pool: 7,
        first: 5,
        count: 1,
    };
    let elements = [
        Element::Index {
            pool: 256,
            element: 5,
            length: 65536,
        },
        Element::Address {
            pool: 1,
            at: To::new(0x1000),
            length: 256,
        },
    ];
    let unknown = Envelope {
        function: 77,
        version: 2,
        context,
    };
    let (count, size) = (16, 1500);
    let (operation, status) = (Operation::GetMac, Status::Ok);
    let data = &[2, 0, 0, 0, 0, 1];
    let reply = Says::CfgUtilReply {
        operation,
        status,
        data,
    };
    vec![
        (
            "pools",
            list(&|out| Message::emit_pools(context, &[pool, pool], out)),
        ),
        ("get", one(Says::BufferRecvPoolGet { count, size })),
        (
            "update",
            list(&|out| Message::emit_ranges(context, &[range], out)),
        ),
        (
            "flush",
            list(&|out| Message::emit_flush(context, &[Reference(7)], out)),
        ),
        ("flushed", one(Says::BufferPoolFlushReply)),
        ("data", one(Says::SendData(b"hello"))),
        (
            "indicate",
            list(&|out| Message::emit_elements(context, &elements, out)),
        ),
        (
            "request",
            one(Says::CfgUtilRequest {
                operation,
                data: &[],
            }),
        ),
        ("reply", one(reply)),
        ("unknown", unknown.emit().to_vec()),
    ]
}
