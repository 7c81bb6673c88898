//! `verbena run`: executes a program so that it uses Verbena as its RDMA adapter. The program replaces this process, so signals, exit code
//! and terminal are its own. Settings that the adapter would reject are reported before it starts.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use verbena_cli::launch::error::Error;
use verbena_cli::launch::{Extras, Libraries, RequestedSettings, Variable, namespace as mount};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena run ibv_devinfo
  verbena run --personality iwarp --set crc=on -- ib_send_lat -d verbena0 peer
  verbena run --rsockets -- iperf3 -s
  verbena run --namespace -- PROGRAM           for programs that ignore environment variables

Exit codes: those of the program; 126 if it cannot be executed, 127 if it is not found,
2 if the libraries are missing or a setting is wrong.";

/// The exit codes of a shell.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
pub(crate) const USAGE: u8 = 2;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const EXECUTABLE: u32 = 0o111;

/// What both commands take.
#[derive(Args)]
pub(crate) struct LaunchArgs {
    /// The folder with the drop-in libraries (default: near this command)
    #[arg(long, value_name = "DIR")]
    libs: Option<PathBuf>,
    /// Whether the adapter presents itself as RoCE or as iWARP: roce or iwarp
    #[arg(long)]
    personality: Option<String>,
    /// The adapter's addresses: auto, an interface, or addresses with commas between them
    #[arg(long)]
    device: Option<String>,
    /// A setting of docs/configuration.md; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The program's TCP sockets become rsockets (docs/rsockets.md); so must its peer's
    #[arg(long)]
    rsockets: bool,
    /// Do not replace copies of libibverbs and librdmacm that the program bundles or opens by a path (docs/dropin.md)
    #[arg(long)]
    no_audit: bool,
}

impl LaunchArgs {
    /// The variables to add to the program's environment.
    pub(crate) fn variables(&self) -> Result<Vec<Variable>, Error> {
        let mut wishes = RequestedSettings::default();
        for text in &self.set {
            wishes.add_text(text)?;
        }
        for (key, value) in [("personality", &self.personality), ("device", &self.device)] {
            if let Some(value) = value {
                wishes.add(key, value);
            }
        }
        let settings = wishes.variables(std::env::vars_os())?;
        let extras = Extras {
            sockets: self.rsockets,
            audit: !self.no_audit,
        };
        let mut all = self
            .libraries()?
            .variables(extras, |name| std::env::var_os(name));
        all.extend(settings);
        Ok(all)
    }

    /// The same, with a further library of the folder preloaded if it is there.
    pub(crate) fn variables_with(&self, library: &str) -> Result<Vec<Variable>, Error> {
        let mut all = self.variables()?;
        let path = self.libraries()?.folder().join(library);
        let preload = all.iter_mut().find(|(name, _)| name == "LD_PRELOAD");
        if let Some((_, value)) = preload.filter(|_| path.is_file()) {
            let mut libraries = path.into_os_string();
            libraries.push(":");
            libraries.push(&*value);
            *value = libraries;
        }
        Ok(all)
    }

    fn libraries(&self) -> Result<Libraries, Error> {
        // Without /proc only the name is known by which it was started.
        let started = || find_program(&std::env::args_os().next()?);
        let command = std::env::current_exe().ok().or_else(started);
        let command = command.unwrap_or_default();
        Libraries::find(self.libs.as_deref(), &command)
    }
}

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    launch: LaunchArgs,
    /// Mount the libraries over the system's, in a mount namespace for the program (docs/dropin.md)
    #[arg(long)]
    namespace: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Returns only if the program could not be started.
pub(crate) fn run(args: &Run) -> u8 {
    run_with(args, Vec::new())
}

/// The same with further variables, which the settings of the command line override.
pub(crate) fn run_with(args: &Run, further: Vec<Variable>) -> u8 {
    launch(&args.launch, args.namespace, &args.program, further)
}

/// Starts a program with these variables, which the settings of the command line override. Returns only if it could not be started.
pub(crate) fn start(launch_args: &LaunchArgs, program: &[OsString], further: Vec<Variable>) -> u8 {
    launch(launch_args, false, program, further)
}

fn launch(
    launch: &LaunchArgs,
    namespace: bool,
    program: &[OsString],
    mut further: Vec<Variable>,
) -> u8 {
    let variables = match launch.variables() {
        Ok(variables) => variables,
        Err(error) => {
            eprintln!("verbena: {error}");
            return USAGE;
        }
    };
    let Some((program, arguments)) = program.split_first() else {
        return USAGE;
    };
    if let Some(path) = find_program(program)
        && is_setuid(&path)
    {
        let path = path.display();
        eprintln!(
            "verbena: {path} runs with the rights of its owner or group, so the dynamic linker ignores the environment, \
             and the program will not load Verbena's libraries"
        );
    }
    if namespace {
        let entered = launch.libraries();
        if let Err(error) = entered.and_then(|all| mount::enter(all.folder())) {
            eprintln!("verbena: {error}");
            return USAGE;
        }
    }
    further.extend(variables);
    let error = Command::new(program).args(arguments).envs(further).exec();
    start_failure(program, &error)
}

/// Reports that a program could not be started; the exit code.
pub(crate) fn start_failure(program: &OsString, error: &io::Error) -> u8 {
    let program = Path::new(program).display();
    eprintln!("verbena: cannot start {program}: {error}");
    if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    }
}

/// The path of the program, as `exec` will find it.
fn find_program(program: &OsString) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(path))
        .find(|path| {
            let found = path.metadata();
            found.is_ok_and(|m| m.is_file() && m.mode() & EXECUTABLE != 0)
        })
}

/// Whether the program is set-user-ID or set-group-ID to another user or group.
fn is_setuid(path: &Path) -> bool {
    let Ok(found) = path.metadata() else {
        return false;
    };
    let user = found.mode() & SET_UID != 0 && found.uid() != rustix::process::geteuid().as_raw();
    let group = found.mode() & SET_GID != 0 && found.gid() != rustix::process::getegid().as_raw();
    user || group
}
