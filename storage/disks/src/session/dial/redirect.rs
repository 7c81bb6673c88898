//! Redirections: whether they are followed, and whether credentials are sent. A CHAP exchange would let another host guess the password
//! offline, so credentials are not sent there unless the user enables it.

use std::net::IpAddr;

use verbena_iscsi::login::LoginError;

use super::Dial;
use crate::error::Error;
use crate::session::options::Redirects;

impl Dial {
    /// Whether `current`, the address of the redirection, may be dialled, and with credentials or not.
    pub(super) fn follow(&mut self, from: String) -> Result<(), Error> {
        let to = self.current.to_string();
        if self.options.redirects == Redirects::Forbidden {
            return Err(Error::Redirected { from, to });
        }
        let ip = self.current.host.parse::<IpAddr>().ok();
        let same = self.current.host == self.address.host || (ip.is_some() && ip == self.first_ip);
        let shown = same || self.options.redirects == Redirects::WithCredentials;
        self.withheld = !shown && self.address.credentials.is_some();
        if self.withheld && self.address.target_credentials.is_some() {
            let why = "it could not authenticate itself, as target_user requires".to_owned();
            return Err(Error::CredentialsWithheld { from, to, why });
        }
        Ok(())
    }

    /// The error of a rejected login; where credentials were withheld, that may be the cause.
    pub(super) fn refused(&self, why: LoginError) -> Error {
        if self.withheld {
            return Error::CredentialsWithheld {
                from: self.address.to_string(),
                to: self.current.to_string(),
                why: why.to_string(),
            };
        }
        Error::Login {
            address: self.current.to_string(),
            why: Box::new(why),
        }
    }
}
