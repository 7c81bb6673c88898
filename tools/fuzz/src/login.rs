//! The login and the discovery of an iSCSI initiator with a target that sends arbitrary responses.
//! The initiator must not panic and must end after a bounded number of exchanges; agreed terms must lie within the offer, and mutual
//! authentication must have taken place if it was demanded.

use verbena_iscsi::login::{
    Authentication, CHALLENGE_LEN, Chap, DigestPreference, Discovery, DiscoveryProgress, IserOffer,
    Login, LoginOutcome, MAX_EXCHANGES, Offer, Progress, Purpose, random_isid,
};
use verbena_storage_wire::iscsi::{Bhs, LoginResponse, LoginStatus, NO_TAG, TextResponse, Window};

use crate::source::Source;

/// The task tag of the discovery.
const TAG: u32 = 9;

/// Runs one input: switches, then steps of flags, the length of a text in two bytes, and the text.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let switches = source.byte();
    if switches & 0x80 != 0 {
        discover(source);
    } else {
        log_in(switches, source);
    }
}

fn offer(switches: u8) -> Offer {
    let has = |bit: u8| switches & bit != 0;
    let purpose = match has(0x20) {
        true => Purpose::Discovery,
        false => Purpose::Target("iqn.b".into()),
    };
    let digest = match (has(0x10), has(0x40)) {
        _ if has(0x04) => DigestPreference::None,
        (true, true) => DigestPreference::Required,
        (true, false) => DigestPreference::Preferred,
        (false, true) => DigestPreference::Accepted,
        (false, false) => DigestPreference::None,
    };
    Offer {
        chap: has(0x01).then(|| Chap::new("host", "ours")),
        mutual: (has(0x01) && has(0x02)).then(|| Chap::new("disk", "theirs")),
        iser: has(0x04).then(IserOffer::default),
        two_step: has(0x08),
        header_digest: digest,
        ..Offer::new("iqn.a", purpose)
    }
}

fn log_in(switches: u8, mut source: Source<'_>) {
    let offer = offer(switches);
    let random = [0x5a; CHALLENGE_LEN];
    let isid = random_isid([1, 2, 3], 4);
    let mut login = Login::new(offer.clone(), isid, random).expect("a good offer");
    let mut exchanges = 0;
    loop {
        let (response, text) = answer(&login, &mut source);
        exchanges += 1;
        match login.handle_response(&response, text) {
            Ok(Progress::Continue) => assert!(exchanges <= MAX_EXCHANGES, "it does not end"),
            Ok(Progress::Done(settled)) => return judge(&offer, &settled),
            Ok(Progress::Redirected { address, .. }) => return drop(address.to_string()),
            Err(error) => {
                assert!(!error.to_string().contains(char::is_control), "{error:?}");
                return;
            }
        }
    }
}

/// A response to the next request, emitted and parsed; once the input is used up it accepts each stage transition.
fn answer<'a>(login: &Login, source: &mut Source<'a>) -> (LoginResponse, &'a [u8]) {
    let (request, text) = login.next();
    assert_eq!(request.data_len as usize, text.len());
    assert!(!(request.more && request.nsg.is_some()));
    let flags = if source.is_empty() { 1 } else { source.byte() };
    if flags & 0x80 != 0 {
        let bhs: Bhs = source.array();
        let text = source.slice(64);
        if let Ok(response) = LoginResponse::parse(&bhs) {
            return (response, text);
        }
    }
    let len = usize::from(source.u16());
    let text = source.slice(len);
    let nsg = request.nsg.filter(|_| flags & 1 != 0);
    let response = LoginResponse {
        more: flags & 2 != 0 && nsg.is_none(),
        csg: request.csg,
        nsg,
        version_max: 0,
        version_active: 0,
        data_len: text.len() as u32,
        isid: request.isid,
        tsih: 7,
        itt: request.itt,
        stat_sn: 0,
        window: Window::default(),
        status: LoginStatus::from_code(if flags & 4 != 0 { 0x0101 } else { 0 }),
    };
    let parsed = LoginResponse::parse(&response.emit());
    assert_eq!(parsed, Ok(response));
    (response, text)
}

fn judge(offer: &Offer, settled: &LoginOutcome) {
    let terms = settled.terms;
    assert!(terms.first_burst <= terms.max_burst);
    assert!(terms.max_burst <= offer.max_burst);
    assert!(terms.max_r2t <= offer.max_r2t);
    assert!((512..1 << 24).contains(&terms.max_send));
    assert!(terms.header_digest || offer.header_digest != DigestPreference::Required);
    assert!(!terms.header_digest || offer.header_digest != DigestPreference::None);
    assert!(!terms.data_digest);
    assert_eq!(
        offer.mutual.is_some(),
        settled.authentication == Authentication::Mutual
    );
    let normal = offer.purpose != Purpose::Discovery;
    assert_eq!(offer.iser.is_some() && normal, settled.iser.is_some());
    assert_ne!(settled.tsih, 0);
}

fn discover(mut source: Source<'_>) {
    let mut discovery = Discovery::new(TAG);
    while !source.is_empty() {
        let (request, _) = discovery.next();
        assert_eq!(request.itt, TAG);
        let flags = source.byte();
        let len = usize::from(source.u16());
        let text = source.slice(len);
        let response = TextResponse {
            is_final: flags & 1 != 0,
            more: flags & 3 == 2,
            data_len: text.len() as u32,
            lun: request.lun,
            itt: TAG,
            ttt: if flags & 4 != 0 { NO_TAG } else { 1 },
            stat_sn: 0,
            window: Window::default(),
        };
        match discovery.handle_response(&response, text) {
            Ok(DiscoveryProgress::Continue) => {}
            Ok(DiscoveryProgress::Done(records)) => {
                assert!(records.iter().all(|r| !r.name.is_empty()));
                return;
            }
            Err(error) => {
                assert!(!error.to_string().contains(char::is_control), "{error:?}");
                return;
            }
        }
    }
}
