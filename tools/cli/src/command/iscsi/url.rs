//! A clap parser for addresses of disks. Its errors do not repeat the argument, since that may contain a password, as clap's own errors
//! would.

use core::fmt::Display;
use core::marker::PhantomData;
use core::str::FromStr;
use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

/// Parses an argument that may contain a password.
pub(super) struct Url<T>(PhantomData<fn() -> T>);

impl<T> Url<T> {
    pub(super) const fn new() -> Url<T> {
        Url(PhantomData)
    }
}

impl<T> Clone for Url<T> {
    fn clone(&self) -> Url<T> {
        Url::new()
    }
}

impl<T> TypedValueParser for Url<T>
where
    T: FromStr<Err: Display> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, cmd: &Command, _: Option<&Arg>, word: &OsStr) -> Result<T, Error> {
        let wrong = |why: String| Error::raw(ErrorKind::ValueValidation, why).with_cmd(cmd);
        match word.to_str().map(T::from_str) {
            Some(read) => read.map_err(|why| wrong(format!("{why}\n"))),
            None => Err(wrong("the address is not valid UTF-8\n".to_owned())),
        }
    }
}
