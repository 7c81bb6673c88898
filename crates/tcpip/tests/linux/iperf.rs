//! The control protocol of iperf3, as much as one stream of a fixed length needs, spoken through our stack.
//! States are single bytes, and parameters and results are JSON behind their length.

use verbena_tcpip::ConnectionId;

use super::host::Host;

const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;
const IPERF_DONE: u8 = 16;
const COOKIE: usize = 37;

fn send_json(host: &mut Host, control: ConnectionId, json: &str) {
    let len = u32::try_from(json.len()).expect("a short text");
    host.send(control, &[&len.to_be_bytes(), json.as_bytes()].concat());
}

fn receive_json(host: &mut Host, control: ConnectionId) -> String {
    let len = host.receive(control, 4);
    let len = u32::from_be_bytes(len.try_into().expect("four bytes"));
    let bytes = host.receive(control, usize::try_from(len).expect("a short text"));
    String::from_utf8(bytes).expect("text")
}

fn expect_state(host: &mut Host, control: ConnectionId, state: u8) {
    assert_eq!(host.receive(control, 1), [state]);
}

fn results(bytes: u64) -> String {
    format!(
        "{{\"cpu_util_total\":0,\"cpu_util_user\":0,\"cpu_util_system\":0,\"sender_has_retransmits\":0,\
         \"streams\":[{{\"id\":1,\"bytes\":{bytes},\"retransmits\":0,\"jitter\":0,\"errors\":0,\"packets\":0,\
         \"start_time\":0,\"end_time\":1}}]}}"
    )
}

/// Takes `total` bytes of a stream, whatever they are.
fn drain(host: &mut Host, data: ConnectionId, total: u64) {
    let mut arrived = 0;
    host.run_until("the stream has arrived", |host| {
        arrived += host.take(data).len() as u64;
        arrived >= total || host.streams[&data].finished
    });
}

fn fill(host: &mut Host, data: ConnectionId, total: u64) {
    host.send(
        data,
        &vec![0x55; usize::try_from(total).expect("in memory")],
    );
    host.run_until("the stream is sent", |host| host.unsent(data) == 0);
}

/// One test with a client of the kernel; `is_reverse` if we send.
pub(crate) fn serve(host: &mut Host, port: u16, total: u64, is_reverse: bool) {
    let control = host.accept(port);
    let cookie = host.receive(control, COOKIE);
    host.send(control, &[PARAM_EXCHANGE]);
    let parameters = receive_json(host, control);
    assert_eq!(parameters.contains("reverse"), is_reverse, "{parameters}");
    host.send(control, &[CREATE_STREAMS]);
    let data = host.accept(port);
    assert_eq!(host.receive(data, COOKIE), cookie);
    host.send(control, &[TEST_START, TEST_RUNNING]);
    if is_reverse {
        // The client ends the test when it has received as much as it wants.
        host.send(
            data,
            &vec![0x55; 2 * usize::try_from(total).expect("in memory")],
        );
    } else {
        drain(host, data, total);
    }
    expect_state(host, control, TEST_END);
    host.send(control, &[EXCHANGE_RESULTS]);
    receive_json(host, control);
    send_json(host, control, &results(total));
    host.send(control, &[DISPLAY_RESULTS]);
    expect_state(host, control, IPERF_DONE);
    let now = host.now();
    host.stack.abort(data);
    host.stack.close(control, now);
}

/// One test with a server of the kernel; `is_reverse` if it sends.
pub(crate) fn run(host: &mut Host, address: &str, port: u16, total: u64, is_reverse: bool) {
    let control = host.connect(address, port);
    let cookie = [&[b'a'; COOKIE - 1][..], &[0]].concat();
    host.send(control, &cookie);
    expect_state(host, control, PARAM_EXCHANGE);
    let reverse = if is_reverse { ",\"reverse\":true" } else { "" };
    let parameters = format!(
        "{{\"tcp\":true,\"omit\":0,\"num\":{total},\"parallel\":1,\"len\":131072,\"client_version\":\"3.12\"{reverse}}}"
    );
    send_json(host, control, &parameters);
    expect_state(host, control, CREATE_STREAMS);
    let data = host.connect(address, port);
    host.send(data, &cookie);
    expect_state(host, control, TEST_START);
    expect_state(host, control, TEST_RUNNING);
    if is_reverse {
        drain(host, data, total);
    } else {
        fill(host, data, total);
    }
    host.send(control, &[TEST_END]);
    expect_state(host, control, EXCHANGE_RESULTS);
    send_json(host, control, &results(total));
    receive_json(host, control);
    expect_state(host, control, DISPLAY_RESULTS);
    host.send(control, &[IPERF_DONE]);
    host.finish(control);
    host.finish(data);
}
