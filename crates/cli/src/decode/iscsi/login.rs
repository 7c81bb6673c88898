//! What a login says about digests (RFC 7143 §13.1), heard from both sides.
//! It promises bounded memory however long a login is. It refuses to negotiate: the last word of either side is what holds, since who
//! answers chooses from what was offered.

use verbena_wire::iscsi::text::Pairs;
use verbena_wire::iscsi::{LoginResponse, LoginStatus, Stage};

use super::super::record::Dir;
use super::Digests;

/// Bytes of text of one PDU, or of several that belong together, that are looked at. No initiator or target needs so many.
pub(super) const MAX_TEXT: usize = 64 * 1024;

/// A login under way.
#[derive(Debug, Default)]
pub(super) struct Login {
    /// Text whose end is in a PDU to come (the C bit), each way.
    begun: [Vec<u8>; 2],
    digests: Digests,
}

impl Login {
    /// A side says something; `more` means that its text goes on in its next PDU.
    pub(super) fn hear(&mut self, dir: Dir, text: &[u8], more: bool) {
        let begun = &mut self.begun[dir.index()];
        let room = MAX_TEXT - begun.len();
        begun.extend(text.iter().take(room));
        if more {
            return;
        }
        let text = core::mem::take(begun);
        for (key, value) in Pairs::new(&text).flatten() {
            let on = value == "CRC32C";
            match key {
                "HeaderDigest" => self.digests.header = on,
                "DataDigest" => self.digests.data = on,
                _ => {}
            }
        }
    }

    /// What was said last.
    pub(super) fn digests(&self) -> Digests {
        self.digests
    }
}

/// The target has let the initiator in: whatever follows has the digests that were agreed on.
pub(super) fn is_over(response: &LoginResponse) -> bool {
    response.status == LoginStatus::Success && response.nsg == Some(Stage::FullFeature)
}
