//! Our own scripts on `python3-pyverbs`: the verbs objects through Python bindings, with every byte checked.
//! They have traffic of each kind between two queue pairs of one process.
//! The interpreter is Debian's, for which the package is built.

use super::case::{Case, SCRIPTS, Side};
use super::source::wheels::PYTHON;

pub(crate) fn cases() -> Vec<Case> {
    let single = |name: &str, side: Side| Case::single(name, side.must_print("all good")).limit(60);
    let mut without_traffic = script("pyverbs_memory.py");
    without_traffic.command.push("iwarp".to_owned());
    vec![
        single("pyverbs/rc", script("pyverbs_rc.py")),
        single("pyverbs/xrc", script("pyverbs_xrc.py")),
        single("pyverbs/memory", script("pyverbs_memory.py")),
        single("pyverbs/memory/iwarp", without_traffic).personality("iwarp"),
    ]
}

pub(crate) fn script(name: &str) -> Side {
    Side::new([PYTHON.to_owned(), format!("{SCRIPTS}/{name}")])
}
