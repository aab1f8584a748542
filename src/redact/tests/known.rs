//! Values that are known to be secret, in each form that they are printed in.

use super::super::Redactor;
use super::corpus::Random;

const VALUE: &str = "p&s \"w/rd\\ü<k>'s=1+2%";

fn base64(bytes: &[u8], url_safe: bool) -> String {
    let mut digits: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').collect();
    digits.extend(if url_safe { b"-_" } else { b"+/" });
    let bits: Vec<u8> = bytes.iter().flat_map(|b| (0..8).rev().map(move |n| b >> n & 1)).collect();
    bits.chunks(6)
        .map(|six| {
            let n = (0..6).fold(0, |n, at| n << 1 | six.get(at).copied().unwrap_or(0));
            char::from(digits[usize::from(n)])
        })
        .collect()
}

fn forms(value: &str) -> Vec<(String, String)> {
    let json = serde_json::to_string(value).unwrap();
    let json_json = serde_json::to_string(&json).unwrap();
    let percent = |keep: &str, upper: bool| -> String {
        let hex = |b: u8| if upper { format!("%{b:02X}") } else { format!("%{b:02x}") };
        value
            .bytes()
            .map(|b| {
                if b.is_ascii_alphanumeric() || keep.contains(char::from(b)) {
                    char::from(b).to_string()
                } else {
                    hex(b)
                }
            })
            .collect()
    };
    vec![
        ("plain".into(), value.into()),
        ("json".into(), json.trim_matches('"').into()),
        ("json in json".into(), json_json.trim_matches('"').trim_matches(['\\', '"']).into()),
        ("percent".into(), percent("-_.~", true)),
        ("percent, lower".into(), percent("-_.~", false)),
        ("encodeURIComponent".into(), percent("-_.~!*'()", true)),
        ("hex".into(), value.bytes().map(|b| format!("{b:02x}")).collect()),
        ("HEX".into(), value.bytes().map(|b| format!("{b:02X}")).collect()),
    ]
}

#[test]
fn each_form_is_masked_at_each_split() {
    let redactor = Redactor::new([VALUE.as_bytes().to_vec()]);
    for (name, form) in forms(VALUE) {
        let text = format!("a {form} z\n");
        for at in 0..=text.len() {
            let mut stream = redactor.stream();
            let mut shown = stream.push(&text.as_bytes()[..at]);
            shown.extend(stream.idle());
            shown.extend(stream.push(&text.as_bytes()[at..]));
            shown.extend(stream.finish());
            assert_eq!(String::from_utf8_lossy(&shown), "a [redacted:known] z\n", "{name} at {at}");
        }
    }
}

#[test]
fn base64_is_masked_at_each_alignment() {
    let secret = Random(77).of("abcdefghijklmnopqrstuvwxyz0123456789?>~", 31);
    let redactor = Redactor::new([secret.clone().into_bytes()]);
    for lead in ["", "u", "us", "usr", "user:"] {
        for url_safe in [false, true] {
            let text = base64(format!("{lead}{secret}\nmore").as_bytes(), url_safe);
            let shown = redactor.str(&text).into_owned();
            assert!(shown.contains("[redacted:known]"), "{lead} {text}");
            // Of the value's own characters at most the two at its ends, which others share, remain.
            assert!(shown.replace("[redacted:known]", "").len() <= (lead.len() + 8) * 4 / 3 + 4, "{shown}");
        }
    }
}

#[test]
fn base64_and_hex_that_were_broken_into_lines_are_masked() {
    let secret = Random(78).of("abcdefghijklmnopqrstuvwxyz0123456789", 150);
    let redactor = Redactor::new([secret.clone().into_bytes()]);
    let hex: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
    for (text, width) in
        [(base64(secret.as_bytes(), false), 76), (base64(secret.as_bytes(), false), 64), (hex, 60)]
    {
        let lines: Vec<String> =
            text.as_bytes().chunks(width).map(|c| String::from_utf8_lossy(c).into_owned()).collect();
        let shown = redactor.str(&lines.join("\n")).into_owned();
        for line in lines.iter().filter(|l| l.len() > 8) {
            assert!(!shown.contains(&line[..8]), "{line} in {shown}");
        }
    }
}

#[test]
fn a_value_of_several_lines_is_masked_line_by_line() {
    let redactor = Redactor::new([b"first-line-7\n  second-line-8\nx".to_vec()]);
    assert_eq!(redactor.str("+first-line-7\n+  second-line-8\n"), "+[redacted:known]\n+  [redacted:known]\n");
}

#[test]
fn values_that_overlap_are_both_masked_to_their_ends() {
    let redactor = Redactor::new([b"abcdefgh".to_vec(), b"efghijkl".to_vec(), b"cdefgh".to_vec()]);
    assert_eq!(redactor.str("<abcdefghijkl>"), "<[redacted:known]>");
}

#[test]
fn common_values_stay() {
    let common =
        ["true", "1", "12345", "localhost", "production", "/home/me/key.json", "aaaaaaaaaa", "", "     "];
    let redactor = Redactor::new(common.iter().map(|v| v.as_bytes().to_vec()));
    let text = "true 1 12345 localhost production /home/me/key.json aaaaaaaaaa      ";
    assert_eq!(redactor.str(text), text);
}

#[test]
fn a_long_value_is_masked_in_parts_too() {
    let secret = Random(79).of("abcdefghijklmnopqrstuvwxyz0123456789", 5000);
    let redactor = Redactor::new([secret.clone().into_bytes()]);
    let shown = redactor.str(&format!("a {} z", &secret[1000..2000])).into_owned();
    assert_eq!(shown, "a [redacted:known] z");
}
