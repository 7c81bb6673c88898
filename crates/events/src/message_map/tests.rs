//! Tests of the maps: cells change one by one, and cells that do not exist are errors.

use super::*;

fn route(queue: u16, vector: u16) -> Route {
    Route {
        queue,
        signal: Signal::Vector(vector),
    }
}

#[test]
fn setting_one_cell_leaves_the_others() {
    let map = MessageMap::new(3, |duty, p| route(duty as u16 * 3 + p, p)).unwrap();
    let line = Route {
        queue: u16::MAX,
        signal: Signal::Line,
    };
    assert_eq!(map.set(Duty::RdmaRx, 2, line), Ok(route(17, 2)));
    for duty in Duty::ALL {
        for p in 0..3 {
            let moved = duty == Duty::RdmaRx && p == 2;
            let expected = if moved {
                line
            } else {
                route(duty as u16 * 3 + p, p)
            };
            assert_eq!(map.route(duty, p), Ok(expected));
        }
    }
}

#[test]
fn flat_map_holds_line_or_32_vectors() {
    let map = FlatMap::new(2).unwrap();
    assert_eq!(map.signal(1), Ok(Signal::Line));
    for vector in 0..FLAT_VECTORS {
        map.set(1, Signal::Vector(vector)).unwrap();
        assert_eq!(map.signal(1), Ok(Signal::Vector(vector)));
    }
    assert_eq!(map.set(1, Signal::Vector(32)), Err(MapError::Flat(32)));
    assert_eq!(map.signal(1), Ok(Signal::Vector(31)), "unchanged");
    assert_eq!(map.signal(0), Ok(Signal::Line));
    map.set(1, Signal::Line).unwrap();
    assert_eq!(map.signal(1), Ok(Signal::Line));
}

#[test]
fn out_of_range_cells_are_refused() {
    let map = MessageMap::new(2, |_, _| route(0, 0)).unwrap();
    let refused = MapError::Processor {
        processor: 2,
        processors: 2,
    };
    assert_eq!(map.set(Duty::Tcp, 2, route(0, 0)), Err(refused));
    assert_eq!(
        MessageMap::new(0, |_, _| route(0, 0)).err(),
        Some(MapError::Processors(0))
    );
    assert_eq!(FlatMap::new(0).err(), Some(MapError::Queues(0)));
    let flat = FlatMap::new(2).unwrap();
    let refused = MapError::Queue {
        queue: 2,
        queues: 2,
    };
    assert_eq!(flat.set(2, Signal::Line), Err(refused));
}
