//! Which peers may connect, and how connections are protected: access lists, shared keys and TLS (docs/operating.md).
//! Each is checked before a peer can make the adapter allocate a queue pair's memory.

pub mod access;
pub(crate) mod key_auth;
pub(crate) mod keys;
pub(crate) mod source;
pub(crate) mod tls;

use std::sync::Arc;

use crate::config::Config;
use crate::error::Error;
use access::AccessList;
use keys::Keys;
use tls::Tls;

/// The protection of an engine's connections.
pub(crate) struct Security {
    config: Arc<Config>,
    /// Which sources may connect and send datagrams.
    pub(crate) access: AccessList,
    /// Keys for the authentication of peers.
    pub(crate) keys: Keys,
    /// TLS, if connections are encrypted.
    pub(crate) tls: Option<Tls>,
}

impl Security {
    pub(crate) fn new(config: &Arc<Config>) -> Result<Security, Error> {
        let keys = Keys::load(config).map_err(Box::new)?;
        Ok(Security {
            config: config.clone(),
            access: AccessList::new(config),
            tls: Tls::new(config, &keys).map_err(Box::new)?,
            keys,
        })
    }
}
