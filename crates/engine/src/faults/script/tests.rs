//! Scripts: good ones print as they were written, wrong ones name place, key and what is allowed.

use super::*;

#[test]
fn good_rules_print_as_they_were_written() {
    for line in [
        "post nth=3 errno=ENOMEM",
        "post-receive every=7 errno=EINVAL times=2",
        "completion rate=0.01 status=REM_ACCESS_ERR qp=2,4711",
        "receive nth=1 status=LOC_LEN_ERR",
        "connect nth=1 errno=ECONNREFUSED",
        "register every=2 errno=EACCES",
        "kill",
        "kill nth=100",
        "reset qp=5",
        "delay every=1 time=5ms",
        "rnr count=10",
        "rnr nth=4 time=2s",
        "port-down time=300ms",
        "regions most=16 errno=ENOMEM",
        "seed=18446744073709551615; post rate=1 errno=EIO",
    ] {
        let script: Script = line.parse().unwrap();
        let shown = script.to_string();
        assert_eq!(shown, line);
        assert_eq!(shown.parse::<Script>().unwrap(), script);
    }
}

#[test]
fn wrong_rules_name_place_key_and_choice() {
    let long = "x".repeat(MAX_SCRIPT + 1);
    let many = "kill;".repeat(MAX_RULES + 1);
    for (script, complaint) in [
        ("", "it has no rule"),
        (
            "explode nth=1",
            "rule 1: `explode` is no kind of fault: expected one of post, ",
        ),
        (
            "kill; post nth=0 errno=EIO",
            "rule 2: `nth`: \"0\" is not a number from 1 to",
        ),
        (
            "kill\n\npost nth=x errno=EIO",
            "line 3: `nth`: \"x\" is not a number",
        ),
        ("post nth=1", "post needs `errno=`"),
        (
            "post nth=1 errno=EWHAT",
            "`errno`: \"EWHAT\" is not one of EPERM, EIO",
        ),
        (
            "completion nth=1 status=SUCCESS",
            "`status`: \"SUCCESS\" is not one of LOC_LEN_ERR",
        ),
        (
            "completion status=REM_OP_ERR",
            "completion needs `nth=`, `every=` or `rate=`",
        ),
        (
            "kill nth=1 every=2",
            "only one of `nth`, `every` and `rate`",
        ),
        ("kill nth=1 nth=2", "`nth` is given twice"),
        (
            "kill errno=EIO",
            "`errno` is no key of kill: it has times, qp, nth, every, rate",
        ),
        ("kill now", "`now`: expected KEY=VALUE"),
        ("delay time=5", "`time`: \"5\" is not a time from 1us to 5s"),
        (
            "delay time=6s",
            "`time`: \"6s\" is not a time from 1us to 5s",
        ),
        ("rnr", "rnr needs either `count=` or `time=`"),
        ("rnr count=1 time=1s", "rnr needs either"),
        ("post rate=0 errno=EIO", "`rate`: \"0\" is not a fraction"),
        (
            "post rate=101% errno=EIO",
            "`rate`: \"101%\" is not a fraction",
        ),
        (
            "post rate=NaN errno=EIO",
            "`rate`: \"NaN\" is not a fraction",
        ),
        ("kill qp=a", "`qp`: \"a\" is not numbers of queue pairs"),
        ("seed=-1; kill", "`seed`: \"-1\" is no number"),
        ("seed=1 kill", "`kill` behind the seed"),
        (
            "regions nth=1 most=1",
            "`nth` is no key of regions: it has most, errno",
        ),
        (&long, "bytes, at most 16384"),
        (&many, "more than 64 rules"),
    ] {
        let error = script.parse::<Script>().unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
}

#[test]
fn comments_and_prefixes_are_accepted() {
    let text = "# the third write\ncompletion nth=3 status=IBV_WC_REM_OP_ERR # fails\n";
    let script: Script = text.parse().unwrap();
    assert_eq!(script.to_string(), "completion nth=3 status=REM_OP_ERR");
}

#[test]
fn toml_gives_the_same_rules() {
    let text = "seed = 7\n[[fault]]\nkind = \"completion\"\nrate = 0.25\nstatus = \"REM_OP_ERR\"\nqp = [2, 3]\n\
                [[fault]]\nkind = \"delay\"\nevery = 10\ntime = \"5ms\"\n";
    let line = "seed=7; completion rate=0.25 status=REM_OP_ERR qp=2,3; delay every=10 time=5ms";
    assert_eq!(Script::from_toml(text).unwrap().to_string(), line);
}

#[test]
fn wrong_toml_names_its_line() {
    for (text, complaint) in [
        (
            "seed = 7\nfault = 3\n",
            "line 2: `fault`: expected seed or tables",
        ),
        (
            "[[fault]]\nkind = \"kill\"\nnth = \"x\"\n",
            "line 3: `nth`: \"x\" is not",
        ),
        ("[[fault]]\nnth = 1\n", "line 1: `kind` is missing"),
        ("[[fault]]\nkind = \"die\"\n", "line 2: `die` is no kind"),
        ("[[fault]\n", "line 1: expected TOML"),
        ("", "it has no rule"),
    ] {
        let error = Script::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(complaint), "{error}");
    }
}
