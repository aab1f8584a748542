//! The outcome does not depend on how the text was cut into writes, nor the time on how long a line is.

use super::super::Redactor;
use super::corpus::{Random, cases, masked, private_key};
use proptest::prelude::*;

/// Feeds `text` in pieces that end at `cuts`, with a pause after each.
fn in_pieces(redactor: &Redactor, text: &[u8], cuts: &[usize], pause: bool) -> Vec<u8> {
    let mut stream = redactor.stream();
    let (mut shown, mut at) = (Vec::new(), 0);
    for &cut in cuts.iter().chain([&text.len()]) {
        let cut = cut.clamp(at, text.len());
        shown.extend(stream.push(&text[at..cut]));
        if pause {
            shown.extend(stream.idle());
        }
        at = cut;
    }
    shown.extend(stream.finish());
    shown
}

#[test]
fn every_kind_at_every_cut_in_two_and_three_writes() {
    let redactor = Redactor::default();
    for case in cases(1234) {
        let text = case.text.as_bytes();
        let whole = masked(&case.text);
        for first in 0..=text.len() {
            for pause in [false, true] {
                let shown = in_pieces(&redactor, text, &[first], pause);
                assert_eq!(String::from_utf8_lossy(&shown), whole, "{case:?} at {first}, pause: {pause}");
            }
            // The third write begins near: far cuts are covered by the property below.
            for second in [first + 1, first + 2, first + 7] {
                let shown = in_pieces(&redactor, text, &[first, second], true);
                assert_eq!(String::from_utf8_lossy(&shown), whole, "{case:?} at {first}, {second}");
            }
        }
    }
}

#[test]
fn a_private_key_at_every_cut() {
    let redactor = Redactor::default();
    let key = private_key(11, 4);
    for text in [
        format!("a\n{}\nz\n", key.join("\n")),
        format!("a\n{}\nz\n", key[2..].join("\n")),
        format!("a {{\"k\":\"{}\"}}\n", key.join("\\n")),
    ] {
        let whole = masked(&text);
        for at in 0..=text.len() {
            let shown = in_pieces(&redactor, text.as_bytes(), &[at, at + 3], true);
            assert_eq!(String::from_utf8_lossy(&shown), whole, "at {at}");
        }
    }
}

#[test]
fn a_pause_shows_what_is_safe_and_no_more() {
    let redactor = Redactor::new([b"correct horse battery".to_vec()]);
    let mut stream = redactor.stream();
    stream.push(b"compiling 12 of ");
    assert_eq!(stream.idle(), b"compiling 12 of ");
    stream.push(b"90 correct horse ");
    assert_eq!(stream.idle(), b"90 ");
    assert_eq!(stream.push(b"battery staple\n"), b"[redacted:known] staple\n");
    stream.push(b"enter my_password: ");
    assert_eq!(stream.idle(), b"enter ");
    stream.push(b"hunter22 ok\n");
    assert_eq!(stream.held(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_secret_passes_at_any_cut(
        seed in 1u64..1_000_000,
        pick in any::<prop::sample::Index>(),
        filler in "[ -~\\n]{0,200}",
        cuts in prop::collection::vec(0usize..600, 0..8),
        pause in any::<bool>(),
    ) {
        let cases = cases(seed);
        let case = pick.get(&cases);
        let text = format!("{filler}\n{}\n{filler}", case.text);
        let mut cuts = cuts;
        cuts.sort_unstable();
        let shown = in_pieces(&Redactor::default(), text.as_bytes(), &cuts, pause);
        let shown = String::from_utf8_lossy(&shown);
        prop_assert!(!shown.contains(&case.secret), "{:?} -> {}", case, shown);
    }

    #[test]
    fn any_bytes_come_through_the_same_in_pieces(
        text in prop::collection::vec(prop::sample::select(b"ab=:\"' \n\\-_/@.Ttoken1".to_vec()), 0..300),
        cuts in prop::collection::vec(0usize..300, 0..6),
    ) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        let redactor = Redactor::new([b"token1".to_vec(), b"a b\"a b".to_vec()]);
        let whole = redactor.text(&text).into_owned();
        prop_assert_eq!(in_pieces(&redactor, &text, &cuts, false), whole);
    }
}

#[test]
fn secrets_within_an_over_long_line_are_masked_wherever_its_parts_meet() {
    let redactor = Redactor::default();
    let cases = cases(555);
    let mut random = Random(3);
    for round in 0..12 {
        let mut text = String::new();
        let mut secrets = Vec::new();
        while text.len() < 200_000 {
            let size = 1000 + (random.next() % 5000) as usize;
            let filler = random.of("abcdefgh ", size);
            let case = &cases[(random.next() as usize + round) % cases.len()];
            text += &format!("{filler} {} ", case.text.replace(['\n', '\r'], " "));
            secrets.push(case);
        }
        let shown = in_pieces(&redactor, text.as_bytes(), &[70_000, 70_001, 140_000], round % 2 == 0);
        let shown = String::from_utf8_lossy(&shown);
        for case in secrets {
            assert!(!shown.contains(&case.secret), "{case:?}");
        }
    }
}

#[test]
fn a_secret_longer_than_the_buffer_is_one_mask() {
    let long = Random(4).of("abcdefghijklmnopqrstuvwxyz0123456789", 300_000);
    for (before, after) in [("{\"api_key\":\"", "\", \"x\": 1}\n"), ("A_TOKEN=", " x\n"), ("t: ghs_", " x\n")]
    {
        let shown = masked(&format!("{before}{long}{after}"));
        assert!(shown.len() < 100, "{} bytes", shown.len());
        assert!(shown.ends_with(after), "{shown}");
    }
}

#[test]
fn hostile_lines_take_time_in_proportion() {
    let redactor = Redactor::new([b"aaaaaaab".to_vec(), b"x1x1x1x1x1x1".to_vec()]);
    for unit in [
        "token",
        "token=",
        "a",
        "eyJ",
        "eyJaaaaaaaa.",
        "SG.aaaaaaaaaaaaaaaa.eyJaaaaaaaa.",
        "://",
        "://a:b/",
        "-----BEGIN ",
        "sk-",
        "\\",
        "\"",
        "x1",
        "key ",
        "x1\n",
    ] {
        let text = unit.repeat(300_000 / unit.len());
        let mut stream = redactor.stream();
        let mut most = 0;
        for chunk in text.as_bytes().chunks(10_000) {
            stream.push(chunk);
            most = most.max(stream.held());
        }
        assert!(most <= 64 * 1024, "{unit}: {most}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

    /// Nothing that can be printed makes a rule read past the end of what it has.
    #[test]
    fn no_bytes_make_it_panic(
        parts in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                prop::sample::select(vec![
                    "TOKEN=", "password\":\"", "Authorization: ", "Bearer ", "Digest ", "Cookie: ", "a=", "://", "u:p@",
                    "-----BEGIN ", "-----END ", "PRIVATE KEY-----", "\n", "\\n", "\\\"", "eyJ", "sk-", ":AA", "1234567890",
                    "sig=", "--token ", "<password>", "\u{1b}[", "\r", "known-value-1", "MIIEowIBAAKCAQEA",
                ]).prop_map(|s| s.as_bytes().to_vec()),
            ],
            0..24,
        ),
        cuts in prop::collection::vec(0usize..400, 0..5),
    ) {
        let text = parts.concat();
        let mut cuts = cuts;
        cuts.sort_unstable();
        let redactor = Redactor::new([b"known-value-1".to_vec()]);
        let shown = in_pieces(&redactor, &text, &cuts, true);
        prop_assert!(!String::from_utf8_lossy(&shown).contains("known-value-1"));
    }
}
