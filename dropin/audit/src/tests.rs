//! Names and answers. The dynamic linker of the test's process does not use this library.

use std::ffi::{CStr, CString};

use super::*;

fn classify_name(name: &str) -> Option<Kind> {
    let name = CString::new(name).unwrap();
    // SAFETY: `name` is a C string.
    unsafe { name::classify(name.as_ptr().cast()) }.map(|(_, kind)| kind)
}

fn search(name: &CStr, flag: c_uint) -> &CStr {
    // SAFETY: `name` is a C string; answers are C strings in statics, or `name` itself.
    unsafe { CStr::from_ptr(la_objsearch(name.as_ptr(), core::ptr::null_mut(), flag)) }
}

#[test]
fn verbs_and_rdmacm_library_names_are_recognised() {
    for (name, kind) in [
        ("libibverbs.so", Kind::Verbs),
        ("libibverbs.so.1", Kind::Verbs),
        ("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", Kind::Verbs),
        ("librdmacm.so.1", Kind::Cm),
        ("./librdmacm.so", Kind::Cm),
        ("libibverbs.so.1.14.48.0", Kind::Copy),
        ("libibverbs-1de1263b.so.1.14.48.0", Kind::Copy),
        ("/a/b.libs/libibverbs-1de1263b.so.1.14.48.0", Kind::Verbs),
        ("librdmacm-0f.so", Kind::Copy),
    ] {
        assert_eq!(classify_name(name), Some(kind), "{name}");
    }
}

#[test]
fn other_library_names_are_not_redirected() {
    for name in [
        "",
        "/",
        "libibverbs",
        "libibverbs.so.1/libc.so.6",
        "libibverbs/libmlx5-rdmav34.so",
        "libmlx5.so.1",
        "libibverbs2.so.1",
        "libibverbs-.so",
        "libibverbs-1de1263b.sox",
        "mylibibverbs.so.1",
        "libibumad.so.3",
    ] {
        assert_eq!(classify_name(name), None, "{name}");
    }
    assert_eq!(search(c"libc.so.6", LA_SER_ORIG), c"libc.so.6");
}

#[test]
fn redirected_libraries_lie_beside_the_audit_library() {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().unwrap().to_str().unwrap();
    let path = |file: &str| CString::new(format!("{folder}/{file}")).unwrap();
    for _ in 0..2 {
        let verbs = search(c"/opt/libibverbs.so.1", LA_SER_ORIG);
        assert_eq!(verbs, path("libibverbs.so.1").as_c_str());
        let cm = search(c"librdmacm.so", LA_SER_ORIG);
        assert_eq!(cm, path("librdmacm.so.1").as_c_str());
    }
    // A path that the dynamic linker tries is not changed.
    let tried = c"/opt/libibverbs.so.1";
    assert_eq!(search(tried, 8), tried);
    let one = search(c"libibverbs-aaaa.so.1", LA_SER_ORIG);
    assert_eq!(one, path("libverbena-alias-0.so").as_c_str());
    for number in 1..ALIASES {
        let name = CString::new(format!("librdmacm-{number}.so.1")).unwrap();
        let file = path(&format!("libverbena-alias-{number}.so"));
        assert_eq!(search(&name, LA_SER_ORIG), file.as_c_str());
        assert_eq!(search(&name, LA_SER_ORIG), file.as_c_str());
    }
    let again = search(c"libibverbs-aaaa.so.1", LA_SER_ORIG);
    assert_eq!(again, one);
    let late = c"librdmacm-late.so.1";
    assert_eq!(search(late, LA_SER_ORIG), late);
}

#[test]
fn older_audit_interface_versions_are_refused() {
    assert_eq!(la_version(1), 0);
    assert_eq!(la_version(2), 2);
    assert_eq!(la_version(3), 2);
}
