//! Our own scripts on `python3-pyverbs`: the verbs objects through Python bindings, with every byte checked.
//! They have traffic of each kind between two queue pairs of one process.
//! The interpreter is Debian's, for which the package is built.

use super::case::{Case, SCRIPTS, Side};
use super::source::wheels::PYTHON;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::single("pyverbs/rc", script("pyverbs_rc.py").must_print("all good")).limit(60)]
}

pub(crate) fn script(name: &str) -> Side {
    Side::new([PYTHON.to_owned(), format!("{SCRIPTS}/{name}")])
}
