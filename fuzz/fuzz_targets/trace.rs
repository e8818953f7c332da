#![no_main]

#[path = "../bodies/trace.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::trace(data));
