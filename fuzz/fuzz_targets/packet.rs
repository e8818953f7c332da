#![no_main]

#[path = "../bodies/packet.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::packet(data));
