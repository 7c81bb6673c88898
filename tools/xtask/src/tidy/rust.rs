//! Just enough of Rust's grammar for the rules: where comments and literals are, where a block ends, what is test code.
//! Blanking keeps every line and column, so that a finding in blanked text has its position in the real file.
//! It is not a parser: it never fails, and on text that is not Rust the blanked parts are meaningless.

/// The text with comments, strings and character literals replaced by spaces.
pub(crate) fn blank_comments_and_literals(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let length = skippable(&chars, at);
        if length == 0 {
            out.push(chars[at]);
            at += 1;
        } else {
            let end = (at + length).min(chars.len());
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|&c| if c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    out
}

/// Length of the comment or literal that starts here, or 0.
fn skippable(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let fresh = at == 0 || !is_word(chars[at - 1]);
    match rest {
        ['/', '/', ..] => rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => quoted(rest, '"'),
        ['\'', ..] => character(rest),
        ['b' | 'c', '"', ..] if fresh => 1 + quoted(&rest[1..], '"'),
        ['b', '\'', ..] if fresh => 1 + quoted(&rest[1..], '\''),
        ['r', '"' | '#', ..] if fresh => raw(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if fresh => raw(rest, 2),
        _ => 0,
    }
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// A character literal; a lifetime or loop label is skipped.
fn character(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', ..] => quoted(rest, '\''),
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

/// A raw string whose hashes start at `hash_at`; 0 for a raw identifier.
fn raw(rest: &[char], hash_at: usize) -> usize {
    let hashes = rest[hash_at..].iter().take_while(|&&c| c == '#').count();
    let open = hash_at + hashes;
    if rest.get(open) != Some(&'"') {
        return 0;
    }
    let mut at = open + 1;
    while at < rest.len() {
        let closing = rest[at] == '"'
            && rest[at + 1..]
                .iter()
                .take(hashes)
                .filter(|&&c| c == '#')
                .count()
                == hashes;
        at += 1;
        if closing {
            return at + hashes;
        }
    }
    at
}

/// Whether a character can be part of a word.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Byte offsets at which `word` stands alone in blanked text.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let before = code[..at].chars().next_back();
            let after = code[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}

/// The line, counted from 1, of a byte offset.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Where the item that starts at `from` ends: after its block, or after its semicolon.
pub(crate) fn item_end(code: &str, from: usize) -> usize {
    let mut braces = 0usize;
    let mut brackets = 0usize;
    for (at, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 && brackets == 0 {
                    return from + at + 1;
                }
            }
            ';' if braces == 0 && brackets == 0 => return from + at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Blanked text with test items blanked too: `#[test]` and everything under `#[cfg(test)]`.
pub(crate) fn blank_tests(code: &str) -> String {
    let mut out = code.to_owned();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test", "#[test]"] {
        while let Some(start) = out.find(attribute) {
            let end = item_end(&out, start + attribute_len(&out[start..]));
            let blank: String = out[start..end]
                .chars()
                .map(|c| {
                    if c == '\n' {
                        "\n".to_owned()
                    } else {
                        " ".repeat(c.len_utf8())
                    }
                })
                .collect();
            out.replace_range(start..end, &blank);
        }
    }
    out
}

fn attribute_len(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return at + 1,
            ']' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_spaces() {
        let cases = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x\"y") + 1"#, "f(      ) + 1"),
            (r###"g(r#"a"b"#)"###, "g(        )"),
            (r#"h(b"x", b'x')"#, "h(    ,     )"),
            (r"i('a', '\n', '\'')", "i(   ,     ,     )"),
            ("fn f<'a>(x: &'a u8)", "fn f<'a>(x: &'a u8)"),
            ("r#type", "r#type"),
            ("\"open", "     "),
            ("/* open", "       "),
        ];
        for (text, expected) in cases {
            assert_eq!(
                blank_comments_and_literals(text).trim_end(),
                expected.trim_end()
            );
        }
    }

    #[test]
    fn blanking_keeps_line_numbers() {
        let text = "a\n/* b\nc */\n\"d\ne\" f";
        let code = blank_comments_and_literals(text);
        assert_eq!(code.lines().count(), text.lines().count());
        assert_eq!(line_of(&code, code.find('f').unwrap()), 5);
    }

    #[test]
    fn only_whole_words_are_found() {
        let at: Vec<usize> = words("unsafe_x unsafe { } not_unsafe", "unsafe").collect();
        assert_eq!(at, [9]);
    }

    #[test]
    fn only_test_items_are_blanked() {
        let code = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests { fn b() { c } }\n\
                    #[cfg(test)]\nmod more;\n#[test]\nfn t(x: [u8; 4]) { d }\nfn e() {}\n";
        let out = blank_tests(code);
        assert_eq!(out.lines().count(), code.lines().count());
        let left: Vec<&str> = out.split_whitespace().collect();
        assert_eq!(left.join(" "), "fn a() {} fn e() {}");
    }

    #[test]
    fn an_item_ends_at_its_block_or_semicolon() {
        assert_eq!(item_end("mod a; b", 0), 6);
        assert_eq!(item_end("fn a(x: [u8; 2]) { { } } b", 0), 24);
    }
}
