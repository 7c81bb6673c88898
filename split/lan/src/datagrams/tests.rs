//! Datagrams on the loopback interface: joined and single, buffer full, and ICMP errors.

use super::*;

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// All datagrams that have arrived.
fn drain(socket: &Datagrams, inbox: &mut Inbox) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut all = Vec::new();
    while socket.receive(inbox).unwrap() > 0 {
        all.extend(inbox.datagrams().map(|(from, d)| (from, d.to_vec())));
    }
    all
}

/// Lengths as a carrier sends them: full cells, a shorter last one, small ones, and none.
fn lengths() -> Vec<usize> {
    let mut lengths = vec![1464];
    lengths.extend([1448; 70]);
    lengths.extend([900, 1448, 1448, 36, 36, 36, 0, 20, 1]);
    lengths
}

#[test]
fn joined_and_single_datagrams_arrive_separately() {
    for joins in [true, false] {
        let unit = Datagrams::bind(LOCALHOST).unwrap();
        unit.set_buffer_sizes(1 << 20, 1 << 20);
        let place = unit.local_addr().unwrap();
        let host = Datagrams::connect(place).unwrap();
        host.set_gso(joins);
        let bytes: Vec<Vec<u8>> = lengths()
            .iter()
            .enumerate()
            .map(|(at, len)| vec![at as u8; *len])
            .collect();
        let sent = host.send(bytes.len(), |at| (place, &bytes[at])).unwrap();
        assert_eq!((sent.done, sent.lost, sent.full), (bytes.len(), 0, false));
        assert_eq!(host.is_gso_enabled(), joins, "this kernel joins");
        let came = drain(&unit, &mut unit.inbox(8));
        let from = host.local_addr().unwrap();
        // An empty datagram holds no cell and is not returned.
        let expected = bytes.iter().filter(|b| !b.is_empty());
        let expected: Vec<_> = expected.map(|b| (from, b.clone())).collect();
        assert_eq!(came, expected, "joined: {joins}");
        // The other direction, from a socket that is not connected.
        let sent = unit.send(3, |at| (from, &bytes[at + 1])).unwrap();
        assert_eq!(sent.done, 3);
        assert_eq!(drain(&host, &mut host.inbox(8)).len(), 3);
    }
}

#[test]
fn datagram_runs_to_one_destination_are_joined() {
    let bytes: Vec<Vec<u8>> = lengths().iter().map(|len| vec![0; *len]).collect();
    let other = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let to = |at: usize| if at == 60 { other } else { LOCALHOST };
    let get = |at: usize| bytes.get(at).map(|b| (to(at), b.as_slice()));
    let plan = SendPlan::new(get, false, true);
    // 1464 starts a run that a shorter one ends; 45 of 1448 fit into one message; the one to another destination is alone.
    assert_eq!(plan.sizes[..plan.messages], [2, 45, 13, 1, 3]);
    assert_eq!(plan.headers[1].segment, Some(1448));
    assert_eq!(plan.headers[3].segment, None);
    let apart = SendPlan::new(get, false, false);
    assert_eq!(apart.sizes[..apart.messages], [1; mmsg::MAX_MESSAGES]);
}

#[test]
fn absent_peer_causes_no_error() {
    let gone = Datagrams::bind(LOCALHOST).unwrap();
    let place = gone.local_addr().unwrap();
    let host = Datagrams::connect(place).unwrap();
    drop(gone);
    for _ in 0..5 {
        let sent = host.send(3, |_| (place, b"hello")).unwrap();
        assert_eq!(sent.done, 3);
        assert_eq!(host.receive(&mut host.inbox(1)).unwrap(), 0);
    }
}

#[test]
fn oversized_datagram_alone_is_lost() {
    let unit = Datagrams::bind(LOCALHOST).unwrap();
    let place = unit.local_addr().unwrap();
    let host = Datagrams::connect(place).unwrap();
    let (long, short) = (vec![0; 65_508], vec![0; 9]);
    let get = |at: usize| (place, if at == 1 { &long[..] } else { &short[..] });
    let sent = host.send(3, get).unwrap();
    assert_eq!((sent.done, sent.lost, sent.full), (3, 1, false));
    assert_eq!(drain(&unit, &mut unit.inbox(4)).len(), 2);
}

#[test]
fn loopback_path_allows_longest_datagram() {
    let v4 = max_unfragmented(SocketAddr::from((Ipv4Addr::LOCALHOST, 9))).unwrap();
    assert_eq!(v4, MAX_DATAGRAM, "of the loopback interface");
}

/// A forged ICMP message must not end a driver: every errno that the kernel derives from one, of either family.
#[test]
fn icmp_errors_concern_one_datagram() {
    let said = [
        Errno::NETUNREACH,
        Errno::HOSTUNREACH,
        Errno::NOPROTOOPT,
        Errno::CONNREFUSED,
        Errno::MSGSIZE,
        Errno::OPNOTSUPP,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::ACCESS,
        Errno::PROTO,
    ];
    for errno in said {
        assert!(is_datagram_error(errno), "{errno:?}");
    }
}
