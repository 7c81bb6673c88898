//! Installs what was built where nothing else is: the Debian package in a fresh root, the archive below a prefix of an ordinary user, and the
//! wheel in a virtual environment. In each, rping runs between two processes of an ordinary user, and nothing is left after removal.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{VERSION, archive, deb, emptied, write};
use crate::clients::user::is_root;
use crate::command::{Tool, find};
use crate::workspace::Workspace;

/// From the beginning of the installation to the end of rping: what packages promise, and some ten times what it takes.
const LIMIT: Duration = Duration::from_secs(60);
/// Starts a server and a client of rping with a command in front, and fails unless both succeed. The client is repeated while the server
/// does not listen yet.
const RPING: &str = "\
set -eu
run=$1
port=$2
$run rping -s -C 10 -a 127.0.0.1 -p $port &
server=$!
tries=0
until $run rping -c -v -C 10 -a 127.0.0.1 -p $port; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || exit 1
    sleep 0.1
done
wait $server
";
/// The release of Debian in which the package is installed.
const SUITE: &str = "bookworm";
const SOURCES: &str = "/etc/apt/sources.list.d/debian.sources";
const USER: &str = "nobody";

pub(super) fn all(workspace: &Workspace, out: &Path) -> Result<()> {
    let work = out.join("check");
    std::fs::create_dir_all(&work)?;
    write(&work.join("rping.sh"), RPING, 0o755)?;
    if find("kubernetes-validate").is_some() {
        let manifest = workspace.root.join("packaging/kubernetes/rdma-test.yaml");
        Tool::new("kubernetes-validate")
            .arg("--strict")
            .arg(manifest)
            .run()?;
    }
    tar(out, &work)?;
    wheel(workspace, out, &work)?;
    debian(out, &work)
}

/// An ordinary user's command, where this process is root.
fn as_user(program: &str) -> Tool {
    if is_root() {
        Tool::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", program])
    } else {
        Tool::new(program)
    }
}

fn within_limit(what: &str, begin: Instant) -> Result<()> {
    let took = begin.elapsed();
    println!(
        "{what}: installed and rping done in {:.1} s",
        took.as_secs_f64()
    );
    if took > LIMIT {
        bail!("{what}: that is more than {} s", LIMIT.as_secs());
    }
    Ok(())
}

/// A folder of the ordinary user, in a place where that user may go.
fn user_folder(name: &str) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("verbena-{name}-{}", std::process::id()));
    emptied(&folder)?;
    if is_root() {
        std::os::unix::fs::chown(&folder, Some(65534), Some(65534))?;
    }
    Ok(folder)
}

fn tar(out: &Path, work: &Path) -> Result<()> {
    let home = user_folder("tar")?;
    let begin = Instant::now();
    let packed = home.join("verbena.tar.gz");
    std::fs::copy(out.join(format!("{}.tar.gz", archive::name())), &packed)?;
    let rping = home.join("rping.sh");
    std::fs::copy(work.join("rping.sh"), &rping)?;
    as_user("tar")
        .arg("-xzf")
        .arg(&packed)
        .current_dir(&home)
        .run()?;
    let script = home.join(archive::name()).join("install.sh");
    let script = script.display().to_string();
    as_user(&script).env("HOME", &home).run_quietly()?;
    let run = format!("{}/.local/bin/verbena run --", home.display());
    as_user("sh")
        .arg(&rping)
        .args([&run, "7711"])
        .env("HOME", &home)
        .run()?;
    within_limit("archive", begin)?;
    as_user(&script)
        .arg("--uninstall")
        .env("HOME", &home)
        .run()?;
    let left = super::files_below(&home.join(".local"));
    if left.is_ok_and(|files| !files.is_empty()) {
        bail!("files are left in {}/.local", home.display());
    }
    std::fs::remove_dir_all(&home)?;
    Ok(())
}

fn wheel(workspace: &Workspace, out: &Path, work: &Path) -> Result<()> {
    let home = user_folder("wheel")?;
    let environment = home.join("venv");
    let bin = environment.join("bin");
    Tool::new("virtualenv")
        .arg("--quiet")
        .arg(&environment)
        .run()?;
    let python = bin.join("python");
    // From the package index, like a user's.
    Tool::new(&python)
        .args(["-m", "pip", "install", "--quiet", "pytest"])
        .run()?;
    let begin = Instant::now();
    let name = |entry: &PathBuf| {
        let name = entry
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name.starts_with(&format!("verbena-{VERSION}-")) && name.ends_with(".whl")
    };
    let mut files = std::fs::read_dir(out)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = files.find(name).context("there is no wheel")?;
    Tool::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--no-index"])
        .arg(&wheel)
        .run()?;
    std::fs::copy(work.join("rping.sh"), home.join("rping.sh"))?;
    let run = format!("{} -m verbena run --", python.display());
    as_user("sh")
        .arg(home.join("rping.sh"))
        .args([&run, "7712"])
        .env("HOME", &home)
        .run()?;
    within_limit("wheel", begin)?;
    let test = home.join("test_devices.py");
    std::fs::copy(
        workspace.root.join("packaging/python/test_devices.py"),
        &test,
    )?;
    let python = python.display().to_string();
    as_user(&python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg(&test)
        .env("HOME", &home)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .run()?;
    Tool::new(&python)
        .args(["-m", "pip", "uninstall", "--quiet", "--yes", "verbena"])
        .run()?;
    let left = Tool::new("find")
        .arg(&environment)
        .args(["-iname", "*verbena*"])
        .output()?;
    if !left.is_empty() {
        bail!("left after removal: {left}");
    }
    std::fs::remove_dir_all(&home)?;
    Ok(())
}

fn debian(out: &Path, work: &Path) -> Result<()> {
    if !is_root() || find("mmdebstrap").is_none() || !Path::new(SOURCES).is_file() {
        println!(
            "!!! NOT EVERYTHING WAS TESTED: the Debian package, which needs root, mmdebstrap and {SOURCES}"
        );
        return Ok(());
    }
    let root = std::env::temp_dir().join(format!("verbena-root-{}", std::process::id()));
    let result = in_root(out, work, &root);
    // Also after a failure: it has 200 MB.
    let removed = std::fs::remove_dir_all(&root);
    result?;
    removed.with_context(|| format!("cannot remove {}", root.display()))
}

/// With the machine's own sources of packages, and nothing but the programs of rdma-core.
fn in_root(out: &Path, work: &Path, root: &Path) -> Result<()> {
    Tool::new("mmdebstrap")
        .args([
            "--quiet",
            "--variant=minbase",
            "--include=rdmacm-utils",
            SUITE,
        ])
        .arg(root)
        .arg(SOURCES)
        .run()?;
    let before = super::files_below(&root.join("usr"))?;
    std::fs::copy(out.join(deb::name()?), root.join("verbena.deb"))?;
    std::fs::copy(work.join("rping.sh"), root.join("rping.sh"))?;
    // With /proc, as in a container, and nothing else of the host; the mount ends with the command.
    let chroot = || {
        let mounted = "mount -t proc proc \"$0/proc\" && exec chroot \"$0\" \"$@\"";
        Tool::new("unshare")
            .args(["--mount", "sh", "-c", mounted])
            .arg(root)
    };
    let begin = Instant::now();
    chroot().args(["dpkg", "-i", "/verbena.deb"]).run()?;
    chroot()
        .args([
            "setpriv",
            "--reuid",
            USER,
            "--regid",
            "nogroup",
            "--clear-groups",
        ])
        .args(["sh", "/rping.sh", "verbena run --", "7713"])
        .run()?;
    within_limit("Debian package", begin)?;
    chroot().args(["dpkg", "--purge", "verbena"]).run()?;
    let after = super::files_below(&root.join("usr"))?;
    let left: Vec<_> = after.iter().filter(|path| !before.contains(path)).collect();
    if !left.is_empty() {
        bail!("left after removal: {left:?}");
    }
    Ok(())
}
