//! `verbena generate`: manual pages and shell completions from the definition of the command line, for `cargo xtask install` and packages.
//! It is hidden, and writes only into the folder that it is given. Every command that `--help` lists has a page.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

/// The shells with completions, and the files in which each looks for them.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "verbena.bash"),
    (Shell::Zsh, "_verbena"),
    (Shell::Fish, "verbena.fish"),
];

#[derive(Args)]
pub(crate) struct Generate {
    /// The folder for the files; its subfolders `man` and `completions` are created
    folder: PathBuf,
}

pub(crate) fn run(args: &Generate, root: Command) -> u8 {
    match write(&args.folder, root) {
        Ok(()) => 0,
        Err(error) => {
            let folder = args.folder.display();
            eprintln!("verbena: cannot write the files to {folder}: {error}");
            1
        }
    }
}

fn write(folder: &Path, mut root: Command) -> io::Result<()> {
    let version = root.get_version().unwrap_or_default().to_owned();
    root.build();
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    for folder in [&man, &completions] {
        std::fs::create_dir_all(folder)?;
    }
    write_pages(&man, &root, &format!("verbena {version}"))?;
    for (shell, name) in COMPLETIONS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut root, "verbena", &mut text);
        std::fs::write(completions.join(name), text)?;
    }
    Ok(())
}

/// The page of a command, and those of its subcommands.
fn write_pages(folder: &Path, command: &Command, source: &str) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut page = Vec::new();
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(source)
        .manual("Verbena");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_opts().next().is_some() || command.get_positionals().next().is_some() {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let further = command.get_after_long_help().or(command.get_after_help());
    if let Some(further) = further {
        write_as_is(&mut page, &further.to_string())?;
    }
    std::fs::write(folder.join(format!("{name}.1")), page)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_pages(folder, sub, source)?;
    }
    Ok(())
}

/// Text whose lines are kept: examples and tables would be joined to paragraphs.
fn write_as_is(page: &mut Vec<u8>, text: &str) -> io::Result<()> {
    writeln!(page, ".SH NOTES\n.nf")?;
    for line in text.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A line that begins with one of these is a request of roff.
        let guard = if line.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        writeln!(page, "{guard}{line}")?;
    }
    writeln!(page, ".fi")
}
