#![no_main]

#[path = "../../tests/http1/targets.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::chunked(bytes));
