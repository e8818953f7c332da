#![no_main]

#[path = "../bodies/answer.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::answer(data));
