//! A test in a process of its own: the test program is started again for this one test, so that descriptors, memory, threads and
//! settings of the process are the test's alone. Whether the test passed is what the process's exit status says.

use std::process::{Command, Stdio};

/// Set in the process that runs one test.
const ALONE: &str = "TEST_IN_OWN_PROCESS";

/// At the beginning of a test: the rest of the test runs in another process of this test program, and the test passes if it passes there.
/// Without arguments; the test's name is found by the compiler.
#[macro_export]
macro_rules! own_process {
    () => {{
        fn inside() {}
        if !$crate::is_own_process(::std::any::type_name_of_val(&inside)) {
            return;
        }
    }};
}

/// For [`own_process!`]: true in the process of one test; elsewhere it starts that process, waits for its end and returns false.
/// `inside` is the path of a function in the test.
///
/// # Panics
/// If the process cannot be started, or the test fails in it.
#[must_use]
pub fn is_own_process(inside: &str) -> bool {
    let test = test_name(inside);
    if std::env::var_os(ALONE).is_some_and(|name| name == test) {
        return true;
    }
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new(program)
        .args([test, "--exact", "--include-ignored", "--nocapture"])
        .arg("--test-threads=1")
        .env(ALONE, test)
        .stdin(Stdio::null())
        .output()
        .expect("the test program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "{test} in its own process: {}",
        output.status
    );
    assert!(text.contains("1 passed"), "{test} was not run");
    false
}

/// The test's name as the test program lists it: the path without the crate and without the function inside.
fn test_name(inside: &str) -> &str {
    let (_, path) = inside.split_once("::").expect("a path in a crate");
    path.rsplit_once("::").expect("a function in a test").0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_of_a_test_runs_in_another_process() {
        let name = "process::tests::rest_of_a_test_runs_in_another_process";
        let expected = std::env::var(ALONE).is_ok_and(|alone| alone == name);
        own_process!();
        assert!(expected, "the process of all tests went on");
    }

    #[test]
    #[should_panic(expected = "in its own process: exit status: 101")]
    fn failure_in_the_process_fails_the_test() {
        if std::env::var_os(ALONE).is_none() {
            own_process!();
        }
        // libtest expects a panic with another text, so the test fails in that process.
        panic!("failed");
    }

    #[test]
    fn test_name_is_between_crate_and_function() {
        assert_eq!(test_name("program::module::test::inside"), "module::test");
        assert_eq!(test_name("program::test::inside"), "test");
    }
}
