//! What the drop-in libraries export, as listed in `dropin/capi/exports`: names, nodes, and which of them is the default.
//! A table that contradicts itself is an error with its line.

use anyhow::{Context, Result, bail, ensure};

/// The binding of a name in a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binding {
    /// For programs that are linked today: `name@@NODE`.
    Default,
    /// Only for programs that need this very node: `name@NODE`.
    Compat,
}

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Func,
    Object,
}

/// One name in one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) binding: Binding,
    pub(crate) kind: Kind,
}

/// A version node: its name, the node whose names it inherits, and its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) parent: Option<String>,
    pub(crate) exports: Vec<Export>,
}

impl Node {
    /// Nodes for providers change with the releases; those for programs only grow.
    pub(crate) fn is_private(&self) -> bool {
        self.name.contains("_PRIVATE_")
    }

    /// The function that implements a name in this node. Compatibility names, which programs of 2006 were linked to, have functions of their own.
    pub(crate) fn target(&self, export: &Export) -> String {
        match export.binding {
            Binding::Compat if !self.is_private() => format!("verbena_old_{}", export.name),
            _ => export.name.clone(),
        }
    }
}

/// A library's nodes, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exports {
    pub(crate) nodes: Vec<Node>,
}

impl Exports {
    pub(crate) fn parse(text: &str) -> Result<Exports> {
        let mut nodes: Vec<Node> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            read(&mut nodes, line).with_context(|| format!("line {}: `{line}`", index + 1))?;
        }
        Ok(Exports { nodes })
    }

    /// Every name with its node.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Node, &Export)> {
        self.nodes
            .iter()
            .flat_map(|node| node.exports.iter().map(move |export| (node, export)))
    }
}

fn read(nodes: &mut Vec<Node>, line: &str) -> Result<()> {
    if let Some(heading) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
        let (name, parent) = match heading.split_once(" : ") {
            Some((name, parent)) => (name, Some(parent)),
            None => (heading, None),
        };
        let known = |name: &str| nodes.iter().any(|node| node.name == name);
        ensure!(!known(name), "duplicate node name");
        if let Some(parent) = parent {
            ensure!(
                known(parent),
                "the node that it inherits from must precede it"
            );
        }
        nodes.push(Node {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            exports: Vec::new(),
        });
        return Ok(());
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, standing, kind] = words.as_slice() else {
        bail!("expected a name, default or compat, func or object");
    };
    let standing = match *standing {
        "default" => Binding::Default,
        "compat" => Binding::Compat,
        other => bail!("`{other}` is neither default nor compat"),
    };
    let kind = match *kind {
        "func" => Kind::Func,
        "object" => Kind::Object,
        other => bail!("`{other}` is neither func nor object"),
    };
    let is = |e: &&Export| e.name == *name;
    let mut elsewhere = nodes.iter().flat_map(|node| &node.exports).filter(is);
    let second = elsewhere.any(|e| e.binding == Binding::Default);
    ensure!(
        !(second && standing == Binding::Default),
        "the name has a default already"
    );
    let node = nodes.last_mut().context("a name before the first node")?;
    ensure!(!node.exports.iter().any(|e| is(&e)), "twice in this node");
    node.exports.push(Export {
        name: (*name).to_owned(),
        binding: standing,
        kind,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# facts\n[A_1]\nf default func\ng compat func\n\n[A_2 : A_1]\ng default func\n\
                        [A_PRIVATE_3]\nf compat func\nd default object\n";

    #[test]
    fn nodes_and_names_are_parsed() {
        let exports = Exports::parse(TEXT).unwrap();
        assert_eq!(exports.nodes.len(), 3);
        assert_eq!(exports.nodes[1].parent.as_deref(), Some("A_1"));
        let all: Vec<String> = exports
            .iter()
            .map(|(node, e)| format!("{} {} {}", node.name, e.name, node.target(e)))
            .collect();
        let expected = [
            "A_1 f f",
            "A_1 g verbena_old_g",
            "A_2 g g",
            "A_PRIVATE_3 f f",
            "A_PRIVATE_3 d d",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn contradictory_table_is_refused_with_its_line() {
        for (text, what) in [
            ("f default func", "before the first node"),
            ("[A]\n[A]", "duplicate node"),
            ("[A : B]", "must precede"),
            (
                "[A]\nf default func\n[B]\nf default func",
                "a default already",
            ),
            ("[A]\nf default func\nf compat func", "twice"),
            ("[A]\nf always func", "always"),
            ("[A]\nf default thing", "thing"),
            ("[A]\nf default", "expected a name"),
        ] {
            let error = format!("{:#}", Exports::parse(text).unwrap_err());
            assert!(error.contains(what) && error.contains("line "), "{error}");
        }
    }
}
