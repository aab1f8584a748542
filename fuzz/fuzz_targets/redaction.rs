//! No known secret passes, and the outcome does not depend on how the text was cut into writes.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use workspool::redact::Redactor;

#[derive(Debug, Arbitrary)]
struct Input {
    before: Vec<u8>,
    secret: [u8; 16],
    after: Vec<u8>,
    cuts: Vec<(u8, bool)>,
}

fuzz_target!(|input: Input| {
    // A secret is a word, as the value of a variable is.
    let secret: Vec<u8> = input.secret.iter().map(|b| b'a' + b % 26).collect();
    let mut letters = secret.clone();
    letters.sort_unstable();
    letters.dedup();
    if letters.len() < 8 {
        // Too plain to be taken for a secret: masking "aaaaaaaaaaaaaaaa" everywhere would hide more than it helps.
        return;
    }
    let redactor = Redactor::new([secret.clone()]);
    let text = [&input.before[..], &secret, &input.after].concat();
    let whole = redactor.text(&text).into_owned();
    let (mut stream, mut shown, mut at) = (redactor.stream(), Vec::new(), 0);
    for (step, pause) in &input.cuts {
        let to = (at + usize::from(*step)).min(text.len());
        shown.extend(stream.push(&text[at..to]));
        if *pause {
            shown.extend(stream.idle());
        }
        at = to;
    }
    shown.extend(stream.push(&text[at..]));
    shown.extend(stream.finish());
    let passes = |bytes: &[u8]| bytes.windows(secret.len()).any(|w| w == secret);
    // By chance what stands around it may spell it, too; then it is masked there as well.
    assert!(!passes(&whole), "a secret passes");
    assert!(!passes(&shown), "a secret passes in pieces");
});
