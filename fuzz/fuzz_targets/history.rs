//! The history of a task: any bytes are walked without a panic, and a chain that holds does not hold any more
//! when one byte of a line before the last is changed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workspool::spool::events::{verify_chain, walk_chain};

fuzz_target!(|input: (&[u8], u16)| {
    let (bytes, at) = input;
    let walked = walk_chain(bytes);
    let Ok(head) = verify_chain(bytes) else { return };
    assert_eq!(walked.head, head);
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let Some(last) = body.iter().rposition(|b| *b == b'\n') else { return };
    let at = usize::from(at) % last.max(1);
    let mut changed = bytes.to_vec();
    changed[at] ^= 1;
    assert!(verify_chain(&changed).is_err(), "byte {at} was changed and nobody saw it");
});
