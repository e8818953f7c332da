//! What compression costs: levels, dictionaries, pieces.

use std::time::Instant;

use crate::{data::texts, steps::blocks, store::Result};

/// Compresses the block of Cancun; dictionaries know only the two others.
pub fn compare() -> Result<()> {
    let dir = blocks();
    let (body, receipts) = texts(&dir, "mainnet-19433903", 1);
    let (old_body, old_receipts) = texts(&dir, "mainnet-15573637", 2);
    let (new_body, _) = texts(&dir, "mainnet-24476000", 3);
    for (name, text, others) in
        [("block", &body, vec![&old_body, &new_body]), ("receipts", &receipts, vec![&old_receipts])]
    {
        let parts: Vec<Vec<u8>> = others.iter().flat_map(|text| pieces(text)).collect();
        let dictionary = zstd::dict::from_samples(&parts, 64 << 10)?;
        for level in [1, 3] {
            row(name, "plain", level, text, &[])?;
            row(name, "dictionary", level, text, &dictionary)?;
            for (how, dictionary) in [("pieces", &[][..]), ("pieces+dictionary", &dictionary)] {
                pieces_row(name, how, level, text, dictionary)?;
            }
        }
        #[cfg(feature = "pure")]
        pure(name, text)?;
    }
    Ok(())
}

/// Each transaction or receipt by itself.
fn pieces(text: &[u8]) -> Vec<Vec<u8>> {
    let json: serde_json::Value = serde_json::from_slice(text).expect("JSON");
    let items = json.get("transactions").unwrap_or(&json).as_array().expect("a list");
    items.iter().map(|item| serde_json::to_vec(item).expect("JSON can be written")).collect()
}

fn row(name: &str, how: &str, level: i32, text: &[u8], dictionary: &[u8]) -> Result<()> {
    let mut compressor = zstd::bulk::Compressor::with_dictionary(level, dictionary)?;
    let mut decompressor = zstd::bulk::Decompressor::with_dictionary(dictionary)?;
    let small = compressor.compress(text)?;
    let up = median(|| drop(compressor.compress(text)));
    let down = median(|| drop(decompressor.decompress(&small, text.len())));
    say(name, how, &level.to_string(), text.len(), small.len(), up, down);
    Ok(())
}

fn pieces_row(name: &str, how: &str, level: i32, text: &[u8], dictionary: &[u8]) -> Result<()> {
    let mut compressor = zstd::bulk::Compressor::with_dictionary(level, dictionary)?;
    let mut decompressor = zstd::bulk::Decompressor::with_dictionary(dictionary)?;
    let parts = pieces(text);
    let small: Vec<_> = parts.iter().map(|part| compressor.compress(part)).collect::<std::io::Result<_>>()?;
    let up = median(|| parts.iter().for_each(|part| drop(compressor.compress(part))));
    let down = median(|| drop(decompressor.decompress(&small[7], parts[7].len())));
    let bytes = small.iter().map(Vec::len).sum();
    say(name, how, &level.to_string(), text.len(), bytes, up, down);
    Ok(())
}

#[cfg(feature = "pure")]
fn pure(name: &str, text: &[u8]) -> Result<()> {
    use std::io::Read;
    let theirs = zstd::bulk::compress(text, 1)?;
    let read = |small: &[u8]| {
        let mut out = Vec::with_capacity(text.len());
        ruzstd::decoding::StreamingDecoder::new(small)
            .expect("a frame")
            .read_to_end(&mut out)
            .expect("whole");
        assert_eq!(out, text);
    };
    let fastest = || ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest);
    let small = fastest();
    say(
        name,
        "ruzstd",
        "fastest",
        text.len(),
        small.len(),
        median(|| drop(fastest())),
        median(|| read(&theirs)),
    );
    use structured_zstd::{decoding::StreamingDecoder, encoding::CompressionLevel};
    for (label, level) in [("fastest", CompressionLevel::Fastest), ("default", CompressionLevel::Default)] {
        let compress = || structured_zstd::encoding::compress_to_vec(text, level);
        let small = compress();
        let read = || {
            let mut out = Vec::with_capacity(text.len());
            StreamingDecoder::new(&theirs[..]).read_to_end(&mut out).expect("whole");
            assert_eq!(out, text);
        };
        say(
            name,
            "structured-zstd",
            label,
            text.len(),
            small.len(),
            median(|| drop(compress())),
            median(read),
        );
    }
    Ok(())
}

fn say(name: &str, how: &str, level: &str, raw: usize, small: usize, up: f64, down: f64) {
    println!(
        "| {name} | {how} | {level} | {:.1} | {:.1} | {:.1}x | {up:.0} | {down:.0} |",
        raw as f64 / 1e3,
        small as f64 / 1e3,
        raw as f64 / small as f64
    );
}

/// Microseconds, the middle of 41.
fn median(mut work: impl FnMut()) -> f64 {
    let mut took: Vec<f64> = (0..41)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}
