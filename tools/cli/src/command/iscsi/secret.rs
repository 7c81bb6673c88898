//! CHAP credentials that are not in the address: a name on the command line, and the password in a file or in the environment.
//! A password file that other users can read is rejected; a password on the command line, or a short one, causes a warning.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use verbena_storage::session::Redirects;
use verbena_storage::{Address, Credentials};

use super::BoxError;

/// The variable with the password, if there is no file.
const VARIABLE: &str = "VERBENA_ISCSI_PASSWORD";
/// The longest value of a text key (RFC 7143 §6.1).
const LONGEST: usize = 255;
/// RFC 7143 §9.2.1: secrets of fewer than 96 bits can be found by trying.
const SHORTEST: usize = 12;

#[derive(Args)]
pub(super) struct Secret {
    /// User name for CHAP; its password is in --password-file or in the environment variable VERBENA_ISCSI_PASSWORD
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// File whose first line is the password, readable and writable by its owner only (mode 0600)
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// Do not follow a login redirection to another address
    #[arg(long, conflicts_with = "redirect_credentials")]
    no_redirect: bool,
    /// After a redirection, send the CHAP credentials to the other host as well
    #[arg(long)]
    redirect_credentials: bool,
}

impl Secret {
    pub(super) fn redirects(&self) -> Redirects {
        match (self.no_redirect, self.redirect_credentials) {
            (true, _) => Redirects::Forbidden,
            (false, true) => Redirects::WithCredentials,
            (false, false) => Redirects::WithoutCredentials,
        }
    }

    /// The address with the credentials that were given beside it.
    pub(super) fn complete(&self, address: &Address) -> Result<Address, BoxError> {
        let mut address = address.clone();
        match (&self.user, &address.credentials) {
            (Some(_), Some(_)) => {
                return Err(
                    "the address already contains a user; remove it, or omit --user".into(),
                );
            }
            (None, Some(_)) => warn(&format!(
                "a password on the command line can be seen by other users of this machine; \
                 --user with --password-file or {VARIABLE} hides it"
            )),
            (None, None) => {}
            (Some(user), None) => {
                let password = match &self.password_file {
                    Some(path) => from_file(path)?,
                    None => from_environment()?,
                };
                address.credentials = Some(Credentials {
                    user: check_length("the name", user.clone())?,
                    password,
                });
            }
        }
        for one in [&address.credentials, &address.target_credentials] {
            let len = one.as_ref().map(|one| one.password.len());
            if let Some(len) = len.filter(|len| *len < SHORTEST) {
                warn(&format!(
                    "a CHAP secret of {len} bytes can be guessed by trial; RFC 7143 requires at least {SHORTEST} bytes"
                ));
            }
        }
        Ok(address)
    }
}

fn warn(what: &str) {
    eprintln!("verbena: warning: {what}");
}

fn check_length(what: &str, text: String) -> Result<String, BoxError> {
    match text.len() {
        1..=LONGEST => Ok(text),
        len => Err(format!("{what} has {len} bytes; CHAP takes 1 to {LONGEST}").into()),
    }
}

fn from_environment() -> Result<String, BoxError> {
    match std::env::var(VARIABLE) {
        Ok(password) => check_length(VARIABLE, password),
        Err(_) => {
            let what = format!("--user needs a password: --password-file FILE, or {VARIABLE}");
            Err(what.into())
        }
    }
}

fn from_file(path: &Path) -> Result<String, BoxError> {
    let shown = path.display();
    let failed = |error| format!("cannot read the password file {shown}: {error}");
    let file = File::open(path).map_err(failed)?;
    // The mode of the opened file, whatever has its name by now.
    let mode = file.metadata().map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        let mode = mode & 0o7777;
        let what = format!(
            "the password file {shown} is accessible to other users (mode {mode:04o}): run chmod 600 {shown}"
        );
        return Err(what.into());
    }
    let mut text = String::new();
    // Only as much as needed to detect one that is too long: it may be any file.
    let read = file.take(2 * LONGEST as u64).read_to_string(&mut text);
    read.map_err(failed)?;
    let password = text.lines().next().unwrap_or_default();
    check_length("the first line of the password file", password.to_owned())
}
