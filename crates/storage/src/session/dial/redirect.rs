//! A target that has moved: whether it is followed, and what it is shown there. CHAP at another host would let that host try
//! passwords at its leisure, so that it gets no credentials unless its user wants that.

use std::net::IpAddr;

use verbena_iscsi::login::LoginError;

use super::Dial;
use crate::error::Error;
use crate::session::options::Redirects;

impl Dial {
    /// Whether `here`, where a target says it is now, may be dialled, and what is shown there.
    pub(super) fn follow(&mut self, from: String) -> Result<(), Error> {
        let to = self.here.to_string();
        if self.options.redirects == Redirects::Forbidden {
            return Err(Error::Redirected { from, to });
        }
        let ip = self.here.host.parse::<IpAddr>().ok();
        let same = self.here.host == self.address.host || (ip.is_some() && ip == self.first);
        let shown = same || self.options.redirects == Redirects::WithCredentials;
        self.withheld = !shown && self.address.credentials.is_some();
        if self.withheld && self.address.target_credentials.is_some() {
            let why = "it could not prove who it is, as target_user asks for".to_owned();
            return Err(Error::Withheld { from, to, why });
        }
        Ok(())
    }

    /// A login that was refused; where credentials were withheld, that may be why.
    pub(super) fn refused(&self, why: LoginError) -> Error {
        if self.withheld {
            return Error::Withheld {
                from: self.address.to_string(),
                to: self.here.to_string(),
                why: why.to_string(),
            };
        }
        Error::Login {
            address: self.here.to_string(),
            why: Box::new(why),
        }
    }
}
