//! Logins from end to end: against recorded bytes of a real target, a scripted target, and random input.

mod captured;
mod hostile;
mod responses;
mod scenarios;
mod target;

use super::*;

pub(super) const ISID: [u8; 6] = random_isid([0xaa, 0xbb, 0xcc], 1);
pub(super) const RANDOM: [u8; CHALLENGE_LEN] = [0x5a; CHALLENGE_LEN];
pub(super) const NAME: &str = "iqn.2024-01.org.example:disk";

pub(super) fn offer() -> Offer {
    let target = Purpose::Target(NAME.into());
    Offer::new("iqn.2024-01.org.example:host", target)
}

pub(super) fn login(offer: Offer) -> Login {
    Login::new(offer, ISID, RANDOM).unwrap()
}

/// A response to the login's next request that stays in the stage.
pub(super) fn response(login: &Login) -> LoginResponse {
    let (request, _) = login.next();
    LoginResponse {
        more: false,
        csg: request.csg,
        nsg: None,
        version_max: 0,
        version_active: 0,
        data_len: 0,
        isid: request.isid,
        tsih: 0,
        itt: request.itt,
        stat_sn: 0,
        window: Default::default(),
        status: LoginStatus::Success,
    }
}

/// A response that makes the stage transition the next request asks for.
pub(super) fn agreeing(login: &Login) -> LoginResponse {
    LoginResponse {
        nsg: login.next().0.nsg,
        tsih: 0x300,
        ..response(login)
    }
}

/// Key=value pairs as text.
pub(super) fn text_of(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in pairs {
        text::push(&mut out, key, value);
    }
    out
}

/// A text as one line.
pub(super) fn line(text: &[u8]) -> String {
    String::from_utf8(text.to_vec()).unwrap().replace('\0', " ")
}
