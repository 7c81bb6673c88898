//! Two network namespaces with a veth pair of a given MTU between them.
//! They are removed on drop, and both ends have that MTU. It needs root; the namespaces are those of `clients/namespace.rs`.

use anyhow::Result;

use crate::clients::namespace::Namespaces;
use crate::command::Tool;

/// The pair.
pub(crate) struct Veth {
    namespaces: Namespaces,
}

impl Veth {
    /// The address of the server.
    pub(crate) const SERVER: &str = "198.51.100.1";

    pub(crate) fn create(mtu: u32) -> Result<Veth> {
        let text = mtu.to_string();
        let veth = Veth {
            namespaces: Namespaces::create(&text[..1])?,
        };
        for (side, link) in veth.namespaces.links().iter().enumerate() {
            let enter = veth.enter(side);
            Tool::new(&enter[0])
                .args(&enter[1..])
                .args(["ip", "link", "set", link, "mtu", &text])
                .run_quietly()?;
        }
        Ok(veth)
    }

    /// The interfaces of both ends.
    pub(crate) fn links(&self) -> &[String; 2] {
        self.namespaces.links()
    }

    /// The words before a command that run it at this end.
    pub(crate) fn enter(&self, side: usize) -> Vec<String> {
        self.namespaces.enter(side)
    }
}
