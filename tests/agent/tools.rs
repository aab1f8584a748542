//! The tools, as a model uses them: what they do, and what they will not do.

use super::bench::{Bench, Ran, read, results_in, run};
use super::modelserver::Turn;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use workspool::model::Fact;

/// Lets the model call tools, one after the other, and returns their answers.
fn play(bench: &Bench, scenario: &str, calls: &[(&str, Value)], args: &[&str]) -> (Vec<String>, Ran) {
    let mut turns: Vec<Turn> = calls.iter().map(|(name, args)| Turn::call(name, args.clone())).collect();
    turns.push(Turn::say("done"));
    bench.server.script(scenario, turns);
    let ran = run(bench.command("openai-chat", scenario).args(args), "go");
    ran.done();
    (results_in(&bench.server.seen(scenario).last().unwrap().body), ran)
}

#[test]
fn files_are_read_in_parts() {
    let bench = Bench::new();
    let lines: String = (1..=5000).map(|n| format!("line {n}\n")).collect();
    std::fs::write(bench.work("long.txt"), &lines).unwrap();
    std::fs::write(bench.work("empty"), "").unwrap();
    std::fs::write(bench.work("binary"), b"\x7fELF\0\0").unwrap();
    std::fs::write(bench.work("latin"), b"caf\xe9 end").unwrap();
    std::fs::write(bench.work("wide"), "x".repeat(200_000) + "\nsecond\n").unwrap();
    let at = |offset: u64, limit: u64| json!({"path": "long.txt", "offset": offset, "limit": limit});
    let (got, ran) = play(
        &bench,
        "read",
        &[
            ("read_file", json!({"path": "long.txt"})),
            ("read_file", at(4999, 10)),
            ("read_file", at(10, 2)),
            ("read_file", at(6000, 1)),
            ("read_file", json!({"path": "empty"})),
            ("read_file", json!({"path": "binary"})),
            ("read_file", json!({"path": "latin"})),
            ("read_file", json!({"path": "wide"})),
            ("read_file", json!({"path": "wide", "offset": 2})),
            ("read_file", json!({"path": "."})),
            ("read_file", json!({"file": "long.txt"})),
        ],
        &[],
    );
    assert!(got[0].starts_with("line 1\nline 2\n"));
    assert!(got[0].ends_with("line 2000\n[lines 1 to 2000; there are more: go on with offset 2001]"));
    assert_eq!(got[1], "line 4999\nline 5000\n");
    assert_eq!(got[2], "line 10\nline 11\n[lines 10 to 11; there are more: go on with offset 12]");
    assert!(got[3].contains("has only 5000 lines"));
    assert_eq!(got[4], "[the file is empty]");
    assert!(got[5].contains("is a binary file of 6 bytes"));
    assert_eq!(got[6], "caf\u{fffd} end");
    assert!(got[7].len() < 66_000 && got[7].contains("[line 1 is cut off"), "{}", got[7].len());
    assert_eq!(got[8], "second\n");
    assert!(got[9].starts_with("error: "));
    assert!(got[10].contains("missing field `path`"), "{}", got[10]);
    assert_eq!(ran.results(), [true, true, true, false, true, false, true, true, true, false, false]);
}

#[test]
fn edits_are_exact_and_unique() {
    let bench = Bench::new();
    std::fs::write(bench.work("a.rs"), b"fn a() {}\nfn b() {}\nlet x = 1;\nlet x = 1;\n\xff\n").unwrap();
    std::fs::write(bench.work("dos.txt"), "one\r\ntwo\r\n").unwrap();
    let edit = |path: &str, old: &str, new: &str| json!({"path": path, "old_string": old, "new_string": new});
    let mut all = edit("a.rs", "x = 1", "y = 2");
    all["replace_all"] = json!(true);
    let (got, _) = play(
        &bench,
        "edit",
        &[
            ("edit_file", edit("a.rs", "fn b() {}", "fn c() {\n}")),
            ("edit_file", edit("a.rs", "let x = 1;", "let x = 2;")),
            ("edit_file", edit("a.rs", "nowhere", "x")),
            ("edit_file", edit("a.rs", "fn a() {}\nfn z", "x")),
            ("edit_file", edit("dos.txt", "one\ntwo", "x")),
            ("edit_file", edit("a.rs", "", "x")),
            ("edit_file", edit("none.rs", "a", "x")),
            ("edit_file", all),
        ],
        &[],
    );
    assert_eq!(got[0], "replaced 1 place in a.rs (first at line 2)");
    assert!(got[1].contains("is there 2 times (lines 4, 5)"), "{}", got[1]);
    assert!(got[2].contains("old_string is not there"));
    assert!(got[3].contains("its first line is at line 1"), "{}", got[3]);
    assert!(got[4].contains("its lines end in \\r\\n"), "{}", got[4]);
    assert!(got[5].contains("old_string is empty"));
    assert!(got[6].contains("there is no such file"));
    assert_eq!(got[7], "replaced 2 places in a.rs (first at line 4)");
    let whole = std::fs::read(bench.work("a.rs")).unwrap();
    assert_eq!(whole, b"fn a() {}\nfn c() {\n}\nlet y = 2;\nlet y = 2;\n\xff\n");
}

#[test]
fn folders_are_listed_and_searched() {
    let bench = Bench::new();
    for (path, text) in [
        ("src/main.rs", "fn main() {\n    println!(\"needle\");\n}\n"),
        ("src/deep/lib.rs", "// Needle in a comment\n"),
        ("notes.md", "needle\r\n"),
        ("node_modules/x/index.js", "needle"),
        ("target/CACHEDIR.TAG", "needle"),
        (".git/config", "needle"),
    ] {
        let path = bench.work(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::fs::write(bench.work("data.bin"), b"needle\0").unwrap();
    std::fs::write(bench.work("many.txt"), "needle\n".repeat(500)).unwrap();
    std::fs::create_dir(bench.path("out")).unwrap();
    std::fs::write(bench.path("out/secret"), "needle").unwrap();
    symlink("../out", bench.work("exit")).unwrap();
    let (got, _) = play(
        &bench,
        "look",
        &[
            ("list_directory", json!({})),
            ("list_directory", json!({"path": "src", "depth": 2})),
            ("search", json!({"pattern": "needle", "glob": "*.rs"})),
            ("search", json!({"pattern": "^needle$", "path": "notes.md"})),
            ("search", json!({"pattern": "NEEDLE", "ignore_case": true, "path": "src"})),
            ("search", json!({"pattern": "needle", "glob": "src/**/*.rs"})),
            ("search", json!({"pattern": "needle", "path": "node_modules"})),
            ("search", json!({"pattern": "needle"})),
            ("search", json!({"pattern": "(unclosed"})),
            ("search", json!({"pattern": "not to be found"})),
            ("search", json!({"pattern": "needle", "path": "exit"})),
            ("list_directory", json!({"path": "exit"})),
        ],
        &[],
    );
    let entries: Vec<&str> = got[0].lines().collect();
    let wanted = [
        "data.bin (7 bytes)",
        "exit -> ../out",
        "many.txt (3500 bytes)",
        "node_modules/",
        "notes.md (8 bytes)",
        "src/",
        "target/",
    ];
    assert_eq!(entries, wanted);
    assert_eq!(got[1], "deep/\ndeep/lib.rs (23 bytes)\nmain.rs (38 bytes)");
    assert_eq!(got[2], "src/main.rs:2:     println!(\"needle\");");
    assert_eq!(got[3], "notes.md:1: needle");
    assert_eq!(got[4].lines().count(), 2);
    assert_eq!(got[5], got[2]);
    assert_eq!(got[6], "node_modules/x/index.js:1: needle");
    assert_eq!(got[7].lines().count(), 201);
    assert!(got[7].ends_with("[the first matches; there may be more: narrow the search]"));
    assert!(got[8].contains("the pattern cannot be used"));
    assert_eq!(got[9], "[no match]");
    assert!(got[10].contains("outside the workspace") && got[11].contains("outside the workspace"));
}

#[test]
fn nothing_leads_out_of_the_workspace() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("out")).unwrap();
    std::fs::write(bench.path("out/secret"), "s3cr3t").unwrap();
    symlink("../out", bench.work("exit")).unwrap();
    symlink("../out/secret", bench.work("peek")).unwrap();
    let secret = bench.path("out/secret").to_str().unwrap().to_owned();
    let mut calls = Vec::new();
    for path in ["../out/secret", "exit/secret", "peek", &secret, "src/../../out/secret"] {
        calls.push(("read_file", json!({"path": path})));
        calls.push(("write_file", json!({"path": path, "content": "x"})));
        calls.push(("edit_file", json!({"path": path, "old_string": "s", "new_string": "x"})));
    }
    calls.push(("write_file", json!({"path": ".git/hooks/pre-commit", "content": "x"})));
    let count = calls.len();
    let (got, ran) = play(&bench, "out", &calls, &[]);
    assert_eq!(ran.results(), vec![false; count]);
    assert!(got.iter().all(|answer| !answer.contains("s3cr3t")), "{got:?}");
    assert_eq!(read(&bench.path("out/secret")), "s3cr3t");
    assert!(!bench.work(".git/hooks").exists());
    let denied = ran.facts.iter().filter(|f| matches!(f, Fact::Denied { .. })).count();
    // `peek` as a name to write to is a link, which is an error and no refusal.
    assert_eq!(denied, count - 1);
    assert_eq!(got[count - 1], "refused: .git/hooks/pre-commit: .git is not to be written");
}

#[test]
fn commands_answer_with_code_and_output() {
    let bench = Bench::new();
    let (got, ran) = play(
        &bench,
        "shell",
        &[
            ("run_shell", json!({"command": "echo out; echo err >&2; pwd; cat"})),
            ("run_shell", json!({"command": "echo no; exit 3"})),
            ("run_shell", json!({"command": "kill -9 $$"})),
            ("run_shell", json!({"command": "printf '\\377ok'"})),
        ],
        &[],
    );
    let here = bench.work("").canonicalize().unwrap();
    assert_eq!(got[0], format!("exit code 0\nout\nerr\n{}\n", here.display()));
    assert_eq!(got[1], "error: exit code 3\nno\n");
    assert_eq!(got[2], "error: ended by signal 9\n");
    assert_eq!(got[3], "exit code 0\n\u{fffd}ok");
    assert_eq!(ran.results(), [true, false, false, true]);
}

#[test]
fn a_command_ends_in_time_and_leaves_nothing() {
    let bench = Bench::new();
    let spawn = |file: &str| format!("sleep 600 & echo $! > {file}");
    let escaped = "setsid sh -c 'trap \"\" TERM; echo $$ > escaped; while :; do sleep 1; done' & while [ ! -s escaped ]; do sleep 0.02; done";
    let (got, ran) = play(
        &bench,
        "time",
        &[
            (
                "run_shell",
                json!({"command": format!("{}; {escaped}; sleep 600", spawn("one")), "timeout_seconds": 3}),
            ),
            ("run_shell", json!({"command": format!("{}; exit 0", spawn("two"))})),
        ],
        &[],
    );
    assert!(got[0].contains("ended by us: its time (3 s) was over"), "{}", got[0]);
    assert!(got[1].starts_with("exit code 0; ended 1 processes that it left running"), "{}", got[1]);
    assert_eq!(ran.results(), [false, true]);
    for file in ["one", "two", "escaped"] {
        let pid: u32 = read(&bench.work(file)).trim().parse().unwrap();
        assert_eq!(workspool::process::Identity::of(pid).unwrap(), None, "{file} is still alive");
    }
}

#[test]
fn what_is_not_allowed_is_not_there() {
    let bench = Bench::new();
    let calls = [
        ("write_file", json!({"path": "a", "content": "x"})),
        ("edit_file", json!({"path": "b", "old_string": "x", "new_string": "y"})),
        ("run_shell", json!({"command": "touch c"})),
        ("read_file", json!({"path": "b"})),
    ];
    std::fs::write(bench.work("b"), "x").unwrap();
    let offered = |scenario: &str| -> Vec<String> {
        let body = bench.server.seen(scenario).remove(0).body;
        let names = body["tools"].as_array().unwrap().iter();
        names.map(|t| t["function"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let (got, ran) = play(&bench, "read-only", &calls, &["--permission", "read_only"]);
    assert_eq!(ran.results(), [false, false, false, true]);
    assert!(got[0].contains("write_file is not allowed in this task"));
    assert_eq!(offered("read-only"), ["read_file", "list_directory", "search"]);
    assert!(!bench.work("a").exists() && !bench.work("c").exists());
    assert_eq!(read(&bench.work("b")), "x");
    let denied = |f: &&Fact| matches!(f, Fact::Denied { .. });
    assert_eq!(ran.facts.iter().filter(denied).count(), 3);

    let (_, ran) = play(&bench, "no-shell", &calls, &["--no-shell"]);
    assert_eq!(ran.results(), [true, true, false, true]);
    assert_eq!(offered("no-shell"), ["read_file", "list_directory", "search", "write_file", "edit_file"]);
    assert!(!bench.work("c").exists());
}
