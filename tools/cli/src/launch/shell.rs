//! Variables as lines for a shell. Each line ends with a semicolon, so that `eval $(verbena env)` works without quotes, too, and values are
//! escaped so that the shell does not split them.

use std::ffi::OsStr;

/// A family of shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// The POSIX shell and compatible ones.
    Sh,
    /// fish.
    Fish,
    /// csh and tcsh.
    Csh,
}

/// The command that sets and exports a variable.
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

/// Puts a backslash before special characters: in quotes, two blanks would become one when the shell has split the unquoted line.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        let plain = c.is_alphanumeric() || "_-./:,+@%=".contains(c);
        match c {
            // A backslash before a newline would remove both.
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
    fn values_are_quoted_for_each_shell() {
        let line = |shell| line(shell, OsStr::new("A"), OsStr::new("it's a  \\!"));
        assert_eq!(line(Shell::Sh), r"export A=it\'s\ a\ \ \\\!;");
        assert_eq!(line(Shell::Fish), r"set -gx A 'it\'s a  \\!';");
        assert_eq!(line(Shell::Csh), r"setenv A 'it'\''s a  \\!';");
    }
}
