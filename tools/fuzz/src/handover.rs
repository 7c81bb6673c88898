//! Images of queue pairs that another process hands over, as they are in the input and with a valid header.
//! An image that decodes and can be encoded must decode and encode to the same again; any other input is an error.

use verbena_nic::Image;
use verbena_wire::crc::crc32c;

/// Magic, format version, checksum.
const HEAD: usize = 10;

/// Runs one input: as it came, and as the body of an image.
pub fn target(data: &[u8]) {
    check(data);
    check(&sealed(data));
}

/// The input as the body of an image of the current format version.
pub fn sealed(body: &[u8]) -> Vec<u8> {
    let mut image = Vec::with_capacity(HEAD + body.len());
    image.extend(b"vbni");
    image.extend(Image::FORMAT_VERSION.to_le_bytes());
    image.extend(crc32c(body).to_le_bytes());
    image.extend(body);
    image
}

fn check(bytes: &[u8]) {
    let image = match Image::decode(bytes) {
        Ok(image) => image,
        Err(error) => return drop(error.to_string()),
    };
    let (sends, receives) = image.completions_by_queue();
    assert_eq!(sends + receives, image.completions());
    let Ok(again) = image.encode() else { return };
    let read = Image::decode(&again).expect("what was written is an image");
    assert_eq!(read.traits(), image.traits());
    assert_eq!(read.encode().as_deref(), Ok(&*again));
}
