//! The negotiation of digests in a login (RFC 7143 §13.1), observed in both directions. Memory is bounded however long a login is. The last
//! value of either side applies, since the answer chooses from the offer.

use verbena_storage_wire::iscsi::text::Pairs;
use verbena_storage_wire::iscsi::{LoginResponse, LoginStatus, Stage};

use super::super::record::Dir;
use super::digests::Digests;

/// Text that is parsed of one PDU, or of several that belong together; more than any initiator or target sends.
pub(super) const MAX_TEXT: usize = 64 * 1024;

/// A login in progress.
#[derive(Debug, Default)]
pub(super) struct Login {
    /// Text that continues in the next PDU (the C bit), in each direction.
    partial_text: [Vec<u8>; 2],
    digests: Digests,
}

impl Login {
    /// Takes the text of one side; `more` means that it continues in its next PDU.
    pub(super) fn handle_text(&mut self, dir: Dir, text: &[u8], more: bool) {
        let begun = &mut self.partial_text[dir.index()];
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

    /// The last values.
    pub(super) fn digests(&self) -> Digests {
        self.digests
    }
}

/// Whether the target has accepted the login: all later PDUs have the negotiated digests.
pub(super) fn is_final_response(response: &LoginResponse) -> bool {
    response.status == LoginStatus::Success && response.nsg == Some(Stage::FullFeature)
}
