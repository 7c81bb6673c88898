//! `verbena web`: arguments, the address on standard output, and the page until Ctrl-C.
//! A browser is started with a file that only this user can read: arguments of programs are visible to all users.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use verbena_cli::web::{MAX_TRACES, Web};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena web                                  prints the address for the browser
  verbena web --open                           starts the browser
  verbena web --trace trace.json               with the timeline of a trace
  verbena web --listen 127.0.0.1:8471          at this port, for `ssh -L 8471:127.0.0.1:8471 HOST`

Only programs of the same user are shown; root's page shows root's. The address contains a token; a browser without it
sees no data.";

#[derive(Args)]
pub(crate) struct WebArgs {
    /// The loopback address for the page; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Start the browser (xdg-open)
    #[arg(long)]
    open: bool,
    /// A trace to show: Chrome's trace-event JSON, as `verbena trace` writes it; may be repeated
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
}

pub(crate) fn run(args: &WebArgs) -> u8 {
    match try_run(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn try_run(args: &WebArgs) -> Result<(), Box<dyn std::error::Error>> {
    if args.trace.len() > MAX_TRACES {
        return Err(format!("at most {MAX_TRACES} traces can be shown").into());
    }
    let (mut signal, stop) = UnixStream::pair()?;
    ctrlc::set_handler(move || {
        // The end of the command has closed the other side.
        let _ = signal.write(&[0]);
    })?;
    let web = Web::listen(args.listen, args.trace.clone())?;
    let url = web.url()?;
    match writeln!(io::stdout(), "{url}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    eprintln!("open this address in a browser; Ctrl-C ends the page");
    // Removed at the end.
    let _launcher = match args.open {
        true => Some(Launcher::start(&url)?),
        false => None,
    };
    web.serve_until(stop);
    Ok(())
}

/// A file that leads a browser to the page.
struct Launcher {
    file: PathBuf,
    /// Made for it.
    folder: Option<PathBuf>,
}

impl Launcher {
    fn start(url: &str) -> io::Result<Launcher> {
        let user = rustix::process::geteuid().as_raw();
        let own = |path: &Path| path.metadata().is_ok_and(|m| m.uid() == user);
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let name = format!("verbena-web-{}", std::process::id());
        let (folder, made) = match runtime.filter(|path| path.is_absolute() && own(path)) {
            Some(runtime) => (runtime, None),
            None => {
                let folder = std::env::temp_dir().join(&name);
                fs::DirBuilder::new().mode(0o700).create(&folder)?;
                (folder.clone(), Some(folder))
            }
        };
        let launcher = Launcher {
            file: folder.join(format!("{name}.html")),
            folder: made,
        };
        let mut file: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&launcher.file)?;
        writeln!(
            file,
            "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
             <meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>Verbena</title><a href=\"{url}\">Verbena</a>"
        )?;
        let started = Command::new("xdg-open")
            .arg(&launcher.file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match started {
            // It may stay as long as the browser.
            Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
            Err(error) => eprintln!("verbena: no browser was started: xdg-open: {error}"),
        }
        Ok(launcher)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir(folder);
        }
    }
}
