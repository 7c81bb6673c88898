//! Data that a SCSI logical unit returns: sense data, INQUIRY and its pages, capacities, lists of units, mode headers.
//! A structure that can be emitted must parse as the same again, and no length reported may exceed the input.

use verbena_storage_wire::scsi::{
    BlockLimits, Capacity, Cdb, DeviceId, DeviceType, Inquiry, Luns, ModeHeader, Sense,
    SupportedPages, UnitSerial, is_valid_for,
};

/// Runs one input through every parser: most recognize their own data by its first bytes.
pub fn target(data: &[u8]) {
    if let Ok(sense) = Sense::parse(data) {
        let again = Sense::parse(&sense.emit());
        let kept = sense
            .information
            .filter(|word| u32::try_from(*word).is_ok());
        let fixed = Sense {
            information: kept,
            ..sense
        };
        assert_eq!(again, Ok(fixed), "{sense}");
    }
    if let Ok(inquiry) = Inquiry::parse(data) {
        assert_eq!(Inquiry::parse(&inquiry.emit()), Ok(inquiry), "{inquiry}");
        if let Some(&opcode) = data.get(36) {
            // An opcode that is valid for every device type is valid for this one.
            let common = is_valid_for(DeviceType::None, opcode);
            assert!(!common || is_valid_for(inquiry.device, opcode));
        }
    }
    if let Ok(capacity) = Capacity::parse10(data) {
        assert_eq!(capacity.emit10()[..], data[..Capacity::LEN_10]);
        assert!(capacity.bytes().is_some());
    }
    if let Ok(capacity) = Capacity::parse16(data) {
        assert_eq!(Capacity::parse16(&capacity.emit16()), Ok(capacity));
        assert!(capacity.blocks().is_none_or(|blocks| blocks > 0));
    }
    if let Ok(mode) = ModeHeader::parse(data) {
        assert_eq!(ModeHeader::parse(&mode.emit()), Ok(mode), "{mode}");
    }
    if let Ok(luns) = Luns::parse(data) {
        let units: Vec<_> = luns.iter().collect();
        assert!(units.len() * 8 + 8 <= data.len());
        assert_eq!(
            luns.is_complete(),
            units.len() * 8 + 8 == luns.required_len()
        );
        let mut again = Vec::new();
        Luns::emit(&units, &mut again);
        let again = Luns::parse(&again).expect("our own list");
        assert!(again.is_complete() && again.iter().eq(units));
    }
    pages(data);
    if let Some(bytes) = data.first_chunk() {
        let cdb = Cdb::from_bytes(*bytes);
        assert_eq!(cdb.bytes(), *bytes);
        assert!(!cdb.to_string().is_empty());
    }
}

fn pages(data: &[u8]) {
    let body = data.len().saturating_sub(4);
    if let Ok(serial) = UnitSerial::parse(data) {
        assert!(serial.bytes().len() <= body && !serial.to_string().contains('\n'));
    }
    if let Ok(id) = DeviceId::parse(data) {
        let length: usize = id.designators().map(|d| d.name.len() + 4).sum();
        assert!(length <= body && !id.to_string().contains('\n'));
    }
    if let Ok(pages) = SupportedPages::parse(data) {
        assert!((0..=u8::MAX).filter(|page| pages.has(*page)).count() <= body);
    }
    if let Ok(limits) = BlockLimits::parse(data) {
        assert!(body > 0 || limits == BlockLimits::default());
    }
}
