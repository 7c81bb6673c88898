//! The layouts and constants of `abi`, compared with the C headers of the machine and with our own (`include`) by C programs that these
//! tests build and run; and the functions that our own headers declare, compared with the machine's.
//! Every row of the tables is compared, and all differences are printed. Without gcc or the headers the test fails in CI; elsewhere it
//! prints that nothing was compared.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use verbena_capi::abi::{
    __VERBS_ABI_IS_EXTENDED, CONSTANTS, Field, IBV_ALLOCATOR_USE_DEFAULT, LAYOUTS, Layout,
};

const INCLUDES: &str = "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n\
                        #include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n#include <rdma/rdma_verbs.h>\n";

/// What the headers of some release lack: compared only if the headers have it.
const NEWER: [&str; 17] = [
    // rdma-core 44.
    "ibv_qp_ex.wr_atomic_write",
    "IBV_QP_EX_WITH_ATOMIC_WRITE",
    "IBV_WC_ATOMIC_WRITE",
    "IBV_WR_ATOMIC_WRITE",
    // rdma-core 50.
    "ibv_port_attr.active_speed_ex",
    "ibv_qp_ex.wr_flush",
    "IBV_ACCESS_FLUSH_GLOBAL",
    "IBV_ACCESS_FLUSH_PERSISTENT",
    "IBV_FLUSH_GLOBAL",
    "IBV_FLUSH_MR",
    "IBV_FLUSH_PERSISTENT",
    "IBV_FLUSH_RANGE",
    "IBV_QP_EX_WITH_FLUSH",
    "IBV_WC_FLUSH",
    "IBV_WR_FLUSH",
    // In the kernel's `rdma/ib_user_verbs.h`, which `verbs.h` does not include; rdma-core has no names of its own for them.
    "IB_UVERBS_DEVICE_",
    // From the private header `driver.h`, which no Debian package has; `ibv_query_gid_type` uses the value.
    "IBV_GID_TYPE_SYSFS_",
];

/// A value that must be the same in C and in Rust.
struct Row {
    /// Its name in the report.
    what: String,
    /// Its expression in C.
    expression: String,
    ours: i64,
    /// How many of its bits are compared.
    bits: u32,
}

impl Row {
    fn new(what: String, expression: String, ours: usize) -> Self {
        Self {
            what,
            expression,
            ours: i64::try_from(ours).expect("a size or an offset"),
            bits: 64,
        }
    }

    fn agrees(&self, theirs: i64) -> bool {
        match self.bits {
            // The low bits of two's complement: -1 in C is `u32::MAX` here.
            32 => (theirs ^ self.ours) & 0xFFFF_FFFF == 0,
            _ => theirs == self.ours,
        }
    }
}

fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// A directory for the files of one test; tests of this file run in parallel.
fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("layout-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for the C program");
    directory
}

/// Which headers a C program includes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Headers {
    /// Those of rdma-core, as the machine has them.
    Machine,
    Own,
}

/// gcc on this text; `None` where there is no gcc.
fn gcc(directory: &Path, headers: Headers, text: &str, arguments: &[&str]) -> Option<Output> {
    let source = directory.join("layout.c");
    std::fs::write(&source, text).expect("write the C program");
    let mut command = Command::new("gcc");
    command.args(["-std=gnu11", "-w"]).args(arguments);
    if headers == Headers::Own {
        command.args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")]);
    }
    command.arg(&source).current_dir(directory).output().ok()
}

/// Whether C programs can be built here; if not, that is printed, and is a failure in CI.
fn can_compare(directory: &Path, headers: Headers) -> bool {
    let complaint = match gcc(directory, headers, INCLUDES, &["-fsyntax-only"]) {
        Some(output) if output.status.success() => return true,
        Some(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        None => "gcc cannot be started".to_owned(),
    };
    let lacking = format!(
        "gcc and the headers are needed (Debian packages gcc, libibverbs-dev, librdmacm-dev): {complaint}"
    );
    assert!(!in_ci(), "{lacking}");
    eprintln!("SKIPPED: {lacking}; nothing was compared");
    false
}

/// Whether the headers have this member or constant.
fn known(directory: &Path, expression: &str) -> bool {
    let text = format!("{INCLUDES}int main(void) {{ return (int)({expression}); }}\n");
    let checked = gcc(directory, Headers::Machine, &text, &["-fsyntax-only"]);
    checked.is_some_and(|output| output.status.success())
}

/// The expression for a member in C.
fn in_c(field: &Field) -> String {
    let name = field.c.unwrap_or(field.rust);
    name.replace("r#", "").replace(' ', "")
}

fn newer(name: &str) -> bool {
    NEWER.iter().any(|entry| name.starts_with(entry))
}

/// The rows of one struct: its size, and every member's offset and size.
fn layout_rows(directory: &Path, headers: Headers, layout: &Layout, rows: &mut Vec<Row>) {
    let tag = format!("{} {}", layout.kind, layout.name);
    // This struct grows at the front, so the offsets from its end are compared.
    let from_end = layout.name == "verbs_context";
    let mut size = layout.size;
    for field in layout.fields {
        let path = in_c(field);
        let what = format!("{}.{path}", layout.name);
        let offset = format!("offsetof({tag}, {path})");
        if headers == Headers::Machine && newer(&what) && !known(directory, &offset) {
            // Without its last members, a struct ends where the first of these would begin.
            size = size.min(field.offset);
            continue;
        }
        let (expression, ours) = match from_end {
            true => (
                format!("sizeof({tag}) - {offset}"),
                layout.size - field.offset,
            ),
            false => (offset, field.offset),
        };
        rows.push(Row::new(format!("offset of {what}"), expression, ours));
        let expression = format!("sizeof((({tag} *)0)->{path})");
        rows.push(Row::new(format!("size of {what}"), expression, field.size));
    }
    if !from_end {
        rows.push(Row::new(
            format!("size of {tag}"),
            format!("sizeof({tag})"),
            size,
        ));
    }
}

fn constant_rows(directory: &Path, headers: Headers, rows: &mut Vec<Row>) {
    for constant in CONSTANTS.iter().copied().flatten() {
        let is_missing = match headers {
            Headers::Machine => newer(constant.name) && !known(directory, constant.name),
            // Of the private header of drivers.
            Headers::Own => constant.name.starts_with("IBV_GID_TYPE_SYSFS_"),
        };
        if is_missing {
            continue;
        }
        rows.push(Row {
            what: constant.name.to_owned(),
            expression: constant.name.to_owned(),
            ours: constant.value,
            bits: constant.bits,
        });
    }
}

/// The values of all rows in C, in order.
fn c_values(directory: &Path, headers: Headers, rows: &[Row]) -> Vec<i64> {
    let mut text = format!("{INCLUDES}int main(void) {{\n");
    for row in rows {
        writeln!(
            text,
            "printf(\"%lld\\n\", (long long)({}));",
            row.expression
        )
        .expect("a string");
    }
    text += "return 0;\n}\n";
    let built = gcc(directory, headers, &text, &["-O0", "-o", "layout"]);
    let built = built.expect("gcc was there before");
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(
        built.status.success(),
        "the headers lack a name: {complaint}"
    );
    let run = Command::new(directory.join("layout")).output();
    let run = run.expect("run the C program");
    assert!(run.status.success(), "{run:?}");
    let numbers = String::from_utf8(run.stdout).expect("numbers");
    let number = |line: &str| line.parse().expect("a number");
    numbers.lines().map(number).collect()
}

#[test]
fn layouts_and_constants_match_c_headers() {
    compare(Headers::Machine, &directory("machine"));
}

#[test]
fn layouts_and_constants_match_own_headers() {
    compare(Headers::Own, &directory("own"));
}

fn compare(headers: Headers, directory: &Path) {
    if !can_compare(directory, headers) {
        return;
    }
    let mut rows = Vec::new();
    for layout in LAYOUTS.iter().copied().flatten() {
        layout_rows(directory, headers, layout, &mut rows);
    }
    constant_rows(directory, headers, &mut rows);
    for (name, ours) in [
        ("__VERBS_ABI_IS_EXTENDED", __VERBS_ABI_IS_EXTENDED),
        ("IBV_ALLOCATOR_USE_DEFAULT", IBV_ALLOCATOR_USE_DEFAULT),
    ] {
        rows.push(Row {
            what: name.to_owned(),
            expression: format!("(intptr_t){name}"),
            ours: ours.addr().cast_signed() as i64,
            bits: 64,
        });
    }
    let theirs = c_values(directory, headers, &rows);
    assert_eq!(theirs.len(), rows.len(), "one number for each row");
    let mut report = String::new();
    for (row, &theirs) in rows.iter().zip(&theirs) {
        if !row.agrees(theirs) {
            writeln!(report, "{}: {} here, {theirs} in C", row.what, row.ours).expect("a string");
        }
    }
    assert!(
        report.is_empty(),
        "of {} rows differ:\n{report}",
        rows.len()
    );
    println!("{} rows agree", rows.len());
    std::fs::remove_dir_all(directory).expect("remove what was built");
}

/// A function that a header declares or defines.
struct Function {
    name: String,
    /// Its type in C, without its name.
    kind: String,
    is_inline: bool,
}

/// The functions of a header in which a declaration begins at the start of a line.
fn functions(text: &str) -> Vec<Function> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let begins = line.starts_with(|c: char| c.is_ascii_alphabetic());
        if !begins || !line.contains('(') {
            continue;
        }
        let mut whole = line.to_owned();
        while !whole.contains(')') {
            whole += lines.next().expect("the end of a declaration").trim_start();
        }
        let is_inline = whole.starts_with("static inline ");
        let whole = whole.trim_start_matches("static inline ");
        let (head, parameters) = whole.split_once('(').expect("parameters");
        let parameters = parameters.trim_end_matches(';');
        let start = head.rfind([' ', '*']).expect("a type and a name") + 1;
        let (kind, name) = head.split_at(start);
        found.push(Function {
            name: name.to_owned(),
            kind: format!("{kind}({parameters}"),
            is_inline,
        });
    }
    found
}

/// Those of our own headers.
fn own_functions() -> Vec<Function> {
    let header = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("include")
            .join(name);
        std::fs::read_to_string(path).expect("the header")
    };
    let mut all = functions(&header("infiniband/verbs.h"));
    all.extend(functions(&header("rdma/rdma_cma.h")));
    all.extend(functions(&header("rdma/rdma_verbs.h")));
    all
}

/// Not in the headers of rdma-core 44.
const NEWER_FUNCTIONS: [&str; 1] = ["ibv_wr_flush"];

#[test]
fn own_functions_have_the_types_of_c_headers() {
    let directory = directory("functions");
    if !can_compare(&directory, Headers::Machine) {
        return;
    }
    let all = own_functions();
    assert!(all.len() > 150, "{}", all.len());
    let mut text = INCLUDES.to_owned();
    for Function { name, kind, .. } in &all {
        if name.starts_with("verbena_") || NEWER_FUNCTIONS.contains(&name.as_str()) {
            continue;
        }
        writeln!(
            text,
            "#undef {name}\n_Static_assert(__builtin_types_compatible_p(__typeof__({name}), {kind}), \"{name}\");"
        )
        .expect("a string");
    }
    let checked = gcc(&directory, Headers::Machine, &text, &["-fsyntax-only"]);
    let checked = checked.expect("gcc was there before");
    let complaint = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{complaint}");
    std::fs::remove_dir_all(&directory).expect("remove what was built");
}

#[test]
fn own_functions_are_exported_by_default() {
    let tables = [
        include_str!("../../exports/libibverbs.txt"),
        include_str!("../../exports/librdmacm.txt"),
    ];
    let exported: HashSet<&str> = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| line.strip_suffix(" default func"))
        .collect();
    for function in own_functions()
        .iter()
        .filter(|function| !function.is_inline)
    {
        assert!(
            exported.contains(function.name.as_str()),
            "{}",
            function.name
        );
    }
}

#[test]
fn own_headers_have_no_warnings_in_c_and_cpp() {
    let directory = directory("warnings");
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let source = directory.join("empty.c");
    std::fs::write(&source, "#include <rdma/rdma_verbs.h>\n").expect("write the C program");
    for (compiler, language) in [("gcc", "c"), ("g++", "c++")] {
        let mut command = Command::new(compiler);
        command.args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            "-I",
            include,
            "-x",
            language,
        ]);
        let Ok(output) = command.arg(&source).output() else {
            assert!(!in_ci(), "{compiler} cannot be started");
            continue;
        };
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    std::fs::remove_dir_all(&directory).expect("remove what was written");
}

#[test]
fn table_names_are_unique_and_include_newer_ones() {
    let mut names = HashSet::new();
    for constant in CONSTANTS.iter().copied().flatten() {
        assert!(names.insert(constant.name.to_owned()), "{}", constant.name);
    }
    for layout in LAYOUTS.iter().copied().flatten() {
        assert!(names.insert(layout.name.to_owned()), "{}", layout.name);
        for field in layout.fields {
            let name = format!("{}.{}", layout.name, in_c(field));
            assert!(names.insert(name.clone()), "{name}");
        }
    }
    for entry in NEWER {
        let used = names.iter().any(|name| name.starts_with(entry));
        assert!(used, "{entry} is in no table");
    }
}

#[test]
fn zeroed_is_all_zero() {
    use verbena_capi::abi::{ibv_port_attr, ibv_qp_attr, ibv_send_wr, verbs_context};

    let context = verbs_context::zeroed();
    assert!(context.query_port.is_none() && context.context.device.is_null());
    assert_eq!(context.sz, 0);
    assert_eq!(ibv_port_attr::zeroed().active_speed_ex, 0);
    assert_eq!(ibv_qp_attr::zeroed().rate_limit, 0);
    assert!(ibv_send_wr::zeroed().next.is_null());
}
