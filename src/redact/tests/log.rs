//! The log file: lines, parts, caps, errors.

use super::super::{Caps, LogEntry, LogStats, LogWriter, Redactor, StreamKind};
use super::corpus::{Random, cases};
use StreamKind::{Stderr, Stdout};
use chrono::{DateTime, Utc};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn at() -> DateTime<Utc> {
    DateTime::from_timestamp_millis(1_767_323_045_678).unwrap()
}

fn entries(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            // What is written is what readers take, and nothing beside it.
            let entry = LogEntry::read(line.as_bytes()).unwrap();
            assert_eq!(serde_json::to_string(&entry).unwrap().len(), line.len(), "{line}");
            serde_json::to_value(entry).unwrap()
        })
        .collect()
}

/// Puts the lines of a stream together again, as a reader does.
fn joined(entries: &[Value], side: &str) -> String {
    let of_side = entries.iter().filter(|e| e["s"] == side && e["text"].is_string());
    of_side
        .map(|e| format!("{}{}", e["text"].as_str().unwrap(), if e["part"] == true { "" } else { "\n" }))
        .collect()
}

fn log(caps: Caps, write: impl FnOnce(&mut LogWriter)) -> (Vec<Value>, LogStats) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.jsonl");
    let mut log = LogWriter::create(&path, Redactor::new([b"hunter2hunter2".to_vec()]), caps).unwrap();
    write(&mut log);
    let stats = log.finish();
    (entries(&path), stats)
}

#[test]
fn lines_are_there_at_once_private_and_masked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.jsonl");
    let mut log =
        LogWriter::create(&path, Redactor::new([b"hunter2hunter2".to_vec()]), Caps::default()).unwrap();
    log.output(Stdout, b"one hunter2hun", at());
    log.output(Stderr, b"bad\n", at());
    log.output(Stdout, b"ter2 x\r\ntwo\n", at());
    let text = std::fs::read_to_string(&path).unwrap();
    let time = "2026-01-02T03:04:05.678Z";
    assert_eq!(
        text,
        format!(
            "{{\"t\":\"{time}\",\"s\":\"err\",\"text\":\"bad\"}}\n{{\"t\":\"{time}\",\"s\":\"out\",\"text\":\"one [redacted:known] x\"}}\n{{\"t\":\"{time}\",\"s\":\"out\",\"text\":\"two\"}}\n"
        )
    );
    assert_eq!(log.last_line(), Some("two"));
    assert_eq!(log.tail(Stderr), "bad\n");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let stats = log.finish();
    assert_eq!((stats.bytes_out, stats.bytes_err, stats.lines, stats.write_error), (26, 4, 3, None));
    assert_eq!(stats.tail_out, "one [redacted:known] x\ntwo\n");
}

#[test]
fn a_line_without_end_is_written_at_the_end_and_in_pauses() {
    let (entries, stats) = log(Caps::default(), |log| {
        log.output(Stdout, b"building ", at());
        log.idle_flush();
        log.output(Stdout, b"done\n", at());
        log.output(Stderr, b"error: no", at());
    });
    assert_eq!(entries[0]["text"], "building ");
    assert_eq!(entries[0]["part"], true);
    assert_eq!(joined(&entries, "out"), "building done\n");
    assert_eq!(joined(&entries, "err"), "error: no\n");
    assert_eq!(stats.tail_err, "error: no\n");
    assert_eq!(stats.last_line.as_deref(), Some("error: no"));
}

#[test]
fn escape_sequences_and_control_characters_are_gone() {
    let text = b"\x1b[1;31mred\x1b[0m\ttab \x1b]0;title\x07x\x1b]8;;http://a\x1b\\y\x1bPq\x1b\\z \x00\x07\x08\x7f\xc2\x9b\xc3\xa9 10%\r20%\r\nnext\x1b[\nlast\x1b]open\nend\n";
    for split in 0..text.len() {
        let (entries, _) = log(Caps::default(), |log| {
            log.output(Stdout, &text[..split], at());
            log.output(Stdout, &text[split..], at());
        });
        assert_eq!(joined(&entries, "out"), "red\ttab xyz é 10%\n20%\nnext\nlast\nend\n", "split at {split}");
    }
}

#[test]
fn a_token_with_a_colour_in_it_is_masked() {
    let case = cases(8).into_iter().find(|c| c.kind == "github-token").unwrap();
    let (head, tail) = case.secret.split_at(12);
    let (entries, _) = log(Caps::default(), |log| {
        log.output(Stdout, format!("\x1b[32m{head}\x1b[31m{tail}\x1b[0m\n").as_bytes(), at());
    });
    assert_eq!(joined(&entries, "out"), "[redacted:github-token]\n");
}

#[test]
fn invalid_utf8_is_shown_as_such_and_parts_break_no_character() {
    let (entries, _) = log(Caps::default(), |log| {
        log.output(Stdout, b"a\xff\xfeb\xe2\x82\n", at());
        log.output(Stdout, "é ü ".repeat(60_000).as_bytes(), at());
    });
    let text = joined(&entries, "out");
    assert!(text.starts_with("a\u{fffd}\u{fffd}b\u{fffd}\n"), "{}", &text[..20]);
    assert_eq!(text.matches('\u{fffd}').count(), 3);
    assert_eq!(text.matches("é ü ").count(), 60_000);
    assert!(entries.iter().all(|e| e["text"].as_str().unwrap().len() <= 64 * 1024));
}

#[test]
fn two_hundred_megabytes_are_counted_and_the_end_is_kept() {
    let secret = "hunter2hunter2";
    let chunk = format!("{} {secret} line\n", "x".repeat(40)).repeat(1000);
    let caps = Caps { stream: 100_000, tail: 64 * 1024 };
    let rounds = 200_000_000 / chunk.len();
    let (entries, stats) = log(caps, |log| {
        for _ in 0..rounds {
            log.output(Stdout, chunk.as_bytes(), at());
        }
        log.output(Stdout, b"the very end\n", at());
    });
    assert_eq!(stats.bytes_out, (chunk.len() * rounds + 13) as u64);
    let cut = entries.iter().position(|e| e["cut_bytes"].is_number()).unwrap();
    assert_eq!(entries[cut]["cut_bytes"], stats.cut_out);
    assert!(entries[..cut].iter().all(|e| e["tail"].is_null()));
    assert!(entries[cut + 1..].iter().all(|e| e["tail"] == true));
    assert_eq!(entries.last().unwrap()["text"], "the very end");
    let text = joined(&entries, "out");
    assert!(!text.contains("hunter2"));
    assert!(text.len() < 200_000);
    assert!(stats.tail_out.ends_with("the very end\n") && stats.tail_out.len() <= 4096);
}

#[test]
fn a_little_over_the_cap_nothing_is_lost_or_seen() {
    let case = cases(9).into_iter().find(|c| c.kind == "anthropic-key").unwrap();
    let text = format!("first\nsecond {} x\nthird\n", case.secret);
    for cap in 0..text.len() as u64 + 2 {
        let (entries, stats) = log(Caps { stream: cap, tail: 1000 }, |log| {
            for byte in text.as_bytes().chunks(7) {
                log.output(Stdout, byte, at());
                log.idle_flush();
            }
        });
        assert_eq!(joined(&entries, "out"), "first\nsecond [redacted:anthropic-key] x\nthird\n", "cap {cap}");
        assert_eq!(stats.cut_out, 0);
    }
}

#[test]
fn a_secret_cut_by_the_cap_or_by_the_tail_is_not_seen() {
    let secret = "hunter2hunter2";
    let line = format!("{secret} ").repeat(20_000);
    for shift in 0..16 {
        let caps = Caps { stream: 1000 + shift, tail: 1000 };
        let (entries, _) = log(caps, |log| log.output(Stdout, line.as_bytes(), at()));
        let text = joined(&entries, "out");
        for part in ["hunter", "unter2", "nter2h", "2hunte", "ter2 ", "er2 "] {
            assert!(!text.contains(part), "{part} at {shift}: {text}");
        }
    }
}

#[test]
fn one_line_of_fifty_megabytes_is_parts_and_a_tail() {
    let piece = Random(12).of("abcdefghij ", 100_000);
    let (entries, stats) = log(Caps { stream: 1_000_000, tail: 64 * 1024 }, |log| {
        for _ in 0..500 {
            log.output(Stdout, piece.as_bytes(), at());
        }
    });
    assert_eq!(stats.bytes_out, 50_000_000);
    assert!(entries.iter().all(|e| e["text"].as_str().is_none_or(|t| t.len() <= 64 * 1024)));
    let shown = entries.iter().filter_map(|e| e["text"].as_str()).map(str::len).sum::<usize>() as u64;
    assert_eq!(shown + stats.cut_out, 50_000_000);
    assert!(entries.iter().any(|e| e["tail"] == true));
}

#[test]
fn a_full_disk_is_reported_and_ends_nothing() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let mut log = LogWriter::create(Path::new("/dev/full"), Redactor::default(), Caps::default()).unwrap();
    log.output(Stdout, b"one\n", at());
    log.output(Stderr, b"two\n", at());
    assert_eq!(log.last_line(), Some("two"));
    let stats = log.finish();
    assert_eq!((stats.bytes_out, stats.bytes_err), (4, 4));
    assert!(stats.write_error.unwrap().contains("space"));
}

#[test]
fn a_torn_line_of_a_writer_before_does_not_spoil_ours() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.jsonl");
    std::fs::write(&path, "{\"t\":\"20").unwrap();
    let mut log = LogWriter::create(&path, Redactor::default(), Caps::default()).unwrap();
    log.output(Stdout, b"x\n", at());
    log.finish();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(serde_json::from_str::<Value>(lines[1]).unwrap()["text"], "x");
}

#[test]
fn a_symlink_in_the_place_of_the_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("log.jsonl"));
    std::fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert!(LogWriter::create(&link, Redactor::default(), Caps::default()).is_err());
}

#[test]
fn printable_text_has_nothing_for_a_terminal() {
    assert_eq!(super::super::printable("a\u{1b}[2Jb\u{9b}c\td\r\ne"), "abc\td\ne");
    assert!(matches!(super::super::printable("plain ü"), std::borrow::Cow::Borrowed(_)));
}
