#![no_main]

#[path = "../bodies/archive.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::archive(data));
