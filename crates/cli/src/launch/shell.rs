//! Variables as lines that a shell evaluates.
//! It promises that each line ends its command, so that `eval $(verbena env)` works without quotes too, and that no value is taken apart.
//! It refuses to guess the shell.

use std::ffi::OsStr;

/// A family of shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// The POSIX shell and its descendants.
    Sh,
    /// fish.
    Fish,
    /// csh and tcsh.
    Csh,
}

/// The command that sets a variable and hands it to programs.
pub fn line(shell: Shell, name: &OsStr, value: &OsStr) -> String {
    let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
    match shell {
        Shell::Sh => format!("export {name}={};", escaped(&value)),
        Shell::Fish => {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            format!("set -gx {name} '{value}';")
        }
        Shell::Csh => {
            let value = value.replace('\'', "'\\''").replace('!', "\\!");
            format!("setenv {name} '{value}';")
        }
    }
}

/// With a backslash before whatever means something: quotes would not keep two blanks apart when the shell has split the line.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        let plain = c.is_alphanumeric() || "_-./:,+@%=".contains(c);
        match c {
            // Behind a backslash it would vanish.
            '\n' => text.push_str("'\n'"),
            _ if plain => text.push(c),
            _ => text.extend(['\\', c]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_gets_its_own_words() {
        let line = |shell| line(shell, OsStr::new("A"), OsStr::new("it's a  \\!"));
        assert_eq!(line(Shell::Sh), r"export A=it\'s\ a\ \ \\\!;");
        assert_eq!(line(Shell::Fish), r"set -gx A 'it\'s a  \\!';");
        assert_eq!(line(Shell::Csh), r"setenv A 'it'\''s a  \\!';");
    }
}
