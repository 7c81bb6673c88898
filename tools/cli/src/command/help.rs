//! `verbena help`: the help of a command, as its `--help` prints it, or a page of the manual. The pages are part of the command, so they
//! fit its version and need no files.

use std::io::{self, Write};

use clap::{Args, Command};

pub(crate) const EXAMPLE: &str = "\
Pages:
  settings   every setting, its values and where it can be set
  wires      RoCEv2 beside iWARP: what works over which, and how a wire is chosen
  programs   which RDMA programs run, with a command to copy for each

Examples:
  verbena help run
  verbena help iscsi read
  verbena help settings | less";

/// The pages: links to those in `docs`, which a package of this crate contains as files.
const PAGES: [(&str, &str); 3] = [
    ("settings", include_str!("../../topics/settings")),
    ("wires", include_str!("../../topics/wires")),
    ("programs", include_str!("../../topics/programs")),
];

const USAGE: u8 = 2;

#[derive(Args)]
pub(crate) struct Help {
    /// A command (with its subcommand, if it has some) or a page
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
}

pub(crate) fn run(args: &Help, root: &Command) -> u8 {
    let page = match args.topic.as_slice() {
        [name] => PAGES.iter().find(|(page, _)| page == name),
        _ => None,
    };
    let text = match page {
        Some((_, text)) => (*text).to_owned(),
        None => match help_of(root, &args.topic) {
            Ok(text) => text,
            Err(unknown) => {
                let pages = PAGES.map(|(page, _)| page).join(", ");
                eprintln!(
                    "verbena: there is no command and no page `{unknown}`; commands are listed by `verbena help`, \
                     pages are: {pages}"
                );
                return USAGE;
            }
        },
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => 0,
        // The reader closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

/// What `--help` of the command with these names prints, or the first name that is none.
fn help_of<'a>(root: &Command, names: &'a [String]) -> Result<String, &'a str> {
    let mut command = root;
    for name in names {
        command = command.find_subcommand(name).ok_or(name.as_str())?;
    }
    let words = ["verbena"]
        .into_iter()
        .chain(names.iter().map(String::as_str));
    let parsed = root.clone().try_get_matches_from(words.chain(["--help"]));
    Ok(parsed.map_or_else(|help| help.to_string(), |_| String::new()))
}
