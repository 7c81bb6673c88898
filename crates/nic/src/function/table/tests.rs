//! Tests of tables: limits, late reuse of numbers, users that keep a row.

use std::sync::Arc;

use super::super::users::{Use, Users};
use super::*;
use crate::error::Kind;

fn table(limit: u32) -> Table<u32> {
    Table::new(Object::Cq, 5, limit)
}

fn add(table: &Table<u32>) -> Result<u32, Error> {
    table.add(Ok, |row| *row)
}

#[test]
fn numbers_run_from_first_to_limit() {
    let table = table(2);
    assert_eq!((add(&table), add(&table)), (Ok(5), Ok(6)));
    let full = add(&table).unwrap_err();
    assert_eq!(full.kind(), Kind::Exhausted);
    assert_eq!(table.len(), 2);
    for number in [0, 4, 7, u32::MAX] {
        let missing = table.with(number, |_| ()).unwrap_err();
        assert_eq!(missing, table.no_such(number));
        assert_eq!(table.remove(number, |_| 0), Err(missing));
    }
}

#[test]
fn a_freed_number_is_not_the_next_one() {
    let table = table(3);
    for _ in 0..3 {
        add(&table).unwrap();
    }
    table.remove(6, |_| 0).unwrap();
    table.remove(5, |_| 0).unwrap();
    assert_eq!(
        (add(&table), add(&table)),
        (Ok(6), Ok(5)),
        "the longest rested first"
    );
    let roomy = self::table(100);
    let first = add(&roomy).unwrap();
    roomy.remove(first, |_| 0).unwrap();
    assert_ne!(add(&roomy), Ok(first), "fresh ones are left");
}

#[test]
fn number_reuse_bounds_table_size() {
    let table = table(1_000_000);
    for _ in 0..10_000 {
        let number = add(&table).unwrap();
        assert!(number <= 5 + QUARANTINE as u32 + 1);
        table.remove(number, |_| 0).unwrap();
    }
}

#[test]
fn row_in_use_cannot_be_removed() {
    let table: Table<Arc<Users>> = Table::new(Object::Pd, 1, 4);
    let number = table.add(|n| Ok((n, Arc::default()).1), |_| 1).unwrap();
    let uses: Vec<Use> = (0..3)
        .map(|_| table.with(number, Use::of).unwrap())
        .collect();
    let busy = table.remove(number, |users| users.count()).unwrap_err();
    assert_eq!(
        busy.to_string(),
        "protection domain 1 is in use by 3 others"
    );
    drop(uses);
    assert!(table.remove(number, |users| users.count()).is_ok());
}

#[test]
fn failed_creation_consumes_no_number() {
    let table = table(1);
    let refused = table.add(|n| Err::<u32, _>(table.no_such(n)), |_| ());
    assert!(refused.is_err());
    assert_eq!(add(&table), Ok(5));
}
