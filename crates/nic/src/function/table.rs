//! Objects by number: found in constant time; a freed number is reused late.
//! A table never holds more than its limit, and an object that is removed has no users and gets none meanwhile.

use std::collections::{HashSet, VecDeque};

use verbena_sync::locks::{RwLock, RwLockWriteGuard};

use crate::error::Error;
use crate::object::Object;

/// A freed number is not reused before this many others have been freed, as long as new ones are left.
const QUARANTINE: usize = 1024;

/// Rows by number.
#[derive(Debug)]
pub(super) struct Table<T> {
    object: Object,
    first: u32,
    limit: u32,
    rows: RwLock<Rows<T>>,
}

/// What a table holds.
#[derive(Debug)]
pub(super) struct Rows<T> {
    rows: Vec<Option<T>>,
    quarantine: VecDeque<u32>,
    /// Rows that are reserved and not filled yet (V5); they count towards the limit.
    pending: HashSet<u32>,
    live: u32,
    /// The function was removed (V1).
    closed: bool,
}

impl<T> Rows<T> {
    /// Rows in use.
    pub(super) fn live(&self) -> u32 {
        self.live
    }

    /// Lets no row be added any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// A slot for one more row, if the limit allows it.
    fn next(&mut self, limit: u32) -> Option<u32> {
        if self.closed {
            return None;
        }
        let fresh = (self.rows.len() as u32) < limit;
        if fresh && self.quarantine.len() <= QUARANTINE {
            self.rows.push(None);
            return Some(self.rows.len() as u32 - 1);
        }
        self.quarantine.pop_front()
    }
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
                quarantine: VecDeque::new(),
                pending: HashSet::new(),
                live: 0,
                closed: false,
            }),
        }
    }

    /// Rows in use.
    pub(super) fn len(&self) -> u32 {
        self.rows.read().live
    }

    /// Locks the table: no row is added or removed while the guard is held.
    pub(super) fn lock(&self) -> RwLockWriteGuard<'_, Rows<T>> {
        self.rows.write()
    }

    /// Adds a row made from its number; `show` selects what is returned of it.
    pub(super) fn add<R>(
        &self,
        make: impl FnOnce(u32) -> Result<T, Error>,
        show: impl FnOnce(&T) -> R,
    ) -> Result<R, Error> {
        let mut rows = self.rows.write();
        let at = rows.next(self.limit);
        let at = at.ok_or_else(|| self.full(&rows))?;
        match make(self.first + at) {
            Ok(row) => {
                let shown = show(&row);
                rows.rows[at as usize] = Some(row);
                rows.live += 1;
                Ok(shown)
            }
            Err(error) => {
                // No object has had this number, so it can be reused at once.
                rows.quarantine.push_front(at);
                Err(error)
            }
        }
    }

    /// Reserves a row: its number is taken, and names no object until it is filled (V5).
    pub(super) fn reserve(&self) -> Result<u32, Error> {
        let mut rows = self.rows.write();
        let at = rows.next(self.limit);
        let at = at.ok_or_else(|| self.full(&rows))?;
        rows.pending.insert(at);
        rows.live += 1;
        Ok(self.first + at)
    }

    /// Fills a reserved row.
    pub(super) fn fill<R>(
        &self,
        number: u32,
        make: impl FnOnce(u32) -> Result<T, Error>,
        show: impl FnOnce(&T) -> R,
    ) -> Result<R, Error> {
        let mut rows = self.rows.write();
        let at = number.wrapping_sub(self.first);
        if !rows.pending.contains(&at) {
            return Err(self.no_such(number));
        }
        let row = make(number)?;
        let shown = show(&row);
        rows.pending.remove(&at);
        rows.rows[at as usize] = Some(row);
        Ok(shown)
    }

    /// Frees a reserved row that was not filled.
    pub(super) fn cancel_reservation(&self, number: u32) {
        let mut rows = self.rows.write();
        let at = number.wrapping_sub(self.first);
        if rows.pending.remove(&at) {
            rows.quarantine.push_back(at);
            rows.live -= 1;
        }
    }

    /// Checks that the row is filled or reserved.
    pub(super) fn check_known(&self, number: u32) -> Result<(), Error> {
        match self.with(number, |_| ()) {
            Err(Error::Pending { .. }) => Ok(()),
            known => known,
        }
    }

    /// Calls `look` with a row.
    pub(super) fn with<R>(&self, number: u32, look: impl FnOnce(&T) -> R) -> Result<R, Error> {
        let rows = self.rows.read();
        let at = number.checked_sub(self.first);
        let row = at.and_then(|at| rows.rows.get(at as usize)?.as_ref());
        row.map(look).ok_or_else(|| self.missing(&rows, number))
    }

    /// Removes a row that has no users, as counted by `users`.
    pub(super) fn remove(&self, number: u32, users: impl FnOnce(&T) -> u32) -> Result<T, Error> {
        let mut rows = self.rows.write();
        let no_such = self.missing(&rows, number);
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
        rows.quarantine.push_back(at);
        rows.live -= 1;
        Ok(row)
    }

    /// Collects what `pick` returns for each row.
    pub(super) fn collect<R>(&self, pick: impl FnMut(&T) -> Option<R>) -> Vec<R> {
        let rows = self.rows.read();
        rows.rows.iter().flatten().filter_map(pick).collect()
    }

    /// Why there is no row.
    fn missing(&self, rows: &Rows<T>, number: u32) -> Error {
        let object = self.object;
        if rows.pending.contains(&number.wrapping_sub(self.first)) {
            return Error::Pending { object, number };
        }
        self.no_such(number)
    }

    fn full(&self, rows: &Rows<T>) -> Error {
        let (object, limit) = (self.object, self.limit);
        if rows.closed {
            return Error::FunctionRemoved { object };
        }
        Error::Limit { object, limit }
    }

    pub(super) fn no_such(&self, number: u32) -> Error {
        let object = self.object;
        Error::NoSuch { object, number }
    }
}

#[cfg(test)]
mod tests;
