//! Messages of the push-push layer.
//! A message that parses must be emitted as the same bytes, also entry by entry; the reply to an unknown function must parse.

use verbena_split_wire::push::{
    Body, Element, Indication, Message, Parsed, Pool, Range, Reference,
};

/// Runs one input.
pub fn target(data: &[u8]) {
    if let Some(word) = data.first_chunk() {
        let word = u32::from_be_bytes(*word);
        let indication = Indication::from_immediate(word);
        assert_eq!(indication.immediate(), word);
        let Indication {
            pool,
            element,
            length,
        } = indication;
        let again = Indication::fit(pool.into(), element.into(), length.into());
        assert_eq!(again, Some(indication));
    }
    match Message::parse(data) {
        Ok(Parsed::Known(message)) => known(&message, data),
        Ok(Parsed::Unknown(envelope)) => {
            let mut reply = Vec::new();
            envelope.unknown_reply().emit(&mut reply);
            let Ok(Parsed::Known(reply)) = Message::parse(&reply) else {
                panic!("the answer to {envelope} cannot be read");
            };
            assert_eq!(reply.context, envelope.context);
        }
        Err(error) => drop(error.to_string()),
    }
}

fn known(message: &Message<'_>, data: &[u8]) {
    let mut out = Vec::new();
    message.emit(&mut out);
    assert_eq!(out, data, "{message}");
    let context = message.context;
    out.clear();
    match message.body {
        Body::BufferRecvPool(list) => {
            let pools: Vec<Pool> = list.iter().collect();
            assert_eq!(pools.len(), list.len());
            Message::emit_pools(context, &pools, &mut out);
        }
        Body::BufferRecvPoolUpdate(list) => {
            let ranges: Vec<Range> = list.iter().collect();
            Message::emit_ranges(context, &ranges, &mut out);
        }
        Body::BufferPoolFlushRequest(list) => {
            let pools: Vec<Reference> = list.iter().collect();
            Message::emit_flush(context, &pools, &mut out);
        }
        Body::BufferRdmaIndicate(list) => {
            let elements: Vec<Element> = list.iter().collect();
            Message::emit_elements(context, &elements, &mut out);
        }
        _ => return,
    }
    assert_eq!(out, data, "{message}");
}
