//! What holds for whatever may stand in a file of blocks, and in a value of a tier.

use bytes::Bytes;
use holdfast::cache::tier::{ArchiveReader, ArchiveWriter, Sealed};

/// Reads `data` as a file of blocks, and as a value, and panics if what can be read is not just what was written.
pub fn archive(data: &[u8]) {
    open(&Sealed::from(Bytes::copy_from_slice(data)));
    let Ok(mut reader) = ArchiveReader::begin(data) else { return };
    let mut writer = ArchiveWriter::begin(Vec::new(), reader.chain()).expect("memory can be written to");
    loop {
        match reader.next_block() {
            Ok(Some(carried)) => {
                open(&carried.block);
                carried.receipts.iter().for_each(open);
                writer.put(&carried).expect("what was read can be written");
            }
            Ok(None) => break,
            Err(_) => return,
        }
    }
    assert_eq!(writer.finish().expect("memory can be written to"), data);
}

fn open(value: &Sealed) {
    if let Ok(text) = value.open() {
        assert_eq!(text.len(), value.takes());
    }
}
