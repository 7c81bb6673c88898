//! A seed gives the same run at all times: the first numbers of one are fixed here.
//! If a dependency changed them, every kept regression seed would silently test something else.

use super::{Ratio, Rng};

#[test]
fn seed_gives_fixed_numbers() {
    let mut rng = Rng::new(1);
    let numbers = [rng.draw(), rng.range(5, 9), rng.below(1000)];
    assert_eq!(numbers, [7_424_550_030_962_593_201, 5, 285]);
}

#[test]
fn ratios_zero_and_one_are_certain() {
    let mut rng = Rng::new(7);
    assert!((0..500).all(|_| rng.chance(Ratio::ALWAYS)));
    assert!((0..500).all(|_| !rng.chance(Ratio::NEVER)));
}

#[test]
fn forked_generators_are_independent() {
    let mut parent = Rng::new(3);
    let (mut a, mut b) = (parent.fork(), parent.fork());
    let expected = b.clone().draw();
    a.bytes(1000);
    assert_eq!(b.draw(), expected);
}
