//! The adapter: functions, each with its own range of every kind of number (V1).
//! The ranges of two functions never overlap, and the physical function exists from the start. A removed function's ranges can
//! be given to another; its function number is not used again.

mod ranges;

pub(crate) use ranges::Cursor;
pub use ranges::Ranges;

use std::collections::BTreeMap;
use std::sync::Arc;

use verbena_mem::Policy;
use verbena_sync::locks::RwLock;

use crate::error::Error;
use crate::function::{Function, Shares};
use crate::object::Object;
use crate::profile::Services;

/// Functions of an adapter at once, the physical one among them.
pub const MAX_FUNCTIONS: u32 = 256;

/// An adapter.
#[derive(Debug)]
pub struct Adapter {
    policy: Policy,
    seed: u64,
    functions: RwLock<Functions>,
}

#[derive(Debug, Default)]
struct Functions {
    all: BTreeMap<u32, (Arc<Function>, Ranges)>,
    /// Functions made so far, removed ones included. A function number is never used again, because the seed of STag indexes and
    /// keys is derived from it: the next function with the same range must not repeat the STags of a removed one.
    next_number: u32,
    cursor: Cursor,
}

impl Functions {
    fn ranges(&self) -> impl Iterator<Item = &Ranges> + Clone {
        self.all.values().map(|(_, ranges)| ranges)
    }
}

impl Adapter {
    /// An adapter whose physical function has these shares; `seed` makes STags hard to guess.
    pub fn new(shares: Shares, policy: Policy, seed: u64) -> Result<Adapter, Error> {
        Adapter::with_services(Services::IMPLEMENTED, shares, policy, seed)
    }

    /// The same with a physical function whose queue pairs are for these services only (V2).
    pub fn with_services(
        services: Services,
        shares: Shares,
        policy: Policy,
        seed: u64,
    ) -> Result<Adapter, Error> {
        let adapter = Adapter {
            policy,
            seed,
            functions: RwLock::default(),
        };
        adapter.add_with_services(services, shares)?;
        Ok(adapter)
    }

    /// One more function, with shares of what is left.
    pub fn add_function(&self, shares: Shares) -> Result<Arc<Function>, Error> {
        self.add_with_services(Services::IMPLEMENTED, shares)
    }

    /// The same, whose queue pairs are for these services only (V2).
    pub fn add_with_services(
        &self,
        services: Services,
        shares: Shares,
    ) -> Result<Arc<Function>, Error> {
        let mut functions = self.functions.write();
        let functions = &mut *functions;
        if functions.all.len() as u32 >= MAX_FUNCTIONS {
            let (object, limit) = (Object::Function, MAX_FUNCTIONS);
            return Err(Error::Limit { object, limit });
        }
        let number = functions.next_number;
        let mut cursor = functions.cursor;
        let ranges = cursor.allocate(&shares, &functions.ranges())?;
        // Functions must not be able to guess each other's STags from their own.
        let seed = self.seed ^ u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let stags = ranges.stags.clone();
        let function = Function::new((number, services), shares, stags, self.policy, seed);
        let function = Arc::new(function);
        functions.cursor = cursor;
        functions.next_number += 1;
        functions.all.insert(number, (function.clone(), ranges));
        Ok(function)
    }

    /// Removes a virtual function that has no objects; its ranges can then be given to others. No object can be created through
    /// handles to it that still exist.
    ///
    /// A function that has objects stays as it is: nothing is removed while a program uses it (N9).
    pub fn remove_function(&self, number: u32) -> Result<(), Error> {
        if number == 0 {
            return Err(Error::Physical);
        }
        let mut functions = self.functions.write();
        let object = Object::Function;
        let found = functions.all.get(&number);
        let (function, _) = found.ok_or(Error::NoSuch { object, number })?;
        function.close()?;
        functions.all.remove(&number);
        Ok(())
    }

    /// How many functions exist.
    pub fn functions(&self) -> u32 {
        self.functions.read().all.len() as u32
    }

    /// The numbers of all functions; 0 is the physical one.
    pub fn numbers(&self) -> Vec<u32> {
        self.functions.read().all.keys().copied().collect()
    }

    /// The largest share of each kind that a new function can get: the longest run of numbers that no function has.
    pub fn available_shares(&self) -> Shares {
        ranges::available_shares(&self.functions.read().ranges())
    }

    /// The function with this number; 0 is the physical one.
    pub fn function(&self, number: u32) -> Result<Arc<Function>, Error> {
        self.entry(number, |(function, _)| function.clone())
    }

    /// The function's ranges in the adapter's numbers.
    pub fn ranges(&self, number: u32) -> Result<Ranges, Error> {
        self.entry(number, |(_, ranges)| ranges.clone())
    }

    fn entry<R>(
        &self,
        number: u32,
        look: impl FnOnce(&(Arc<Function>, Ranges)) -> R,
    ) -> Result<R, Error> {
        let object = Object::Function;
        let functions = self.functions.read();
        let found = functions.all.get(&number);
        found.map(look).ok_or(Error::NoSuch { object, number })
    }
}

#[cfg(test)]
mod tests;
