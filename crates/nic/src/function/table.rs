//! Objects by number: found in constant time, numbered so that a number that was freed rests before it names another.
//! A table promises that what is found is there, that it never holds more than its limit, and that an object which is
//! removed has no users and gets none meanwhile. It refuses to know what it holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;

use crate::error::{Error, Object};

/// A freed number rests until this many others have been freed, as long as fresh ones are left.
const REST: usize = 1024;

/// How many use an object.
#[derive(Debug, Default)]
pub(super) struct Users(AtomicU32);

impl Users {
    /// How many there are now.
    pub(super) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// One use of an object; it ends when it is dropped.
#[derive(Debug)]
pub(super) struct Use(Arc<Users>);

impl Use {
    /// Taken while the table is locked, so that nobody removes the object in between.
    pub(super) fn of(users: &Arc<Users>) -> Use {
        users.0.fetch_add(1, Ordering::AcqRel);
        Use(users.clone())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Rows by number.
#[derive(Debug)]
pub(super) struct Table<T> {
    object: Object,
    first: u32,
    limit: u32,
    rows: RwLock<Rows<T>>,
}

#[derive(Debug)]
struct Rows<T> {
    rows: Vec<Option<T>>,
    resting: VecDeque<u32>,
    live: u32,
}

impl<T> Table<T> {
    /// An empty table of `limit` rows, numbered from `first` on.
    pub(super) fn new(object: Object, first: u32, limit: u32) -> Table<T> {
        Table {
            object,
            first,
            limit,
            rows: RwLock::new(Rows {
                rows: Vec::new(),
                resting: VecDeque::new(),
                live: 0,
            }),
        }
    }

    /// Rows in use.
    pub(super) fn len(&self) -> u32 {
        self.rows.read().live
    }

    /// Adds a row that is told its number; `show` chooses what the caller gets of it.
    pub(super) fn add<R>(
        &self,
        make: impl FnOnce(u32) -> Result<T, Error>,
        show: impl FnOnce(&T) -> R,
    ) -> Result<R, Error> {
        let mut rows = self.rows.write();
        let fresh = (rows.rows.len() as u32) < self.limit;
        let rested = if fresh && rows.resting.len() <= REST {
            None
        } else {
            rows.resting.front().copied()
        };
        let at = match rested {
            Some(at) => at,
            None if fresh => rows.rows.len() as u32,
            None => {
                let (object, limit) = (self.object, self.limit);
                return Err(Error::Limit { object, limit });
            }
        };
        let row = make(self.first + at)?;
        let shown = show(&row);
        if rested.is_some() {
            rows.resting.pop_front();
            rows.rows[at as usize] = Some(row);
        } else {
            rows.rows.push(Some(row));
        }
        rows.live += 1;
        Ok(shown)
    }

    /// Looks at a row.
    pub(super) fn with<R>(&self, number: u32, look: impl FnOnce(&T) -> R) -> Result<R, Error> {
        let rows = self.rows.read();
        let at = number.checked_sub(self.first);
        let row = at.and_then(|at| rows.rows.get(at as usize)?.as_ref());
        row.map(look).ok_or(self.no_such(number))
    }

    /// Removes a row that nobody uses, as `users` counts them.
    pub(super) fn remove(&self, number: u32, users: impl FnOnce(&T) -> u32) -> Result<T, Error> {
        let mut rows = self.rows.write();
        let no_such = self.no_such(number);
        let at = number.checked_sub(self.first).ok_or(no_such)?;
        let slot = rows.rows.get_mut(at as usize).ok_or(no_such)?;
        let users = users(slot.as_ref().ok_or(no_such)?);
        if users > 0 {
            return Err(Error::InUse {
                object: self.object,
                number,
                users,
            });
        }
        let row = slot.take().ok_or(no_such)?;
        rows.resting.push_back(at);
        rows.live -= 1;
        Ok(row)
    }

    /// Something of every row that has it.
    pub(super) fn collect<R>(&self, pick: impl FnMut(&T) -> Option<R>) -> Vec<R> {
        let rows = self.rows.read();
        rows.rows.iter().flatten().filter_map(pick).collect()
    }

    pub(super) fn no_such(&self, number: u32) -> Error {
        let object = self.object;
        Error::NoSuch { object, number }
    }
}

#[cfg(test)]
mod tests;
