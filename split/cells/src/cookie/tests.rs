//! Cookies: which requests get one, what it is valid for, and for how long.

use verbena_split_wire::cell::CellRoute;

use super::*;

const HERE: PortAddress = PortAddress([2, 0, 0, 0, 0, 1]);
const THERE: PortAddress = PortAddress([2, 0, 0, 0, 0, 2]);
const SOURCE: &[u8] = &[10, 0, 0, 7, 1, 2];
const LISTENER: Qpn = Qpn::wrapping(3);
const OLD: Qpn = Qpn::wrapping(1);

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn connect(listener: Qpn, packet: u32, private: &[u8], cookie: Option<Cookie>) -> Vec<u8> {
    let terms = Terms {
        acknowledged: true,
        max_payload: 256,
        private,
    };
    let cell = Cell {
        route: CellRoute {
            to: PortAddress::ANY,
            from: THERE,
            to_wqp: listener,
            from_wqp: Qpn::wrapping(20),
        },
        connected: true,
        packet: PacketSeq::new(packet),
        body: Body::Connect { terms, cookie },
    };
    let mut bytes = Vec::new();
    cell.emit(&mut bytes);
    bytes
}

fn judge(cookies: &Cookies, source: &[u8], datagram: &[u8], now: Time) -> (CookieCheck, Vec<u8>) {
    let mut answer = Vec::new();
    let old = |listener| listener == OLD;
    let asked = cookies.check_requests((source, THERE), HERE, old, datagram, now, &mut answer);
    assert!(answer.len() <= datagram.len(), "no more than came");
    (asked, answer)
}

fn retry(answer: &[u8]) -> Cookie {
    match Cell::parse(answer) {
        Ok((
            Cell {
                body: Body::Retry { cookie, .. },
                ..
            },
            _,
        )) => cookie,
        other => panic!("{other:?}"),
    }
}

const HELLO: &[u8] = b"sixteen bytes ..";

/// A cookie for the usual request at a given time.
fn cookie(cookies: &Cookies, now: Time) -> Cookie {
    let ask = connect(LISTENER, 5, HELLO, None);
    let (asked, answer) = judge(cookies, SOURCE, &ask, now);
    assert_eq!(asked, CookieCheck::default());
    retry(&answer)
}

#[test]
fn a_cookie_proves_its_own_request_only() {
    let cookies = Cookies::new([1; 32], at(0));
    let cookie = cookie(&cookies, at(0));
    let proven = |source: &[u8], ask: &[u8]| judge(&cookies, source, ask, at(0)).0.proven;
    let again = connect(LISTENER, 5, HELLO, Some(cookie));
    assert!(proven(SOURCE, &again));
    assert!(!proven(&[10, 0, 0, 8, 1, 2], &again), "another address");
    assert!(!proven(&[10, 0, 0, 7, 1, 3], &again), "another port");
    let others = [
        connect(LISTENER, 6, HELLO, Some(cookie)),
        connect(LISTENER, 5, b"sixteen bytes .!", Some(cookie)),
        connect(Qpn::wrapping(4), 5, HELLO, Some(cookie)),
    ];
    for other in others {
        assert!(!proven(SOURCE, &other));
    }
    let mut guess = cookie;
    guess.0[15] ^= 1;
    let guess = connect(LISTENER, 5, HELLO, Some(guess));
    let (asked, answer) = judge(&cookies, SOURCE, &guess, at(0));
    assert!(!asked.proven);
    assert_eq!(retry(&answer), cookie, "it is told the right one");
}

#[test]
fn cookie_expires_and_survives_one_key_renewal() {
    let mut cookies = Cookies::new([1; 32], at(0));
    let given = cookie(&cookies, at(9));
    let again = connect(LISTENER, 5, HELLO, Some(given));
    let proven = |cookies: &Cookies, now| judge(cookies, SOURCE, &again, now).0.proven;
    assert!(proven(&cookies, at(19)));
    assert!(!proven(&cookies, at(20)));
    assert!(!cookies.is_expired(at(599)) && cookies.is_expired(at(600)));
    cookies.renew([2; 32], at(10));
    assert!(proven(&cookies, at(19)), "the last key still checks");
    assert_ne!(cookie(&cookies, at(9)), given, "and makes no more");
    cookies.renew([3; 32], at(11));
    assert!(!proven(&cookies, at(19)));
}

#[test]
fn answer_is_never_longer_than_request() {
    let cookies = Cookies::new([1; 32], at(0));
    // A Retry has 56 bytes, and a request without private data 40.
    for private in [0, 15, 16, 512] {
        for listener in [LISTENER, OLD] {
            let ask = connect(listener, 5, &vec![7; private], None);
            let (_, answer) = judge(&cookies, SOURCE, &ask, at(0));
            assert_eq!(answer.is_empty(), private < 16, "{private}");
        }
    }
    let short = connect(LISTENER, 5, b"", None);
    let many = short.repeat(10);
    let (_, answer) = judge(&cookies, SOURCE, &many, at(0));
    assert_eq!(Cells::new(&answer).count(), 400 / 56);
}

#[test]
fn a_short_request_is_padded_for_its_answer() {
    let cookies = Cookies::new([1; 32], at(0));
    for times in [1, 2, 5] {
        let mut short = connect(LISTENER, 5, b"", None).repeat(times);
        pad(&mut short);
        assert_eq!(Cells::new(&short).flatten().count(), times);
        let (_, answer) = judge(&cookies, SOURCE, &short, at(0));
        assert_eq!(Cells::new(&answer).count(), times);
    }
    let cookie = Some(Cookie([0; 16]));
    for long in [
        connect(LISTENER, 5, b"", cookie),
        connect(LISTENER, 5, HELLO, None),
    ] {
        let mut padded = long.clone();
        pad(&mut padded);
        assert_eq!(padded, long);
    }
}

#[test]
fn peer_without_cookie_support_is_rejected() {
    let cookies = Cookies::new([1; 32], at(0));
    let ask = connect(OLD, 5, HELLO, None);
    let (asked, answer) = judge(&cookies, SOURCE, &ask, at(0));
    assert!(asked.too_old && !asked.proven);
    let (cell, _) = Cell::parse(&answer).unwrap();
    let Body::Reject { echo, private, .. } = cell.body else {
        panic!("{cell}");
    };
    assert_eq!((echo, private), (PacketSeq::new(5), TOO_OLD));
    assert_eq!((cell.route.to, cell.route.from), (THERE, HERE));
}

#[test]
fn only_valid_connects_to_this_port_are_answered() {
    let cookies = Cookies::new([1; 32], at(0));
    let mut strange = connect(LISTENER, 5, HELLO, None);
    let mut damaged = strange.clone();
    damaged[40] ^= 1;
    let answered = |bytes: &[u8]| !judge(&cookies, SOURCE, bytes, at(0)).1.is_empty();
    assert!(!answered(&damaged) && !answered(&[]) && !answered(&[0x14; 100]));
    // A source port other than the datagram's.
    let mut answer = Vec::new();
    let way = (SOURCE, PortAddress([2; 6]));
    let asked = cookies.check_requests(way, HERE, |_| false, &strange, at(0), &mut answer);
    assert_eq!((asked, answer.len()), (CookieCheck::default(), 0));
    // Addressed to another port.
    strange[4..10].copy_from_slice(&[2; 6]);
    let len = strange.len() - 4;
    strange.truncate(len);
    verbena_split_wire::cell::emit_trailer(0, None, &mut strange);
    assert!(!answered(&strange));
}
